"""Several controls as one: the parts act in order, and conflicts are refused.

Invariants: `chain` is associative, `chain()` is its identity, and a chain's state is the list of its controls' states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

from jaxtyping import Float
from torch import Tensor

from ...agents.engine import Sampling
from ...agents.trajectory import Event, Key, Spawn, Tree
from ..data.batch import Batch, Now, Terms
from .control import (
    Control,
    Epoch,
    Needs,
    Replay,
    Requests,
    Sets,
    State,
    Stats,
    Verdict,
    _leaves,
    scored,
)

_ALWAYS = ("sample", "select", "reward", "shape", "observe")  # hooks that every control has


def chain(*controls: Control, ordered: bool = False) -> Control:
    """Return all `controls` as one, run from left to right; its state is the list of theirs.

    Chains inside chains are opened, so grouping does not matter, and `chain()` changes nothing. Two controls that set
    the same thing are refused unless they are `ordered`, which lets the later one win. Raises ValueError: two controls
    set the same thing, or need different things under one name; or a part of the chain is given a state that is not the
    list of its parts' states.
    """
    if not ordered:
        for one, other in combinations(controls, 2):
            for what in sorted(one.sets & other.sets):
                first, second = (
                    next(leaf.name for leaf in _leaves(some) if what in leaf.sets)
                    for some in (one, other)
                )
                fix = f"remove one (in Python, chain(..., ordered=True) lets {second} win)"
                raise ValueError(f"{first} and {second} both set {what}; {fix}")
    parts = tuple(leaf for control in controls for leaf in _leaves(control))
    run = _Parts(parts)
    had = [
        name
        for name in ("order", "plan", "credit", "replay")
        if any(getattr(part, name) for part in parts)
    ]
    hooks: dict[str, Any] = {name: getattr(run, name) for name in (*_ALWAYS, *had)}
    return Control(
        name=run.name,
        needs=reduce(or_, (part.needs for part in parts), Needs()),
        sets=frozenset[Sets]().union(*(part.sets for part in parts)),
        init=lambda: [part.init() for part in parts],
        parts=parts,
        **hooks,
    )


class _Parts:
    """The controls of a chain, each run with its own state."""

    def __init__(self, parts: tuple[Control, ...]) -> None:
        self.parts = parts
        self.name = ",".join(part.name for part in parts)

    def each(self, state: State) -> list[tuple[Control, State]]:
        if not isinstance(state, list) or len(state) != len(self.parts):
            need = f"it must be a list of {len(self.parts)} states"
            raise ValueError(f"the state of the controls [{self.name}] is {state!r}; {need}")
        return list(zip(self.parts, state))

    def order(self, tasks: Epoch, state: State) -> Sequence[int]:
        for part, own in self.each(state):
            tasks = replace(tasks, order=tuple(part.order(tasks, own))) if part.order else tasks
        return tasks.order

    def sample(self, sampling: Sampling, state: State) -> Sampling:
        for part, own in self.each(state):
            sampling = part.sample(sampling, own)
        return sampling

    def plan(self, tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        return [
            spawn
            for part, own in self.each(state)
            if part.plan
            for spawn in part.plan(tree, event, key, own)
        ]

    def select(self, trees: Sequence[Tree], state: State) -> list[Verdict]:
        verdicts = [part.select(trees, own) for part, own in self.each(state)]
        return [max(votes) for votes in zip([Verdict.KEEP] * len(trees), *verdicts)]

    def reward(self, batch: Batch, state: State) -> Float[Tensor, "r"]:
        for part, own in self.each(state):
            batch = scored(part, batch, own)
        return batch.turns.score

    def credit(self, batch: Batch, state: State) -> Float[Tensor, "s"]:
        return next(
            part.credit(batch, own) for part, own in reversed(self.each(state)) if part.credit
        )

    def replay(self, state: State) -> Replay | None:
        return next(part.replay(own) for part, own in reversed(self.each(state)) if part.replay)

    def shape(self, terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        for part, own in self.each(state):
            terms = part.shape(terms, batch, now, own)
        return terms

    def observe(self, stats: Stats, state: State) -> tuple[State, Requests]:
        seen = [part.observe(stats, own) for part, own in self.each(state)]
        return [own for own, _ in seen], Requests().union(*(requests for _, requests in seen))
