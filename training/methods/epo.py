"""Entropy-regularised Policy Optimisation (EPO, arXiv 2509.22576 v2).

Knob: objective. An entropy bonus averaged by turn, then path, minus a penalty for leaving a band around the mean
entropy of past steps. w = 1 / (paths · turns of the path · tokens of the turn); k of K is the training step.

    L ← L - coef · ( Σ w·H - β_k · Σ w·alpha·P )                                 (Eqs. 2, 4, 6)
    P = [low·H̄ - H]₊ + [H - high·H̄]₊,   H̄ = mean of Σ w·H over earlier steps    (Eq. 3)
    β_k = 1 + exp(-gamma · k / ⌊K/2⌋)                                            (Eq. 5)

Defaults: coef 0.001, low 0, high 2, alpha 0.1, gamma 3, K 150: App. B, ALFWorld (ScienceWorld: alpha 0.05, K 125).
Evidence: B, paper text; the released code (WujiangXu/EPO) differs, see variant "code".
Deviations: turns without a sampled token leave the mean, on which the paper is silent. No history, no band.
Variant "code": token means; P is 1 unless low·H̄ < H < high·H̄, a constant without gradient; the phase weight falls
from 1 to 0.04 and ignores gamma. Its history by turn index, which counts finished environments, is not reproduced.
Note: with alpha·β_k ≤ 1 the band only weakens the bonus above it, so nothing here pushes entropy down.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import exp, inf
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..columns import Batch, Current, Now, Penalty, Terms
from ..control import Control, Needs, Requests, State, Stats
from ..credit import scale
from ..parameters import require

Variant = Literal["paper", "code"]


def epo(
    *,
    coef: float = 0.001,
    low: float = 0.0,
    high: float = 2.0,
    alpha: float = 0.1,
    gamma: float = 3.0,
    steps: int = 150,
    variant: Variant = "paper",
) -> Control:
    """Return EPO; `coef` 0 changes nothing. `steps` is the length of the run (training steps).

    State: sum and count of past turn-mean entropies (nats), and the step. Raises ValueError on a bad parameter.
    """
    require(0 <= coef < inf, "epo", "coef", coef, "0 or more")
    require(0 <= low < inf, "epo", "low", low, "0 or more")
    require(low < high < inf, "epo", "high", high, f"finite and above low, which is {low}")
    require(0 <= alpha < inf, "epo", "alpha", alpha, "0 or more")
    require(0 <= gamma < inf, "epo", "gamma", gamma, "0 or more")
    require(steps >= 2, "epo", "steps", steps, "2 or more")
    require(variant in ("paper", "code"), "epo", "variant", variant, "paper or code")
    mode: Literal["turn-mean", "token-mean"] = "turn-mean" if variant == "paper" else "token-mean"

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        weight = scale(mode, batch) / max(batch.n_slots, 1)
        penalties = [Penalty("epo-bonus", -coef * weight, _entropy)]
        if state["count"]:
            mean = state["sum"] / state["count"]
            phase = phase_weight(state["step"], steps, gamma, variant)
            outside = _distance if variant == "paper" else _step
            value = partial(outside, low * mean, high * mean)
            penalties.append(Penalty("epo-band", coef * alpha * phase * weight, value))
        return replace(terms, penalties=(*terms.penalties, *penalties))

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase == "update" and stats.last:
            total = state["sum"] + stats.entropy_nested
            state = {"sum": total, "count": state["count"] + 1, "step": state["step"] + 1}
        return state, Requests()

    return Control(
        name="epo",
        needs=Needs(entropy_grad=coef > 0),
        init=lambda: {"sum": 0.0, "count": 0, "step": 0},
        shape=shape,
        observe=observe,
    )


def phase_weight(step: int, steps: int, gamma: float, variant: Variant) -> float:
    """Return the band's weight at training step `step`: the paper's β_k, or what the released code multiplies by."""
    middle = steps // 2
    if variant == "paper":
        return 1 + exp(-gamma * step / middle)
    if step <= middle:
        return 1 - 0.2 * (1 - exp(-2 * step / middle))
    return 0.8 * exp(-3 * (step - middle) / middle)


def _entropy(current: Current, batch: Batch) -> Float[Tensor, "s"]:
    return current.entropy


def _distance(low: float, high: float, current: Current, batch: Batch) -> Float[Tensor, "s"]:
    return torch.relu(low - current.entropy) + torch.relu(current.entropy - high)


def _step(low: float, high: float, current: Current, batch: Batch) -> Float[Tensor, "s"]:
    inside = (low < current.entropy) & (current.entropy < high)
    return (~inside).to(current.entropy.dtype)
