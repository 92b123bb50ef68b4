import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from turngym.agents.trajectory import Leaf, Tree, Turn, earns_reward, failed_step, root_turn, step
from turngym.envs import EnvFailure, Outcome, Reply, StopReason, TextEnv, outcome_of


def tokens(*ids):
    return np.array(ids, np.int32)


def reply(parent, *ids):
    n = len(ids)
    return Turn(
        parent,
        "assistant",
        "a",
        tokens(*ids),
        np.ones(n, bool),
        np.full(n, -0.5, np.float32),
        np.ones(n, "f"),
    )


def leaf(node, branch, outcome=Outcome.DONE):
    return Leaf(node, branch, outcome, "answered", 1.0)


def bushy(order):
    """Two branches of two replies behind one prompt, their turns written in `order`."""
    tree = Tree((0, 1, 2), 2, "t2", [Turn.unsampled(-1, "user", "q", tokens(1, 2))])
    node = {0: 0, 1: 0}
    for branch in order:
        node[branch] = tree.add(reply(node[branch], 10 + branch, 20 + branch))
        if tree.turns[node[branch]].parent == 0:
            node[branch] = tree.add(
                Turn.unsampled(node[branch], "tool", f"r{branch}", tokens(30 + branch))
            )
    for branch in dict.fromkeys(reversed(order)):
        tree.leaves.append(leaf(node[branch], branch))
    return tree


