"""Rules that fork paths: where a path may be forked, and by which measure of uncertainty."""

from __future__ import annotations

from collections import Counter
from itertools import count, takewhile
from math import log

from ...agents.engine import keyed_rng
from ...agents.trajectory import Event, Key, Spawn, Tree

SALT = 0xA890  # parts a rule's draws from those of tokens


def just_taken(tree: Tree, event: Event) -> list[int]:
    """Return the agent's turns of the path on which it has just taken one, that one last; else none."""
    turns, node = list[int](), event.node
    if (
        event.kind == "end" and tree.turns[node].role != "assistant"
    ):  # its context was full before the next
        return turns
    while node > 0:
        if tree.turns[node].role == "assistant":
            turns.append(node)
        node = tree.turns[node].parent
    return turns[::-1]


def answered(tree: Tree, turns: list[int]) -> int:
    return tree.turns[turns[-1]].parent


def decides(tree: Tree, turns: list[int]) -> bool:
    """Return whether the last of the agent's `turns` is the first that was drawn behind an answer to it."""
    return len(turns) > 1 and all(
        turn.parent != answered(tree, turns) for turn in tree.turns[: turns[-1]]
    )


def draws(chance: float, trials: int, key: Key) -> int:
    """Return how many of `trials` independent ones of this `chance` came true; they depend on `key` alone."""
    return int((keyed_rng((*key, SALT)).random(trials) < chance).sum())


def forks(node: int, copies: int) -> list[Spawn]:
    return [Spawn(node, n=copies)] if copies else []


def surprise(tree: Tree, node: int, first: int, tokens: int, vocabulary: int) -> float:
    """Return Δ: by how much more uncertain the beginning of turn `node` is than that of turn `first`."""
    return uncertainty(tree, node, tokens, vocabulary) - uncertainty(
        tree, first, tokens, vocabulary
    )


def uncertainty(tree: Tree, node: int, tokens: int, vocabulary: int) -> float:
    """Return the sum of the entropies (nats) of the first `tokens` tokens that were drawn of a turn, over ln V."""
    turn = tree.turns[node]
    return float(turn.entropy[turn.sampled][:tokens].astype(float).sum()) / log(vocabulary)


def forked_before(tree: Tree, turns: list[int]) -> int:
    """Return behind how many answers in a row, up to the last but one of the path's `turns`, the path was forked."""
    after = Counter(turn.parent for turn in tree.turns)
    return sum(
        1 for _ in takewhile(lambda node: after[tree.turns[node].parent] > 1, reversed(turns[1:-1]))
    )


def forks_in_a_row(tree: Tree, turns: int) -> int:
    """Return after how many turns in a row, up to the last but one of `turns`, the tree was forked on any path."""
    depth, behind = [0] * len(tree.turns), Counter[int]()
    for node, turn in enumerate(tree.turns):
        if turn.parent >= 0:
            depth[node] = depth[turn.parent] + (turn.role == "assistant")
            behind[turn.parent] += turn.role == "assistant"
    forked = {depth[node] for node, times in behind.items() if times > 1 and node}
    return next(number for number in count() if turns - 1 - number not in forked)
