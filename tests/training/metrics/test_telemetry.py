import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.data.packing import pack
from turngym.training.metrics.telemetry import calls, counts, forks, repetition, stats


def said(parent, logp, entropy, **info):
    size = len(logp)
    columns = (np.array(column, np.float32) for column in (logp, entropy))
    return Turn(
        parent,
        "assistant",
        "",
        np.arange(size, dtype=np.int32),
        np.ones(size, np.bool_),
        *columns,
        info=info,
    )


def told(parent, size):
    return Turn.unsampled(parent, "user", "", np.zeros(size, np.int32))


@pytest.fixture
def trees():
    """Two branches that share their first turn, one that failed, and a tree whose branches all earned the same."""
    first = Tree(
        (0, 0, 0), 0, "a", [told(-1, 4), said(0, [-1, -2], [1, 2], tool_status="ok"), told(1, 3)]
    )
    first.turns += [
        said(2, [-4], [4]),
        said(2, [-3, -3], [6, 8]),
        said(0, [-9], [90], tool_status="error"),
    ]
    first.leaves += [
        Leaf(3, 0, Outcome.DONE, "answered", 1.0, {"used_tool": True}),
        Leaf(4, 1, Outcome.TRUNCATED, "max_turns", 0.0),
        Leaf(5, 2, Outcome.INFRA_ERROR, "infra_error", float("nan")),
    ]
    second = Tree((0, 0, 1), 1, "b", [told(-1, 2), said(0, [-0.5], [3]), said(0, [-0.25], [5])])
    second.leaves += [
        Leaf(1, 0, Outcome.DONE, "answered", 0.5),
        Leaf(2, 1, Outcome.DONE, "answered", 0.5),
    ]
    return [first, second]


def test_means_are_over_drawn_tokens_of_rewarded_paths_each_counted_once(trees):
    found = stats(7, pack(trees).batch, trees)
    assert (found.step, found.phase, found.last) == (7, "rollout", True)
    assert found.entropy == pytest.approx((1 + 2 + 4 + 6 + 8 + 3 + 5) / 7)
    assert found.entropy_sampled == pytest.approx((1 + 2 + 4 + 3 + 3 + 0.5 + 0.25) / 7)
    assert found.entropy_turns == pytest.approx(((1 + 2 + 3 + 5) / 4, (4 + 6 + 8) / 3))


def test_what_a_method_asked_of_the_logits_is_averaged_over_tokens(trees):
    batch = pack(trees).batch
    values = torch.arange(batch.n_slots).float()
    batch = replace(batch, extras={"mine": values, "pairs": torch.stack((values, values), 1)})
    found = stats(0, batch, trees).extras
    assert found["extras/mine"] == pytest.approx(
        float((values * batch.share).sum() / batch.share.sum())
    )
    assert "extras/pairs" not in found


def test_nested_entropy_is_a_mean_over_paths_of_a_mean_over_turns(trees):
    found = stats(0, pack(trees).batch, trees)
    assert found.entropy_nested == pytest.approx(((1.5 + 4) / 2 + (1.5 + 7) / 2 + 3 + 5) / 4)


def test_reward_and_success_leave_failures_out(trees):
    found = stats(0, pack(trees).batch, trees)
    assert (found.reward, found.success) == ((1 + 0 + 0.5 + 0.5) / 4, 1 / 4)


def test_named_rewards_add_up_to_the_reward_of_the_paths_learned_from(trees):
    first, second = trees
    one = {"rewards": {"goal": 0.75, "words": 9.0}, "weights": {"goal": 1.0, "words": 0.0}}
    other = {"rewards": {"goal": 0.5, "brief": 1.0}, "weights": {"goal": 1.0, "brief": 0.25}}
    first.leaves[0] = replace(first.leaves[0], score=0.75, info=one)
    first.leaves[2] = replace(first.leaves[2], info=one)  # it failed
    second.leaves[1] = replace(second.leaves[1], score=0.75, info=other)
    found = stats(0, pack(trees).batch, trees)
    named = {name: value for name, value in found.extras.items() if name.startswith("reward/")}
    assert named == {"reward/goal": 1.25 / 4, "reward/words": 9 / 4, "reward/brief": 1 / 4}
    assert (
        found.reward == named["reward/goal"] + 0.25 * named["reward/brief"] + 0.5 / 4
    )  # a reward without a name


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
        "turns/cut": pytest.approx(math.nan, nan_ok=True),  # it is not known how these turns ended
        "turns/cut_paths": 0.0,
        "turns/length": 8 / 6,
        "repetition": pytest.approx(math.nan, nan_ok=True),  # no turn has four tokens
        "silent_groups": 0.5,
        **calls(trees),
        **forks(trees),
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


