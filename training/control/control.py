"""A control: one method as transformations of sampling and of the data of the loss.

Hooks in the order of a step: `order`, `sample`, `plan` (rollout), `select`, `reward`, `credit` (learning signal),
`shape` (once per optimizer step), `observe`, and after the last optimizer step `replay`. Each is pure, gets the
control's own state last and is optional.
Invariant: a state is JSON data and is all that a control remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from math import nan
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...agents.engine import Sampling
from ...agents.trajectory import Event, Key, Spawn, Tree
from ..data.batch import Batch, Column, Now, Terms
from ..metrics.actions import Acted
from ..model.chunked_head import Functional

State = Any  # JSON data: saved and loaded with every checkpoint
MOST = 64  # entries of a list or table of a state that are metrics
Sets = Literal[
    "credit",
    "clip",
    "surrogate",
    "aggregation",
    "branching",
    "replay",
    "temperature",
    "top-p",
    "top-k",
    "max-tokens",
]


class Verdict(IntEnum):
    """What becomes of a tree; of several verdicts the greatest holds."""

    KEEP = 0  # learn from it
    DROP = 1  # leave it out
    MORE = 2  # leave it out and draw another task in its place


class Request(Enum):
    """What a control may ask of the loop after a step."""

    RESET_REFERENCE = "reset_reference"  # the reference becomes the current policy
    RESET_OPTIMIZER = "reset_optimizer"
    STOP = "stop"


Requests = frozenset[Request]


@dataclass(frozen=True)
class Stats:
    """What a step measured, over all its slots, in nats; NaN where it did not. Entropies are those before an update."""

    step: int  # 0-based training step
    phase: Literal["rollout", "update"]  # after the rollout, or after an optimizer step
    valid: float = nan  # success of the newest validation
    last: bool = True  # the last optimizer step of the training step
    entropy: float = nan  # token mean
    entropy_turns: tuple[float, ...] = ()  # token mean by agent turn
    entropy_phases: Mapping[str, float] = field(
        default_factory=dict
    )  # token mean by `agents.trajectory.PHASES`
    entropy_nested: float = nan  # turn mean (EPO, Eq. 2)
    entropy_sampled: float = nan  # -logp of the drawn tokens, token mean
    reward: float = nan
    success: float = nan
    kl: float = nan  # k3 to the reference
    clip_low: float = nan  # fraction of slots held by the lower bound
    clip_high: float = nan
    scores: Mapping[Key, float] = field(
        default_factory=dict
    )  # of the paths learned from: (seed, step, task, branch)
    acted: Mapping[Key, tuple[Acted, ...]] = field(default_factory=dict)  # the turns of these paths
    columns: Mapping[str, Mapping[Key, float]] = field(
        default_factory=dict
    )  # `Needs.columns` of these paths
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Needs:
    """What must be computed for a control; nothing is computed that no control needs. `|` joins two."""

    logp_ref: bool = False
    entropy_grad: bool = False
    now: bool = False  # the current policy before later optimizer steps of an update: one more forward pass each
    functionals: Mapping[str, Functional] = field(
        default_factory=dict
    )  # run inside the chunked head, into `extras`
    modules: Mapping[str, Callable[[int], nn.Module]] = field(
        default_factory=dict
    )  # trained too, see `optimizer`
    columns: Mapping[str, Column] = field(
        default_factory=dict
    )  # of paths, made from whole trees, into `Turns.columns`
    temperature: float | None = (
        None  # of all the learner's log-probabilities; None: that at which a token was drawn
    )

    def __or__(self, other: Needs) -> Needs:
        """Return the needs of both. Raises ValueError where one name means two things."""
        asked = {one.temperature for one in (self, other)} - {None}
        if len(asked) > 1:
            raise ValueError(
                f"two controls need log-probabilities at temperatures {sorted(map(str, asked))}; use one"
            )
        flags = ("logp_ref", "entropy_grad", "now")
        both: dict[str, Any] = {name: getattr(self, name) or getattr(other, name) for name in flags}
        for kinds in ("functionals", "modules", "columns"):
            ours, theirs = getattr(self, kinds), getattr(other, kinds)
            for name in ours.keys() & theirs.keys():
                if ours[name] is not theirs[name]:
                    raise ValueError(
                        f"two controls need different {kinds} called {name!r}; rename one of them"
                    )
            both[kinds] = {**ours, **theirs}
        for name in both["functionals"].keys() & both["modules"].keys():
            raise ValueError(
                f"{name!r} is a functional of one control and a module of another; rename one of them"
            )
        return Needs(temperature=asked.pop() if asked else None, **both)


@dataclass(frozen=True, eq=False)
class Epoch:
    """The tasks of a pass through the task set, in the order in which they would come."""

    order: tuple[int, ...]
    text: Callable[[int], str]  # the prompt of a task


@dataclass(frozen=True, eq=False)
class Replay:
    """Paths of earlier steps to learn from once more, in an optimizer step of its own; the journals have them."""

    advantage: Mapping[Key, float]  # of each path, by (seed, step, task, branch)
    shape: Callable[
        [Terms, Batch, Now], Terms
    ]  # of the terms that these begin; no other control shapes them


@dataclass(frozen=True, eq=False, kw_only=True)
class Control:
    """One method. Parts left out change nothing; `shape` and the others must not modify their arguments.

    Of several controls `plan` adds up, `select` takes the greatest verdict, `credit` and `replay` are those of the last
    one that has them, and the other parts run one after another. `order` is asked before each step, so what it answers
    must not change within a pass, if each task is to come once in it.
    """

    name: str
    needs: Needs = Needs()
    sets: frozenset[Sets] = frozenset()  # what it replaces rather than adds to or multiplies
    init: Callable[[], State] = dict
    order: Callable[[Epoch, State], Sequence[int]] | None = (
        None  # of all tasks or some; how many depends on the state
    )
    sample: Callable[[Sampling, State], Sampling] = lambda sampling, state: sampling
    plan: Callable[[Tree, Event, Key, State], list[Spawn]] | None = None
    select: Callable[[Sequence[Tree], State], list[Verdict]] = lambda trees, state: (
        [Verdict.KEEP] * len(trees)
    )
    reward: Callable[[Batch, State], Float[Tensor, "r"]] = lambda batch, state: (
        batch.turns.score
    )  # the new one
    credit: Callable[[Batch, State], Float[Tensor, "s"]] | None = None  # the advantage of each slot
    shape: Callable[[Terms, Batch, Now, State], Terms] = lambda terms, batch, now, state: terms
    observe: Callable[[Stats, State], tuple[State, Requests]] = lambda stats, state: (
        state,
        Requests(),
    )
    replay: Callable[[State], Replay | None] | None = None
    parts: tuple[Control, ...] | None = None  # what a chain is made of; None for a single control


def numbers_of(control: Control, state: State) -> dict[str, float]:
    """Return the numbers of a control's state as metrics `control/METHOD/NAME`; of long lists and tables the length."""
    found = dict[str, float]()

    def add(name: str, value: Any) -> None:
        if isinstance(value, bool | int | float):
            found[name] = float(value) if isinstance(value, float) else int(value)
        elif isinstance(value, list | dict) and len(value) > MOST:
            found[f"{name}/entries"] = len(value)
        elif isinstance(value, list | dict):
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                add(f"{name}/{key}", inner)

    parts = _leaves(control)
    for part, own in zip(parts, state if control.parts is not None else [state], strict=True):
        add(f"control/{part.name}", own)
    return found


def scored(control: Control, batch: Batch, state: State) -> Batch:
    """Return `batch` with the scores that the control's reward leaves."""
    return replace(batch, turns=replace(batch.turns, score=control.reward(batch, state)))


def advantages(control: Control, batch: Batch, state: State) -> Float[Tensor, "s"]:
    """Return each slot's credit for the score that the reward leaves, or that score; 0 where a path earned none."""
    batch = scored(control, batch, state)
    credit = (
        batch.turns.score[batch.row] if control.credit is None else control.credit(batch, state)
    )
    return torch.where(batch.turns.rewarded[batch.row], credit, 0.0)


def _leaves(control: Control) -> tuple[Control, ...]:
    return (control,) if control.parts is None else control.parts
