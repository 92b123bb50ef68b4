"""REPO and ADAPO (Entropy-Preserving Reinforcement Learning, arXiv 2603.11682): entropy kept where it began.

Knob: advantage; clip. Entropy falls as advantages go along with log-probabilities; either their tie is cut, or the
bounds of the clip give way where entropy is too low.

    repo:   A ← A - β·(logp - mean logp);             β ← clip(β + rate·e, 0, most),        e = 1 - H/(keep·H_0)
    adapo:  ratio in [1 - clip_low, 1 + ε];           ε ← clip(ε + rate·e, least, most)

Defaults: keep 1, rate 0.05, most 0.5; clip_low 0.2, least 0.2: ours.
Evidence: C. What is changed and why is in the abstract; formulas and controllers could not be established.
Deviations: H is the rollout's token mean, H_0 that of the first. Paths that earned no score take no part. Name them
behind a credit.
Off: repo with most 0; adapo with least and most 0.2.
"""

from collections.abc import Callable
from math import isfinite

import torch

from ...control.parameters import Bound, NonNegative, Positive, checked, require
from ...loss.credit import earned
from ...loss.objective import CLIP
from ...loss.surrogates import hold
from ..base import Batch, Control, Now, Requests, State, Stats, Terms, replace


@checked
def repo(*, keep: Positive = 1.0, rate: NonNegative = 0.05, most: NonNegative = 0.5) -> Control:
    """Return the decorrelation; β is per nat. State: the first entropy (nats), and β."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned, beta = earned(batch), min(state["value"], most)
        if not learned.any():
            return terms
        away = torch.where(learned, batch.logp_old - batch.logp_old[learned].mean(), 0.0)
        return replace(terms, advantage=terms.advantage - beta * away)

    start = {"first": 0.0, "value": 0.0}
    return Control(
        name="repo", init=start.copy, observe=integrator(keep, rate, 0.0, most), shape=shape
    )


@checked
def adapo(
    *,
    clip_low: Bound = CLIP,
    least: NonNegative = 0.2,
    most: NonNegative = 0.5,
    keep: Positive = 1.0,
    rate: NonNegative = 0.05,
) -> Control:
    """Return the clip. State: the first entropy (nats), and the upper bound."""
    require(least <= most, "adapo", "least", least, f"at most most, {most:g}")

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return hold(terms, clip_low, min(max(state["value"], least), most))

    start, observe = {"first": 0.0, "value": least}, integrator(keep, rate, least, most)
    return Control(
        name="adapo", sets=frozenset({"clip"}), init=start.copy, observe=observe, shape=shape
    )


def integrator(
    keep: float, rate: float, least: float, most: float
) -> Callable[[Stats, State], tuple[State, Requests]]:
    """Return what raises a value while entropy is below its target, and lowers it above."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout" or not isfinite(stats.entropy):
            return state, Requests()
        first = state["first"] or stats.entropy
        moved = state["value"] + rate * (1 - stats.entropy / max(keep * first, 1e-9))
        return {"first": first, "value": min(max(moved, least), most)}, Requests()

    return observe