def test_counts_of_nothing_are_zero_and_shares_of_nothing_no_numbers():
    found = counts([])
    assert {name for name, value in found.items() if math.isnan(value)} == {
        *(name for name, value in (calls([]) | forks([])).items() if math.isnan(value)),
        "turns",
        "turns/cut",
        "turns/cut_paths",
        "turns/length",
        "repetition",
        "silent_groups",
    }
    assert {value for value in found.values() if not math.isnan(value)} == {0}


def scored(*scores, trained=True):
    leaves = [Leaf(0, 0, Outcome.DONE, "answered", score, trained=trained) for score in scores]
    failed = Leaf(0, 0, Outcome.INFRA_ERROR, "infra_error", math.nan)
    return Tree((0, 0, 0), 0, "a", [told(-1, 1)], [*leaves, failed])


@pytest.mark.parametrize(
    ("groups", "silent"),
    [
        (
            [scored(1.0, 1.0), scored(0.0, 1.0), scored(0.5)],
            1 / 2,
        ),  # one path alone is compared with nothing
        ([scored(0.0, 0.0), scored()], 1.0),  # a group of failures is none that could teach
        ([scored(0.0, 1e-9)], 0.0),
        ([scored(0.0, 1.0), scored(0.0, 1.0, trained=False)], 0.0),  # nor is one of probes
    ],
)
def test_a_group_is_silent_where_all_that_is_learned_from_earned_the_same(groups, silent):
    assert counts(groups)["silent_groups"] == silent


def test_groups_of_one_path_are_neither_silent_nor_not():
    assert math.isnan(counts([scored(0.5), scored()])["silent_groups"])


@pytest.mark.parametrize(
    ("turns", "again"),
    [
        ([[1, 2, 3, 4, 5, 6]], 0),
        ([[7] * 10], 6 / 7),
        (
            [[1, 2] * 5, [1, 2, 3, 4]],
            5 / 8,
        ),  # runs of another turn are no repetition, those of two others are
        ([[1, 2, 3], [5] * 4], 0),
        ([[1, 2, 3]], math.nan),
    ],
)
def test_repetition_is_the_share_of_runs_that_stood_in_the_turn_before(turns, again):
    drawn = [np.array(turn, np.int32) for turn in turns]
    grams = [[tuple(turn[i : i + 4]) for i in range(len(turn) - 3)] for turn in turns]
    assert repetition(drawn) == pytest.approx(again, nan_ok=True)
    if any(grams):
        assert again == sum(len(one) - len(set(one)) for one in grams) / sum(map(len, grams))


def test_turns_that_ended_at_the_token_limit_are_cut_and_others_are_not(trees):
    """Six turns on five paths; what the first path begins with is shared, and counts once as a turn."""
    ends = {
        (0, 1): "length",
        (0, 3): "end",
        (0, 4): "context",
        (0, 5): "closer",
        (1, 1): "length",
        (1, 2): "end",
    }
    for (tree, node), ended in ends.items():
        trees[tree].turns[node] = replace(trees[tree].turns[node], ended=ended)
    found = counts(trees)
    assert (found["turns/cut"], found["turns/cut_paths"]) == (2 / 6, 3 / 5)


# --- entropy by turn, phase and outcome

TURNS = ((2, 1), (3,), (1, 2, 2), (2, 2), (1, 3))  # sampled tokens of each turn of each path
SCORES = (1.0, 0.25, 1.5, 1.0, 0.0)