def test_a_path_laid_end_to_end_is_what_the_model_saw():
    tree = bushy([0, 1, 1, 0])
    last, first = tree.leaves[0], tree.leaves[1]
    assert (first.branch, last.branch) == (1, 0)
    assert tree.tokens(last).tolist() == [1, 2, 10, 20, 30, 10, 20]
    assert tree.tokens(first).tolist() == [1, 2, 11, 21, 31, 11, 21]
    assert tree.tokens(last).dtype == np.int32
    assert [tree.turns[node].role for node in tree.path(last)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert tree.replies(last) == [tree.path(last)[1], tree.path(last)[3]]


def test_given_turns_hold_nothing_that_the_policy_drew():
    turn = Turn.unsampled(3, "tool", "r", tokens(5, 6, 7))
    assert (turn.parent, turn.role, turn.text, turn.reward) == (3, "tool", "r", 0.0)
    assert not turn.sampled.any() and not turn.logp_roll.any() and not turn.entropy.any()
    assert (
        turn.tokens.shape
        == turn.sampled.shape
        == turn.logp_roll.shape
        == turn.entropy.shape
        == (3,)
    )
    assert Turn.unsampled(0, "user", "", tokens()).tokens.shape == (0,)


@pytest.mark.parametrize("order", [[0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0]])
def test_the_canonical_order_does_not_depend_on_the_order_of_writing(order):
    straight, tree = bushy([0, 0, 1, 1]).canonical(), bushy(order)
    found = tree.canonical()
    assert (
        [turn.parent for turn in found.turns]
        == [turn.parent for turn in straight.turns]
        == [-1, 0, 1, 2, 0, 4, 5]
    )
    assert [turn.tokens.tolist() for turn in found.turns] == [
        turn.tokens.tolist() for turn in straight.turns
    ]
    assert found.leaves == straight.leaves and [leaf.branch for leaf in found.leaves] == [0, 1]
    assert (found.key, found.task, found.task_id) == (tree.key, tree.task, tree.task_id)
    for one in tree.leaves:
        twin = next(leaf for leaf in found.leaves if leaf.branch == one.branch)
        assert found.tokens(twin).tolist() == tree.tokens(one).tolist()


def test_the_canonical_tree_keeps_everything_of_a_turn_and_shares_turns_between_branches():
    tree = Tree((0,), 0, "t", [Turn.unsampled(-1, "user", "q", tokens(1))])
    drawn = replace(
        reply(0, 4, 5),
        temperature=0.7,
        version=3,
        ended="closer",
        reward=0.25,
        info={"tool": "python"},
    )
    shared = tree.add(drawn)
    tree.leaves = [leaf(shared, 1), leaf(tree.add(reply(shared, 6)), 0, Outcome.TRUNCATED)]
    found = tree.canonical()
    assert len(found.turns) == 3 and found.leaves[1].node == 1
    assert vars(found.turns[1]) == vars(drawn)


def test_a_turn_must_hang_on_one_that_exists():
    tree = Tree((0,), 0, "t")
    with pytest.raises(ValueError, match=r"Turn.parent is 0; the tree has turns 0 to -1"):
        tree.add(reply(0, 1))
    tree.add(Turn.unsampled(-1, "user", "q", tokens(1)))
    for parent in (1, -2):
        with pytest.raises(ValueError, match=f"Turn.parent is {parent}; the tree has turns 0 to 0"):
            tree.add(reply(parent, 1))


def test_an_unknown_speaker_and_columns_of_other_lengths_are_refused():
    with pytest.raises(
        ValueError,
        match=r"Turn.role is 'ipython'; a speaker is one of system, user, assistant, tool",
    ):
        Turn.unsampled(0, "ipython", "r", tokens(1))
    columns = [np.ones(2, bool), np.zeros(2, np.float32), np.zeros(2, np.float32)]
    for index, name in enumerate(("sampled", "logp_roll", "entropy")):
        bad = [column[:1] if i == index else column for i, column in enumerate(columns)]
        with pytest.raises(
            ValueError, match=rf"Turn.{name} has shape \(1,\), Turn.tokens has \(2,\)"
        ):
            Turn(0, "assistant", "a", tokens(1, 2), *bad)


@pytest.mark.parametrize("outcome", Outcome)
def test_only_done_and_truncated_paths_are_rewarded(outcome):
    assert leaf(0, 0, outcome).rewarded == (str(outcome) in ("done", "truncated"))


@pytest.mark.parametrize("stop", StopReason)
def test_the_end_of_a_path_has_the_outcome_of_its_stop_and_no_score_where_it_failed(stop):
    found = Leaf.ended(3, 2, stop, 0.5, {"answer": "7"})
    assert (found.node, found.branch, found.stop, found.info) == (3, 2, str(stop), {"answer": "7"})
    assert type(found.stop) is str and found.outcome is outcome_of(stop)
    assert (found.score == 0.5) == found.rewarded and found.rewarded != (found.score != found.score)


def test_an_opening_keeps_the_messages_and_tools_that_its_tokens_spell():
    messages, tools = (
        [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        [{"type": "function"}],
    )
    turn = root_turn(
        "q", {"messages": messages, "tools": tools, "task_id": "t", "mood": "new"}, tokens(1, 2)
    )
    assert (turn.parent, turn.role, turn.text, turn.tokens.tolist()) == (-1, "user", "q", [1, 2])
    assert turn.info == {"messages": messages, "tools": tools} and not turn.sampled.any()


# --- steps


class Says(TextEnv):
    """Replies what it was made with."""

    shared = TextEnv.shared | {"reply"}

    def __init__(self, reply):
        super().__init__(max_turns=2)
        self.reply = reply

    def on_reset(self, rng, options):
        return "?"

    def on_step(self, text):
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def stepped(reply, turns=1):
    env = Says(reply)
    env.reset(seed=0)
    for _ in range(turns - 1):
        step(env, "a")
    return step(env, "a")


def test_the_result_of_a_step_holds_each_thing_once():
    found = stepped(Reply("well", 0.5, role="tool", info={"mood": "good"}))
    assert (found.reward, found.stop) == (0.5, None)
    assert found.messages == [{"role": "tool", "content": "well"}]
    assert found.info == {"turn": 1, "mood": "good"}
    found = stepped(Reply("", 1.0, StopReason.GOAL))
    assert (found.stop, found.info) == (StopReason.GOAL, {"turn": 1})
    assert stepped(Reply(""), turns=2).stop is StopReason.MAX_TURNS


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("stop", [None, StopReason.ANSWERED, StopReason.CONTEXT])
def test_a_reward_that_is_no_number_is_a_failure(reward, stop):
    found = stepped(Reply("", reward, stop))
    assert found.stop is StopReason.INFRA_ERROR and math.isnan(found.reward)
    assert found.info == {"error": f"the environment paid a reward of {reward}"}


def test_a_failure_that_the_environment_tells_keeps_its_name():
    found = stepped(EnvFailure("gone"))
    assert (found.stop, found.info["error"], math.isnan(found.reward)) == (
        StopReason.INFRA_ERROR,
        "gone",
        True,
    )
    assert (
        failed_step({"error": "late"}).info == {"error": "late"}
        and failed_step({}).stop is StopReason.INFRA_ERROR
    )


def test_what_an_environment_raises_passes_through():
    with pytest.raises(ZeroDivisionError):
        stepped(ZeroDivisionError())
    with pytest.raises(gymnasium.error.ResetNeeded):
        stepped(Reply("", stop=StopReason.GOAL), turns=2)


@pytest.mark.parametrize("stop", StopReason)
def test_only_failures_pay_nothing(stop):
    assert earns_reward(stop) == (stop not in (StopReason.TOOL_ERROR, StopReason.INFRA_ERROR))
