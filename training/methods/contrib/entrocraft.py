"""Entrocraft (arXiv 2604.26326): paths are rejected by the sign of their advantage so that entropy keeps to a schedule.

Knob: sampling. Learning from A > 0 lowers entropy and from A < 0 raises it; what is left out biases the balance.

    target_k = H_0·(start + (end - start)·k/(steps - 1));   e = (target_k - H)/target_k
    e > 0: a path with A > 0 is left out with probability min(gain·e, most);   e < 0: one with A < 0, by gain·|e|

Defaults: from 1 to 0.8 of the first entropy (linear, to slightly lower: the paper's best); gain 2, most 0.9: ours.
Evidence: C. Rejection by entropy, its effect through the sign of advantages, and the best schedule are in the abstract;
the probability could not be established.
Deviations: H is the token mean of the rollout. The mean still counts what is left out. Name it behind grpo.
Off: gain 0.
"""

from math import isfinite

import torch

from ....agents.engine import keyed_rng
from ...control.parameters import Count, NonNegative, Positive, Share, checked
from ...loss.aggregation import path_mean
from ..base import Batch, Control, Now, Requests, State, Stats, Terms, replace

SALT = 0xE27  # parts these draws from those of tokens


@checked
def entrocraft(
    *,
    start: Positive = 1.0,
    end: Positive = 0.8,
    gain: NonNegative = 2.0,
    most: Share = 0.9,
    steps: Count = 150,
) -> Control:
    """Return the rejection; `steps` is the length of the run. State: the first entropy (nats), and e."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout" or not isfinite(stats.entropy):
            return state, Requests()
        first = state["first"] or stats.entropy
        target = first * (start + (end - start) * min(stats.step / max(steps - 1, 1), 1.0))
        return {"first": first, "error": 1 - stats.entropy / max(target, 1e-9)}, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        error, chance = state["error"], min(gain * abs(state["error"]), most)
        rng = keyed_rng((batch.at.seed, batch.at.step, batch.at.update, SALT))
        dice = torch.from_numpy(rng.random(batch.n_paths))[batch.path]
        against = path_mean(terms.advantage, batch) * error > 0
        return replace(terms, weight=torch.where(against & (dice < chance), 0.0, terms.weight))

    return Control(
        name="entrocraft", init={"first": 0.0, "error": 0.0}.copy, observe=observe, shape=shape
    )