@pytest.fixture
def batch(batch_of):
    """Five paths; the last two begin with the same two tokens, or with one of them."""
    batch = batch_of(
        TURNS, scores=SCORES, groups=[0, 0, 1, 1, 1], entropy=list(np.linspace(0.1, 1.9, 19))
    )
    token, entropy = batch.token.clone(), batch.entropy.clone()
    token[15] = token[11]
    entropy[15] = entropy[11]
    share = torch.bincount(token).double().reciprocal()[token]
    phase = torch.arange(19) % 3 * (torch.arange(19) > 1)  # think, call, answer
    kind = torch.arange(19) // 4 % 3
    return replace(batch, token=token, entropy=entropy, share=share, phase=phase, kind=kind)


def reference(batch, chosen):
    """Return the mean over the tokens of `chosen` slots, each weighing the share of its paths that are chosen."""
    uses, weights = {}, {}
    for s, token in enumerate(batch.token.tolist()):
        uses[token] = uses.get(token, 0) + 1
        if s in chosen:
            weights[token] = weights.get(token, 0) + 1
    value = dict(zip(batch.token.tolist(), batch.entropy.tolist()))
    total = sum(count / uses[token] for token, count in weights.items())
    return sum(count / uses[token] * value[token] for token, count in weights.items()) / total


def test_entropy_by_turn_phase_and_outcome_agrees_with_its_definition(batch):
    found, slots = stats(0, batch, []), range(batch.n_slots)
    turn, phase = batch.turn.tolist(), batch.phase.tolist()
    won = [batch.turns.score[row] >= 1 for row in batch.row.tolist()]
    assert found.entropy == pytest.approx(reference(batch, slots), abs=1e-12)
    for number, name in enumerate(("think", "call", "answer")):
        expected = reference(batch, [s for s in slots if phase[s] == number])
        assert found.entropy_phases[name] == pytest.approx(expected, abs=1e-12)
    expected = {}
    for number, name in enumerate(("words", "format", "arguments")):
        chosen = [s for s in slots if batch.kind[s] == number]
        expected[f"entropy_class/{name}"] = reference(batch, chosen)
    for outcome, wanted in (("success", True), ("failure", False)):
        mine = [s for s in slots if won[s] == wanted]
        expected[f"entropy_{outcome}"] = reference(batch, mine)
        for t in {turn[s] for s in mine}:
            expected[f"entropy_turn_{outcome}/{t}"] = reference(
                batch, [s for s in mine if turn[s] == t]
            )
        for number, name in enumerate(("think", "call", "answer")):
            chosen = [s for s in mine if phase[s] == number]
            expected[f"entropy_phase_{outcome}/{name}"] = reference(batch, chosen)
    assert found.extras == pytest.approx(expected, abs=1e-12)
    assert "entropy_turn_success/2" in expected and "entropy_turn_failure/2" not in expected


def test_both_outcomes_add_up_to_all_tokens(batch):
    """Their means, weighted by their tokens, are the mean of all: a shared token is split, not counted twice."""
    won = batch.turns.score[batch.row] >= 1
    found, tokens = stats(0, batch, []), float(batch.share.sum())
    wins = float(batch.share[won].sum())
    both = (
        wins * found.extras["entropy_success"] + (tokens - wins) * found.extras["entropy_failure"]
    )
    assert tokens == pytest.approx(18) and both == pytest.approx(tokens * found.entropy)


def test_what_nobody_said_has_no_entropy(batch_of):
    found = stats(0, batch_of([[0], [0, 2]], entropy=[0.5, 0.25], scores=[1.0, 0.0]), [])
    assert math.isnan(found.entropy_turns[0]) and found.entropy_turns[1] == 0.375
    assert found.extras == {
        "entropy_class/words": 0.375,
        "entropy_failure": 0.375,
        "entropy_turn_failure/1": 0.375,
        "entropy_phase_failure/think": 0.375,
    }
    nothing = stats(0, batch_of([[0]]), [])
    assert math.isnan(nothing.entropy) and nothing.entropy_turns == () and nothing.extras == {}


def test_scores_are_those_of_all_paths_that_are_learned_from(trees):
    batch = pack(trees).batch
    expected = {
        (*tree.key, leaf.branch): leaf.score
        for tree in trees
        for leaf in tree.leaves
        if leaf.learned
    }
    assert stats(0, batch, trees).scores == expected and expected
