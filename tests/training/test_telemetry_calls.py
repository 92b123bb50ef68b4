import math

import numpy as np
import pytest

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.metrics.telemetry import calls, share


def said(parent, thought, call, **info):
    """A turn of the agent: tokens of thought, then tokens of a call."""
    tokens = np.array([*thought, *call], np.int32)
    zeros = np.zeros(len(tokens), np.float32)
    return Turn(
        parent, "assistant", "", tokens, zeros == 0, zeros, zeros, thought=len(thought), info=info
    )


def told(parent):
    return Turn.unsampled(parent, "tool", "", np.zeros(2, np.int32))


def ended(node, branch, outcome=Outcome.DONE, score=1.0, **options):
    return Leaf(node, branch, outcome, str(outcome), score, **options)


@pytest.fixture
def trees():
    """A group whose first two paths call alike after different thoughts, and a group that never calls."""
    ok = {"tool": "python", "tool_status": "ok"}
    first = Tree((0, 0, 0), 0, "a", [Turn.unsampled(-1, "user", "", np.zeros(3, np.int32))])
    first.turns += [said(0, [1, 2], [7, 8], **ok), told(1), said(2, [], [9])]  # 1, 3
    first.turns += [said(0, [5], [7, 8], **ok), told(4), said(5, [], [9])]  # 4, 6
    first.turns += [
        said(0, [], [7], tool=None, tool_status="malformed"),
        told(7),
        said(8, [3], [7, 8], **ok),
    ]  # 7, 9
    first.turns += [said(0, [], [7, 8], tool="search", tool_status="error")]  # 10
    first.leaves += [
        ended(3, 0, info={"used_tool": True}),
        ended(6, 1),
        ended(9, 2, Outcome.TRUNCATED, 0.0),
    ]
    first.leaves += [ended(10, 3, Outcome.TOOL_ERROR, math.nan), ended(10, 4, trained=False)]
    second = Tree(
        (0, 0, 1),
        1,
        "b",
        [Turn.unsampled(-1, "user", "", np.zeros(3, np.int32)), said(0, [], [1]), said(0, [], [2])],
    )
    second.leaves += [ended(1, 0), ended(2, 1)]
    return [first, second]


def test_calls_are_counted_once_and_sequences_within_a_group(trees):
    assert calls(trees) == {
        "tool_calls": 5,
        "tool_ok": 3 / 5,
        "tool_share": 5 / 9,
        "tool_calls_path": (1 + 1 + 2 + 0 + 0) / 5,
        "distinct_calls": (2 + 1) / 5,
        "used_tool": 1 / 7,
    }


def test_a_sequence_is_told_by_its_tools_and_the_tokens_of_its_calls_alone(trees):
    first = trees[0]
    for node, change in (
        (4, {"info": {"tool": "search", "tool_status": "ok"}}),
        (4, {"thought": 0}),
        (3, {"info": {}}),
    ):
        changed = [
            Turn(**{**vars(turn), **change}) if at == node else turn
            for at, turn in enumerate(first.turns)
        ]
        found = calls([Tree(first.key, 0, "a", changed, first.leaves)])["distinct_calls"]
        assert found == pytest.approx(2 / 3 if node == 3 else 1)


def test_a_shared_call_is_one_call_and_on_every_path():
    tree = Tree((0, 0, 0), 0, "a", [Turn.unsampled(-1, "user", "", np.zeros(3, np.int32))])
    tree.turns += [
        said(0, [], [7], tool="python", tool_status="ok"),
        told(1),
        said(2, [], [1]),
        said(2, [], [2]),
    ]
    tree.leaves += [ended(3, 0), ended(4, 1, parent=0, fork=2)]
    found = calls([tree])
    assert (found["tool_calls"], found["tool_share"], found["tool_calls_path"]) == (1, 1 / 3, 1.0)
    assert found["distinct_calls"] == 0.5


def test_without_a_call_there_is_nothing_to_tell_of_calls(trees):
    found = calls(trees[1:])
    assert (
        found["tool_calls"],
        found["tool_share"],
        found["tool_calls_path"],
        found["used_tool"],
    ) == (0, 0, 0, 0)
    assert math.isnan(found["tool_ok"]) and math.isnan(found["distinct_calls"])


def test_of_no_paths_there_are_no_shares():
    found = calls([])
    assert found.pop("tool_calls") == 0 and all(map(math.isnan, found.values())) and len(found) == 5


def test_a_share_of_nothing_is_no_number():
    assert share(1, 4) == 0.25 and share(0, 4) == 0 and math.isnan(share(0, 0))
