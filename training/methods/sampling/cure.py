"""CURE (arXiv 2508.11016), the first stage: answers are begun again just before one of their most uncertain tokens.

Knob: sampling. New paths differ where a path could have gone another way; their common beginning is learned once.

    `initial` paths of the group begin at the prompt; of each, one of its `top` tokens of highest entropy is drawn, and
    the same number of paths begins just before it;   a token that paths share is learned from on the first of them

Defaults: initial a quarter of the group (4 of 16), top 20: released script, on DAPO.
Evidence: A, read in released code (bytedance/CURE, `get_critic_key_token_mask`).
Deviations: the first token of a turn does not count; that a token's text has two letters or more is not asked for.
Tokens of tools never count. The second stage is plain DAPO.
Off: initial the group.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from ....agents.engine import keyed_rng
from ....agents.trajectory import Turn
from ...control.parameters import Count, checked, require
from ..base import Batch, Control, Event, Key, Now, Spawn, State, Terms, Tree, Whole, replace

SALT = 0xC0E  # parts these draws from those of tokens
Place = tuple[int, int]  # a turn of the agent, and a token in it that is not its first
Choose = Callable[
    [Tree, list[int], Key], list[Place]
]  # of a path's turns; the key is the path's own


@checked
def cure(*, group: Count = 16, initial: Whole = 0, top: Count = 20) -> Control:
    """Return CURE's branching; `group` is the run's, and `initial` 0 stands for a quarter of it."""
    require(
        initial <= group,
        "cure",
        "initial",
        initial,
        f"0 (a quarter of the group) to {group}, the group",
    )

    def choose(tree: Tree, turns: list[int], key: Key) -> list[Place]:
        places = ranked(tree, turns, lambda turn: turn.entropy)[:top]
        return [places[int(keyed_rng((*key, SALT)).integers(len(places)))]] if places else []

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        nobody = torch.full((int(batch.token.max()) + 1,), batch.n_paths)
        owner = nobody.scatter_reduce(0, batch.token, batch.path, "amin")
        return replace(
            terms, weight=torch.where(batch.path == owner[batch.token], terms.weight, 0.0)
        )

    first = initial or max(group // 4, 1)
    plan = begin_again(group, first, (group - first) // first, choose) if first < group else None
    return Control(name="cure", sets=frozenset({"branching"}), plan=plan, shape=shape)


def begin_again(
    group: int, initial: int, copies: int, choose: Choose
) -> Callable[[Tree, Event, Key, State], list[Spawn]]:
    """Return a plan: when `initial` paths have ended, `copies` new ones begin at each place chosen on each of them."""

    def plan(tree: Tree, event: Event, key: Key, state: State) -> list[Spawn]:
        if event.kind == "start":
            return [Spawn(0, n=initial)]
        if event.kind != "idle" or event.budget != group - initial or not copies:
            return []
        paths = enumerate(spoken(tree))
        return [
            Spawn(node, at, n=copies)
            for path, turns in paths
            for node, at in choose(tree, turns, (*key, path))
        ]

    return plan


def spoken(tree: Tree) -> list[list[int]]:
    """Return the agent's turns of each path of a tree that has no forks yet, in the order in which they began."""
    paths = dict[int, list[int]]()  # by the path's last turn
    for node, turn in enumerate(tree.turns):
        before = paths.pop(turn.parent, [])
        paths[node] = [*before, node] if turn.role == "assistant" else before
    return sorted(turns for turns in paths.values() if turns)


def ranked(tree: Tree, nodes: list[int], of: Callable[[Turn], NDArray[np.float32]]) -> list[Place]:
    """Return the drawn tokens of a path that are not the first of their turn, those with most of a statistic first."""
    turns = [(node, tree.turns[node]) for node in nodes]
    drawn = [
        (node, int(at), of(turn)[at])
        for node, turn in turns
        for at in turn.sampled.nonzero()[0]
        if at
    ]
    return [(node, at) for node, at, _ in sorted(drawn, key=lambda one: -one[2])]
