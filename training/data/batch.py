"""The data of learning as flat columns: a slot per sampled token of a path, a row per agent turn of a path.

Invariant: the slots of a path follow each other, and micro-batches are whole paths. Of the classes here only `Current`
carries gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...agents.trajectory import Tree
from ...envs import Outcome

OUTCOMES = tuple(Outcome)  # `Turns.outcome` is an index in it


@dataclass(frozen=True, eq=False)
class Turns:
    """The agent turns of all paths of a rollout, one row each `[r]`, also those of which no token was sampled."""

    task: Int[Tensor, "r"]  # index in the task set
    group: Int[Tensor, "r"]  # equal where paths are compared with each other
    path: Int[Tensor, "r"]
    node: Int[Tensor, "r"]  # equal where paths share the turn
    turn: Int[Tensor, "r"]  # 0-based, counts the agent's turns of the path
    anchor: Int[Tensor, "r"]  # equal where the agent faced the same observation
    score: Float[Tensor, "r"]  # of the whole path; NaN where it earned none
    reward: Float[Tensor, "r"]  # of this turn
    outcome: Int[Tensor, "r"]  # of the path
    valid: Float[Tensor, "r"] | None = (
        None  # of the action: 1 or 0, NaN where the environment does not say
    )
    choice: Int[Tensor, "r"] | None = (
        None  # equal where turns came down to the same, see `choice_of`
    )
    columns: Mapping[str, Float[Tensor, "r"]] = field(
        default_factory=dict, kw_only=True
    )  # of paths: `Needs.columns`

    @property
    def rewarded(self) -> Bool[Tensor, "r"]:
        """Return which rows belong to a path that earned a score: an infrastructure failure is not a reward of 0."""
        return (self.outcome == OUTCOMES.index(Outcome.DONE)) | (
            self.outcome == OUTCOMES.index(Outcome.TRUNCATED)
        )


class At(NamedTuple):
    """Which optimizer step it is: draws of a control depend on this alone."""

    seed: int = 0
    step: int = 0  # 0-based training step
    steps: int = 1  # of the run
    update: int = 0  # 0-based optimizer step of the training step


@dataclass(frozen=True, eq=False)
class Batch:
    """The slots `[s]` of one optimizer step, or of a micro-batch of it, as they were at the start of the update.

    Log-probabilities and entropies are in nats; `entropy` is that of the full vocabulary at temperature 1. Raises
    ValueError where paths are not in ascending order.
    """

    logp_old: Float[Tensor, "s"]
    entropy: Float[Tensor, "s"]
    logp_roll: Float[Tensor, "s"]  # the sampler's own
    path: Int[Tensor, "s"]  # 0 … n_paths - 1
    row: Int[Tensor, "s"]  # in `turns`
    token: Int[Tensor, "s"]  # equal where paths share the token
    share: Float[Tensor, "s"]  # 1 / paths through the token
    phase: Int[Tensor, "s"]  # index in `agents.trajectory.PHASES`
    kind: Int[Tensor, "s"]  # index in `agents.trajectory.CLASSES`
    n_paths: int  # also counts paths without a slot
    turns: Turns  # always those of the whole rollout
    logp_ref: Float[Tensor, "s"] | None = None
    extras: Mapping[str, Float[Tensor, "s ..."]] = field(
        default_factory=dict
    )  # results of `Needs.functionals`
    at: At = At()

    def __post_init__(self) -> None:
        if bool((self.path.diff() < 0).any()):
            raise ValueError(
                "Batch.path is not ascending; put the slots of a path next to each other"
            )

    @property
    def n_slots(self) -> int:
        """Return the number of slots (tokens)."""
        return self.path.numel()

    @property
    def turn(self) -> Int[Tensor, "s"]:
        """Return each slot's 0-based agent turn within its path."""
        return self.turns.turn[self.row]

    def span(self, paths: range) -> slice:
        """Return where the slots of contiguous `paths` are. Raises ValueError on paths the batch does not have."""
        if paths.step != 1 or not 0 <= paths.start <= paths.stop <= self.n_paths:
            raise ValueError(
                f"paths is {paths}; a span takes contiguous paths out of range({self.n_paths})"
            )
        ends = torch.tensor(
            [paths.start, paths.stop], dtype=self.path.dtype, device=self.path.device
        )
        start, stop = torch.searchsorted(self.path, ends).tolist()
        return slice(start, stop)

    def slice(self, paths: range) -> Batch:
        """Return contiguous `paths` as a batch of their own, renumbered from 0; `row` and `turns` stay as they are."""
        span = self.span(paths)
        columns = _cut(vars(self), span)
        columns["path"] = columns["path"] - paths.start
        return replace(self, **columns, n_paths=len(paths), extras=_cut(self.extras, span))


@dataclass(frozen=True, eq=False)
class Current:
    """The policy being trained, with gradient, on the slots of a micro-batch. Nats."""

    logp: Float[Tensor, "s"]
    entropy: Float[Tensor, "s"]  # has a gradient only where a control needs it
    extras: Mapping[str, Float[Tensor, "s ..."]] = field(default_factory=dict)


class Now(Current):
    """The policy being trained, without gradient, on all slots of the optimizer step. Nats."""

    @classmethod
    def at_start(cls, batch: Batch) -> Now:
        """Return what holds before the first optimizer step of an update: the policy still is the old one."""
        return cls(batch.logp_old, batch.entropy, batch.extras)


@dataclass(frozen=True, eq=False)
class Penalty:
    """An extra term Σ_s coef · value of the loss; mask, mean and sign are all in `coef`, which has no gradient."""

    name: str
    coef: Float[Tensor, "s"]
    value: Surrogate


@dataclass(frozen=True, eq=False)
class Terms:
    """What the loss is made of, per slot, without gradient. Add to `*_coef`, multiply `weight` and `scale`."""

    advantage: Float[Tensor, "s"]
    weight: Float[Tensor, "s"]  # of the policy term alone
    clip_low: Float[
        Tensor, "s"
    ]  # the ratio is held in [1 - clip_low, 1 + clip_high]; inf holds nothing
    clip_high: Float[Tensor, "s"]
    kl_coef: Float[Tensor, "s"]
    entropy_coef: Float[Tensor, "s"]
    scale: Float[Tensor, "s"]  # of the whole slot; 1 is the token mean
    surrogate: Surrogate
    penalties: tuple[Penalty, ...] = ()
    extras: Mapping[str, Float[Tensor, "s ..."]] = field(
        default_factory=dict
    )  # what a surrogate or penalty reads

    def slice(self, span: slice) -> Terms:
        """Return the terms of a span of slots, as `Batch.span` gives it."""
        penalties = tuple(replace(penalty, coef=penalty.coef[span]) for penalty in self.penalties)
        return replace(
            self, **_cut(vars(self), span), penalties=penalties, extras=_cut(self.extras, span)
        )


Surrogate = Callable[[Current, Batch, Terms], Float[Tensor, "s"]]
"""The policy term per slot, to be maximised, or a penalty's value; it may reduce over whole paths, never across."""


Column = Callable[[Tree], Sequence[float]]  # a number for each leaf of a tree, made of all of them


def _cut(columns: Mapping[str, Any], span: slice) -> dict[str, Any]:
    return {name: column[span] for name, column in columns.items() if isinstance(column, Tensor)}
