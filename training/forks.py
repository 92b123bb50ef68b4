"""Where a rollout branched, and what the branches earned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import isfinite, nan
from statistics import fmean
from typing import Literal

from ..agents.trajectory import Leaf, Tree

Kind = Literal["behind", "inside"]  # an answer of the environment, or a turn of the agent


def forks(trees: Sequence[Tree]) -> dict[str, float | int]:
    """Return branch statistics; paths that begin at the prompt are no forks.

    probes: paths that are grown to be looked at and not learned from
    forks, forks_behind, forks_inside: paths forked off others, all, behind an answer and inside a turn
    forks_turn/T: those whose first turn of their own is the agent's turn T, counted from 0; absent where there is none
    forks_gain, and the same with these ends: score less that of the path forked from, mean over forks where both are
        learned from; NaN, or absent for a turn, where there is none
    """
    counted = dict.fromkeys(("forks", "forks_behind", "forks_inside"), 0)
    gains: dict[str, list[float]] = defaultdict(list)
    for turn, kind, gain in sorted((fork for tree in trees for fork in _forks(tree)), key=lambda fork: fork[0]):
        for end in ("", f"_{kind}", f"_turn/{turn}"):
            counted[f"forks{end}"] = counted.get(f"forks{end}", 0) + 1
            if isfinite(gain):
                gains[f"forks_gain{end}"].append(gain)
    return {
        "probes": sum(not leaf.trained for tree in trees for leaf in tree.leaves),
        **counted,
        **dict.fromkeys(("forks_gain", "forks_gain_behind", "forks_gain_inside"), nan),
        **{name: fmean(values) for name, values in gains.items()},
    }


def _forks(tree: Tree) -> Iterator[tuple[int, Kind, float]]:
    """Yield of each fork its turn, its kind and its gain."""
    scores = {leaf.branch: leaf.score for leaf in tree.leaves if leaf.learned}
    for leaf in tree.leaves:
        if leaf.parent >= 0:
            gain = scores.get(leaf.branch, nan) - scores.get(leaf.parent, nan)
            yield _turn(tree, leaf), "inside" if leaf.token else "behind", gain


def _turn(tree: Tree, leaf: Leaf) -> int:
    """Return how many whole turns of the agent the fork `leaf` shares."""
    node, count = tree.turns[leaf.fork].parent if leaf.token else leaf.fork, 0
    while node >= 0:
        count += tree.turns[node].role == "assistant"
        node = tree.turns[node].parent
    return count
