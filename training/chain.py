"""Joining controls: a chain is a control, so whatever takes one method takes any number of them.

Invariant: `chain` is associative and `chain()` is its identity; a chain's state is the list of its controls' states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import combinations
from operator import or_

from jaxtyping import Float
from torch import Tensor

from ..agents.branching import Event, Key, Spawn
from ..agents.trajectory import Tree
from .columns import Batch, Now, Terms
from .control import Control, Knobs, Needs, Replay, Requests, Sets, State, Stats, Verdict


def chain(*controls: Control, ordered: bool = False) -> Control:
    """Return all `controls` as one, run from left to right; its state is the list of theirs.

    Chains inside chains are opened, so grouping does not matter, and `chain()` changes nothing. Two controls that set
    the same thing are refused unless they are `ordered`, which lets the later one win.

    Raises:
        ValueError: Two controls set the same thing, or need different things under one name; or a part of the chain is
            given a state that is not the list of its parts' states.
    """
    if not ordered:
        for one, other in combinations(controls, 2):
            _refuse_conflict(one, other)
    parts = tuple(leaf for control in controls for leaf in _leaves(control))
    run = _Parts(parts)
    return Control(
        name=run.name,
        needs=reduce(or_, (part.needs for part in parts), Needs()),
        sets=frozenset[Sets]().union(*(part.sets for part in parts)),
        init=lambda: [part.init() for part in parts],
        sample=run.sample,
        plan=run.plan if any(part.plan for part in parts) else None,
        select=run.select,
        reward=run.reward,
        credit=run.credit if any(part.credit for part in parts) else None,
        shape=run.shape,
        observe=run.observe,
        replay=run.replay if any(part.replay for part in parts) else None,
        parts=parts,
    )


def _leaves(control: Control) -> tuple[Control, ...]:
    return (control,) if control.parts is None else control.parts


def _refuse_conflict(one: Control, other: Control) -> None:
    for what in sorted(one.sets & other.sets):
        first, second = (next(leaf for leaf in _leaves(part) if what in leaf.sets) for part in (one, other))
        raise ValueError(
            f"{first.name} and {second.name} both set {what}; remove one, or pass ordered=True to let {second.name} win"
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

    def sample(self, knobs: Knobs, state: State) -> Knobs:
        for part, own in self.each(state):
            knobs = part.sample(knobs, own)
        return knobs

    def plan(self, tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        return [spawn for part, own in self.each(state) if part.plan for spawn in part.plan(tree, event, key, own)]

    def select(self, trees: Sequence[Tree], state: State) -> list[Verdict]:
        verdicts = [part.select(trees, own) for part, own in self.each(state)]
        return [max(votes) for votes in zip([Verdict.KEEP] * len(trees), *verdicts)]

    def reward(self, batch: Batch, state: State) -> Float[Tensor, "r"]:
        for part, own in self.each(state):
            batch = replace(batch, turns=replace(batch.turns, score=part.reward(batch, own)))
        return batch.turns.score

    def credit(self, batch: Batch, state: State) -> Float[Tensor, "s"]:
        *_, last = (partial(part.credit, batch, own) for part, own in self.each(state) if part.credit)
        return last()

    def replay(self, state: State) -> Replay | None:
        *_, last = (partial(part.replay, own) for part, own in self.each(state) if part.replay)
        return last()

    def shape(self, terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        for part, own in self.each(state):
            terms = part.shape(terms, batch, now, own)
        return terms

    def observe(self, stats: Stats, state: State) -> tuple[State, Requests]:
        seen = [part.observe(stats, own) for part, own in self.each(state)]
        return [own for own, _ in seen], Requests().union(*(requests for _, requests in seen))
