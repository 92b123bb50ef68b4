"""Positive-advantage reweighting (arXiv 2511.05993): λ of the loss of tokens with A > 0, over time or by entropy.

Knob: objective (token weights). Positive tokens consume entropy; what they weigh decides how fast.

    entropy: λ ← clip(λ - delta if H < target else λ + delta, 0, 1)
    stage:   0 in the first half of the run, then linear from 0 to 1;    epoch: (e - 1)/(epochs - 1), e = 1 … epochs

Defaults: entropy-guided, target 0.2 nats, delta 0.05, λ_0 = 0; epochs 5: paper.
Evidence: B, paper text; which entropy it measures could not be established, here it is the rollout's token mean.
Deviations: the mean still counts all tokens. An epoch is the run's share. It sets no credit, so name it with grpo.
Off: least 1, below which λ never falls.
"""

from math import isfinite
from typing import Literal

import torch

from ...control.parameters import Count, NonNegative, Share, checked
from ..base import Batch, Control, Now, Requests, State, Stats, Terms, replace


@checked
def positive_reweighting(
    *,
    by: Literal["entropy", "stage", "epoch"] = "entropy",
    target: NonNegative = 0.2,
    delta: Share = 0.05,
    first: Share = 0.0,
    least: Share = 0.0,
    epochs: Count = 5,
    steps: Count = 150,
) -> Control:
    """Return the reweighting; `steps` is the length of the run. State: λ of the next step, and the one in use."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout" or not isfinite(stats.entropy):
            return state, Requests()
        if by != "entropy":
            return {"used": scheduled(by, stats.step, steps, epochs), "next": 0.0}, Requests()
        change = -delta if stats.entropy < target else delta
        return {
            "used": state["next"],
            "next": min(max(state["next"] + change, 0.0), 1.0),
        }, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        weighed = max(state["used"], least) * terms.weight
        return replace(terms, weight=torch.where(terms.advantage > 0, weighed, terms.weight))

    start = {"used": first, "next": first}
    return Control(name="positive-reweighting", init=start.copy, observe=observe, shape=shape)


def scheduled(by: str, step: int, steps: int, epochs: int) -> float:
    """Return λ of a 0-based step of a run."""
    if by == "stage":
        half = steps // 2
        return max(step - half, 0) / max(steps - half, 1)
    return min(step * epochs // steps, epochs - 1) / (epochs - 1) if epochs > 1 else 1.0
