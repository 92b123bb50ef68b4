"""EntroPIC (arXiv 2511.15248): a PI controller on the balance of positive and negative tokens holds the entropy.

Knob: objective (token weights). Positive advantages lower entropy, negative ones raise it.

    e = H - target;   α = clip(kp·e + ki·Σ e of earlier steps, -1, 1)
    tokens=all:     weight 1 + α where A > 0, 1 - α where A < 0
    tokens=likely:  L ← L + α·mean( -r·|A| where p(token) > tau )   mean over all tokens, in the code over these

Defaults: target 0.1 (0.4 for reasoning models), kp 1, ki 0.01, tau 0.95: paper.
Evidence: A, read in released code (yk7333/EntroPIC, `compute_policy_loss_entropic`).
Deviations: H is the rollout's token mean at temperature 1 and Σ grows once a step, where the code has micro-batches;
Σ is held in ±1/ki and saved with the checkpoint. A target below 0 switches it off.
Off: target -1.
"""

from math import isfinite
from typing import Literal

import torch

from ...control.parameters import Finite, NonNegative, Share, Variant, checked
from ...loss.credit import earned
from ...loss.surrogates import ratio
from ..base import Batch, Control, Needs, Now, Penalty, Requests, State, Stats, Terms, replace


@checked
def entropic(
    *,
    target: Finite = 0.1,
    kp: NonNegative = 1.0,
    ki: NonNegative = 0.01,
    tau: Share = 0.95,
    tokens: Literal["likely", "all"] = "likely",
    variant: Variant = "paper",
) -> Control:
    """Return EntroPIC; `target` in nats. State: the sum of past errors, and α."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout" or target < 0 or not isfinite(stats.entropy):
            return state, Requests()
        error, total = stats.entropy - target, state["sum"]
        alpha = min(max(kp * error + ki * total, -1.0), 1.0)
        bound = 1 / max(ki, 1e-9)
        return {"sum": min(max(total + error, -bound), bound), "alpha": alpha}, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        alpha = state["alpha"]
        if tokens == "all":
            return replace(terms, weight=terms.weight * (1 + alpha * terms.advantage.sign()))
        likely = earned(batch) & (now.logp.exp() > tau)
        count = batch.n_slots if variant == "paper" else int(likely.sum())
        cost = torch.where(likely, alpha * terms.scale / max(count, 1), 0.0)
        pull = Penalty(
            "entropic",
            cost,
            lambda current, batch, terms: -ratio(current, batch) * terms.advantage.abs(),
        )
        return replace(terms, penalties=(*terms.penalties, pull)) if alpha else terms

    needs = Needs(now=tokens == "likely")
    return Control(
        name="entropic",
        needs=needs,
        init={"sum": 0.0, "alpha": 0.0}.copy,
        observe=observe,
        shape=shape,
    )
