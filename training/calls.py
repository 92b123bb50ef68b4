"""What the agent did with its tools in a rollout: how often it called, with what success, and how differently."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from ..agents.trajectory import Leaf, Tree, Turn


def calls(trees: Sequence[Tree]) -> dict[str, float | int]:
    """Return call statistics; NaN where there is nothing that they could be a share of.

    tool_calls: calls made, malformed ones among them; that of a shared turn is one
    tool_ok: share of them with the status ok
    tool_share: share of the agent's turns that call
    tool_calls_path: calls on a path that is learned from, mean over these paths
    distinct_calls: different sequences of (tool, tokens of the call) in a group, summed over groups, per such path
    used_tool: share of all paths whose answer is a result that a tool gave
    """
    turns = [turn for tree in trees for turn in tree.turns if turn.role == "assistant"]
    made = [turn.info["tool_status"] for turn in turns if "tool_status" in turn.info]
    leaves = [leaf for tree in trees for leaf in tree.leaves]
    groups = [[_sequence(tree, leaf) for leaf in tree.leaves if leaf.learned] for tree in trees]
    paths = sum(map(len, groups))
    on_paths = sum(len(sequence) for group in groups for sequence in group)
    return {
        "tool_calls": len(made),
        "tool_ok": share(sum(status == "ok" for status in made), len(made)),
        "tool_share": share(len(made), len(turns)),
        "tool_calls_path": share(on_paths, paths),
        "distinct_calls": share(sum(len(set(group)) for group in groups), paths) if on_paths else nan,
        "used_tool": share(sum(bool(leaf.info.get("used_tool")) for leaf in leaves), len(leaves)),
    }


def share(part: float, whole: float) -> float:
    """Return part / whole, NaN where that is 0 / 0."""
    return part / whole if whole else nan


def _sequence(tree: Tree, leaf: Leaf) -> tuple[tuple[str | None, bytes], ...]:
    return tuple(_call(turn) for node in tree.replies(leaf) if "tool_status" in (turn := tree.turns[node]).info)


def _call(turn: Turn) -> tuple[str | None, bytes]:
    """Return a turn's tool, None where the call was malformed, and the tokens of its call, without what it thought."""
    return turn.info.get("tool"), turn.tokens[turn.thought :].tobytes()
