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
from 1 to 0.04. Its history by turn index, which counts finished environments, is not reproduced.
Note: with alpha·β_k ≤ 1 the band only weakens the bonus above it, so nothing here pushes entropy down.
"""

from functools import partial
from math import exp

import torch

from ...control.parameters import NonNegative, Variant, checked, require
from ...loss.aggregation import scale
from ..base import (
    Batch,
    Control,
    Current,
    Needs,
    Now,
    Penalty,
    Requests,
    Several,
    Slots,
    State,
    Stats,
    Terms,
    replace,
)


@checked
def epo(
    *,
    coef: NonNegative = 0.001,
    low: NonNegative = 0.0,
    high: NonNegative = 2.0,
    alpha: NonNegative = 0.1,
    gamma: NonNegative = 3.0,
    steps: Several = 150,
    variant: Variant = "paper",
) -> Control:
    """Return EPO; `coef` 0 changes nothing. `steps` is the length of the run (training steps).

    State: sum and count of past turn-mean entropies (nats), and the step.
    """
    require(low < high, "epo", "high", high, f"above low, which is {low}")
    paper = variant == "paper"
    outside = _distance if paper else _leaves

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        weight = scale("turn-mean" if paper else "token-mean", batch) / max(batch.n_slots, 1)
        penalties = [
            Penalty("epo-bonus", -coef * weight, lambda current, batch, terms: current.entropy)
        ]
        if state["count"]:
            mean, step = state["sum"] / state["count"], state["step"]
            band = partial(outside, low * mean, high * mean)
            phase = phase_weight(step, steps, gamma) if paper else code_phase_weight(step, steps)
            penalties.append(Penalty("epo-band", coef * alpha * phase * weight, band))
        return replace(terms, penalties=(*terms.penalties, *penalties))

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase == "update" and stats.last:
            total = state["sum"] + stats.entropy_nested
            state = {"sum": total, "count": state["count"] + 1, "step": state["step"] + 1}
        return state, Requests()

    start = {"sum": 0.0, "count": 0, "step": 0}
    return Control(
        name="epo",
        needs=Needs(entropy_grad=coef > 0),
        init=start.copy,
        shape=shape,
        observe=observe,
    )


def phase_weight(step: int, steps: int, gamma: float) -> float:
    """Return β_k, the weight of the band in training step `step`."""
    return 1 + exp(-gamma * step / (steps // 2))


def code_phase_weight(step: int, steps: int) -> float:
    """Return what the released code multiplies the band by."""
    middle = steps // 2
    return (
        1 - 0.2 * (1 - exp(-2 * step / middle))
        if step <= middle
        else 0.8 * exp(-3 * (step - middle) / middle)
    )


def _distance(low: float, high: float, current: Current, batch: Batch, terms: Terms) -> Slots:
    return torch.relu(low - current.entropy) + torch.relu(current.entropy - high)


def _leaves(low: float, high: float, current: Current, batch: Batch, terms: Terms) -> Slots:
    inside = (low < current.entropy) & (current.entropy < high)
    return (~inside).to(current.entropy.dtype)
