from dataclasses import replace

import numpy as np
import pytest

from turngym.agents.trajectory import Leaf, Tree, Turn, given
from turngym.envs import Outcome
from turngym.training.packing import pack
from turngym.training.telemetry import counts, stats


def said(parent, logp, entropy, **info):
    size = len(logp)
    columns = (np.array(column, np.float32) for column in (logp, entropy))
    return Turn(parent, "assistant", "", np.arange(size, dtype=np.int32), np.ones(size, np.bool_), *columns, info=info)


def told(parent, size):
    return given(parent, "user", "", np.zeros(size, np.int32))


@pytest.fixture
def trees():
    """Two branches that share their first turn, one that failed, and a tree whose branches all earned the same."""
    first = Tree((0, 0, 0), 0, "a", [told(-1, 4), said(0, [-1, -2], [1, 2], tool_status="ok"), told(1, 3)])
    first.turns += [said(2, [-4], [4]), said(2, [-3, -3], [6, 8]), said(0, [-9], [90], tool_status="error")]
    first.leaves += [
        Leaf(3, 0, Outcome.DONE, "answered", 1.0, {"used_tool": True}),
        Leaf(4, 1, Outcome.TRUNCATED, "max_turns", 0.0),
        Leaf(5, 2, Outcome.INFRA_ERROR, "infra_error", float("nan")),
    ]
    second = Tree((0, 0, 1), 1, "b", [told(-1, 2), said(0, [-0.5], [3]), said(0, [-0.25], [5])])
    second.leaves += [Leaf(1, 0, Outcome.DONE, "answered", 0.5), Leaf(2, 1, Outcome.DONE, "answered", 0.5)]
    return [first, second]


def test_means_are_over_drawn_tokens_of_rewarded_paths_each_counted_once(trees):
    found = stats(7, pack(trees).batch, trees)
    assert (found.step, found.phase, found.last) == (7, "rollout", True)
    assert found.entropy == pytest.approx((1 + 2 + 4 + 6 + 8 + 3 + 5) / 7)
    assert found.entropy_sampled == pytest.approx((1 + 2 + 4 + 3 + 3 + 0.5 + 0.25) / 7)
    assert found.entropy_turns == pytest.approx(((1 + 2 + 3 + 5) / 4, (4 + 6 + 8) / 3))


def test_nested_entropy_is_a_mean_over_paths_of_a_mean_over_turns(trees):
    found = stats(0, pack(trees).batch, trees)
    assert found.entropy_nested == pytest.approx(((1.5 + 4) / 2 + (1.5 + 7) / 2 + 3 + 5) / 4)


def test_reward_and_success_leave_failures_out(trees):
    found = stats(0, pack(trees).batch, trees)
    assert (found.reward, found.success) == ((1 + 0 + 0.5 + 0.5) / 4, 1 / 4)


def test_what_the_policy_did_not_draw_changes_no_statistic(trees):
    before = stats(0, pack(trees).batch, trees)
    for tree in trees:
        for turn in tree.turns:
            if turn.role == "user":
                turn.entropy[:], turn.logp_roll[:] = 77, -55
    after = stats(0, pack(trees).batch, trees)
    assert repr(after) == repr(before)


def test_counts_say_how_much_was_rolled_out(trees):
    assert counts(trees) == {
        "groups": 2,
        "paths": 5,
        "paths/done": 3,
        "paths/truncated": 1,
        "paths/tool_error": 0,
        "paths/infra_error": 1,
        "tokens": 2 + 1 + 2 + 1 + 1 + 1,
        "tokens_given/prompt": 4 + 2,
        "tokens_given/system": 0,
        "tokens_given/user": 3,
        "tokens_given/assistant": 0,
        "tokens_given/tool": 0,
        "turns": 6 / 5,
        "tool_calls": 2,
        "tool_ok": 0.5,
        "used_tool": 1 / 5,
        "silent_groups": 0.5,
    }


def test_every_token_is_in_one_span(trees):
    trees[0].turns[5].sampled[0] = False  # given in the agent's own turn
    trees[1].turns[1:] = [replace(turn, role="tool") for turn in trees[1].turns[1:]]
    found = counts(trees)
    assert (found["tokens_given/assistant"], found["tokens_given/tool"]) == (1, 0)
    assert found["tokens"] == 2 + 1 + 2 + 1 + 1
    for turn in trees[1].turns[1:]:
        turn.sampled[:] = False
    found = counts(trees)
    assert (found["tokens"], found["tokens_given/tool"]) == (2 + 1 + 2, 2)
    spans = [count for name, count in found.items() if name.startswith("tokens")]
    assert sum(spans) == sum(len(turn.tokens) for tree in trees for turn in tree.turns)


def test_counts_of_nothing_are_zero():
    assert set(counts([]).values()) == {0}
