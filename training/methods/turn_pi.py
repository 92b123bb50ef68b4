"""Turn-level PI control of entropy (ours; built from EntroPIC's controller, arXiv 2511.15248).

Knob: objective. Every agent turn by its index, or every part of a turn (think, call, answer), has a target of its own
for its entropy, and a PI controller of its own that holds it there. One number for a whole rollout cannot: turns differ
in entropy several times over, and it lets one collapse while another explodes.

    e_t = H_t - target_t, less what lies inside the band        H_t: token mean of turn t in this step's rollout
    α_t = clip(kp·e_t + ki·Σ e_t, -1, 1)                        the sum stays within ±1 / ki, and counts this step
    act "bonus":  L ← L + strength·α_t·H on the tokens of turn t (a bonus where entropy is too low)
    act "weight": tokens of turn t weigh 1 + α_t where A > 0 and 1 - α_t where A < 0 (EntroPIC's full form)

Axis "rollout" is that one number, for comparison: a single controller, of the mean over all tokens (EntroPIC's).

Defaults: kp 1, ki 0.01 (EntroPIC); strength 0.01 per nat; target 0: what the turn had in its first `warm` = 5 steps,
times `keep` = 1; band 0. Without a released peer these are our choices.
Evidence: none outside turngym; its test has it on a plant whose turns drift apart.
Deviations: EntroPIC's integral is updated once a step, from the whole rollout, and is kept in checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from ...agents.trajectory import PHASES
from ..columns import Batch, Now, Terms
from ..control import Control, Needs, Requests, State, Stats
from ..parameters import Count, NonNegative, Positive, checked

Axis = Literal["turn", "phase", "rollout"]
WHOLE = "rollout"  # the name of the one controller of that axis


@checked
def turn_pi(
    *,
    target: NonNegative = 0.0,
    band: NonNegative = 0.0,
    kp: NonNegative = 1.0,
    ki: NonNegative = 0.01,
    strength: NonNegative = 0.01,
    warm: Count = 5,
    keep: Positive = 1.0,
    act: Literal["bonus", "weight"] = "bonus",
    axis: Axis = "turn",
) -> Control:
    """Return a controller for each turn or phase, or one for all; kp and ki 0 change nothing.

    Args:
        target: Nats, for all; 0 takes each one's own entropy of its first `warm` steps, times `keep`.
        band: Share of the target by which entropy may lie off it without an error.
        kp: Proportional gain, per nat.
        ki: Integral gain, per nat and step.
        strength: Largest bonus or penalty per nat.
        warm: Steps in which a turn's own target is measured and nothing is controlled.
        keep: Share of the measured entropy that is the target.
        act: What the controller moves.
        axis: What has a controller of its own.

    State: by turn or phase, what was measured at first (sum, count), the error and its integral.
    """

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout":
            return state, Requests()
        turns = {str(turn): value for turn, value in enumerate(stats.entropy_turns)}
        seen = {"turn": turns, "phase": stats.entropy_phases, "rollout": {WHOLE: stats.entropy}}[axis]
        return {**state, **{name: step(state.get(name), value) for name, value in seen.items()}}, Requests()

    def step(own: Mapping[str, float] | None, entropy: float) -> Mapping[str, float]:
        """Return what a turn's controller remembers after a step in which its entropy was `entropy`."""
        own = own or {"sum": 0.0, "count": 0, "integral": 0.0, "error": 0.0}
        if not isfinite(entropy):
            return {**own, "error": 0.0}
        if not target and own["count"] < warm:
            return {**own, "sum": own["sum"] + entropy, "count": own["count"] + 1}
        aim = target or keep * own["sum"] / own["count"]
        error = outside(entropy, aim, band)
        most = 1 / ki if ki else 0.0
        return {**own, "integral": max(-most, min(own["integral"] + error, most)), "error": error}

    def alpha(own: Mapping[str, float] | None) -> float:
        return max(-1.0, min(kp * own["error"] + ki * own["integral"], 1.0)) if own else 0.0

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        names, label = controlled(axis, batch)
        push = terms.advantage.new_tensor([alpha(state.get(name)) for name in names])[label]
        if act == "bonus":
            return replace(terms, entropy_coef=terms.entropy_coef - strength * push)
        return replace(terms, weight=terms.weight * (1 + push * terms.advantage.sign()))

    moves = kp > 0 or ki > 0
    return Control(
        name="turn-pi",
        needs=Needs(entropy_grad=act == "bonus" and strength > 0 and moves),
        init=dict,
        observe=observe,
        shape=shape,
    )


def controlled(axis: Axis, batch: Batch) -> tuple[Sequence[str], Int[Tensor, "s"]]:
    """Return the names of what has a controller, and of each slot which of them it is."""
    if axis == "turn":
        return [str(turn) for turn in range(int(batch.turns.turn.max()) + 1)], batch.turn
    return (PHASES, batch.phase) if axis == "phase" else ((WHOLE,), torch.zeros_like(batch.path))


def outside(entropy: float, aim: float, band: float) -> float:
    """Return by how many nats `entropy` lies above (below, where negative) the band of ±`band`·`aim` around `aim`."""
    high, low = aim * (1 + band), aim * (1 - band)
    return max(entropy - high, 0.0) + min(entropy - low, 0.0)
