import itertools
import math
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.agents.evaluation import scores
from turngym.agents.evaluation.scores import (
    Category,
    Episode,
    NamedReward,
    TaskScore,
    from_trees,
    interval,
    majority,
    pass_at_k,
    pass_hat_k,
    summarize,
)
from turngym.agents.journal.replay import replay
from turngym.agents.journal.trees import Origin, read_trees, write_trees
from turngym.agents.players import Script, play
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome, Rubric
from turngym.envs.math.grading.grader import Grade
from turngym.envs.question.env import QuestionEnv
from turngym.envs.tasks import ListTasks, Task

Z = NormalDist().inv_cdf(0.975)


def wilson(share, n):
    """Wilson's interval as the roots of (p - share)^2 = z^2 p (1 - p) / n."""
    roots = np.roots([1 + Z**2 / n, -2 * share - Z**2 / n, share**2])
    return sorted(roots.real)


def episode(task, score=1.0, outcome=Outcome.DONE, **rest):
    return Episode(
        **{
            "task": task,
            "score": score,
            "outcome": outcome,
            "stop": "answered",
            "turns": 2,
            "used_tool": False,
            **rest,
        }
    )


# --- intervals


def test_one_sample_a_task_gives_wilsons_interval_of_one_sample_less():
    found = interval([1.0] * 8 + [0.0] * 12, 20)
    assert found.value == 0.4
    assert [found.low, found.high] == pytest.approx(wilson(0.4, 19), abs=1e-12)


@pytest.mark.parametrize(("value", "low", "high"), [(0.0, 0.0, 0.2775), (1.0, 0.7225, 1.0)])
def test_tasks_that_are_all_alike_count_once_each(value, low, high):
    """0 of 10: the upper bound is z^2 / (10 + z^2) = 3.8415 / 13.8415 = 0.2775."""
    found = interval([value] * 10, 80)
    assert found.value == value
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_samples_of_one_task_count_as_what_they_are_worth():
    """Shares 0, 1/2, 1, 1/2: the variance of the mean is (1/6) / 4 = 1/24, so p (1 - p) is worth 6 samples."""
    found = interval([0.0, 0.5, 1.0, 0.5], 16)
    assert [found.low, found.high] == pytest.approx(wilson(0.5, 6), abs=1e-12)


def test_tasks_that_differ_less_than_chance_are_worth_no_more_than_their_episodes():
    found = interval([0.5, 0.5, 0.5, 0.4, 0.6], 20)
    assert [found.low, found.high] == pytest.approx(wilson(0.5, 20), abs=1e-12)


def test_one_task_is_one_sample():
    found = interval([0.25], 8)
    assert [found.low, found.high] == pytest.approx(wilson(0.25, 1), abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 16))
@settings(max_examples=200, deadline=None)
def test_an_interval_holds_its_value_and_stays_in_bounds(values, samples):
    found = interval(values, samples * len(values))
    assert 0 <= found.low <= found.value + 1e-12 and found.value - 1e-12 <= found.high <= 1
    assert found.high - found.low > 1e-3


@pytest.mark.parametrize(("alike", "tasks", "samples"), [(0.3, 40, 8), (5.0, 60, 4), (1.0, 100, 1)])
def test_intervals_hold_the_truth_about_95_times_of_100(alike, tasks, samples):
    """Tasks whose chances differ (beta with mean 0.6), so that samples of one task are alike."""
    rng = np.random.default_rng(0)
    chance = rng.beta(0.6 * alike, 0.4 * alike, size=(600, tasks))
    shares = rng.binomial(samples, chance) / samples
    held = np.mean(
        [
            found.low <= 0.6 <= found.high
            for found in (interval(row, tasks * samples) for row in shares)
        ]
    )
    assert 0.92 <= held <= 0.98


def test_an_interval_reads_as_percentages():
    assert str(scores.Interval(0.4531, 0.41, 0.4967)) == "45.3 % [41.0, 49.7]"


# --- pass@k


@pytest.mark.parametrize("samples", range(1, 8))
@pytest.mark.parametrize(("estimate", "right"), [(pass_at_k, any), (pass_hat_k, all)])
def test_estimates_are_the_share_of_subsets_with_any_or_all_samples_right(samples, estimate, right):
    for correct, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        subsets = list(itertools.combinations([i < correct for i in range(samples)], k))
        expected = Fraction(sum(map(right, subsets)), len(subsets))
        assert estimate(samples, correct, k) == pytest.approx(float(expected), abs=1e-15)


@pytest.mark.parametrize(("samples", "correct", "k"), [(4, 5, 2), (4, -1, 2), (4, 2, 5), (4, 2, 0)])
@pytest.mark.parametrize(("estimate", "name"), [(pass_at_k, "pass@"), (pass_hat_k, r"pass\^")])
def test_impossible_counts_are_refused(samples, correct, k, estimate, name):
    with pytest.raises(ValueError, match=rf"{name}{k} needs .* got {correct} of {samples}"):
        estimate(samples, correct, k)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ("+3 +3 -4", 1),
        ("+3 -4 -4", 0),
        ("+3 -4", 1 / 2),
        ("+3 -4 -5 +6", 1 / 2),
        ("- - - +3", 1),
        ("- -", 0),
    ],
)
def test_the_answer_of_most_samples_wins_and_ties_are_drawn_by_lot(votes, expected):
    samples = [episode(0, float(vote[0] == "+"), answer=vote[1:] or None) for vote in votes.split()]
    assert majority(samples) == pytest.approx(expected, abs=1e-12)
    drawn = [majority(list(order)) for order in itertools.permutations(samples)]
    assert len(set(drawn)) == 1


def test_a_report_says_whether_samples_agree_and_what_calls_came_to():
    """Task 0: 3, 3, 4 with 3 right; task 1: 5, 6, 6 with 5 right. One of four calls failed."""
    answers = [(0, 1, "3"), (0, 1, "3"), (0, 0, "4"), (1, 1, "5"), (1, 0, "6"), (1, 0, "6")]
    told = {"calls": 1, "drawn": 1, "tokens": 6}
    episodes = [
        episode(task, float(won), answer=answer, **told) for task, won, answer in answers[:4]
    ]
    episodes += [episode(task, float(won), answer=answer) for task, won, answer in answers[4:]]
    report = summarize([replace(episodes[0], errors=1), *episodes[1:]])
    assert report.maj == interval([1.0, 0.0], 2)
    assert {k: found.value for k, found in report.pass_hat.items()} == {
        2: pytest.approx((1 / 3 + 0) / 2)
    }
    assert (report.calls, report.call_errors, report.tokens) == (4 / 6, 1 / 4, 4.0)
    assert summarize(episodes[3:4]).maj is None
    silent = summarize([replace(one, answer=None, calls=0, drawn=0, tokens=0) for one in episodes])
    assert (silent.maj, silent.call_errors, silent.tokens) == (None, None, None)


def test_answers_of_any_kind_are_voted_on_as_text():
    """An environment of one's own may say a list, or nothing."""
    tree = Tree((0, 0, 5), 5, "t5", [Turn.unsampled(-1, "user", "q", np.array([1], np.int32))])
    column = np.zeros(1, np.float32)
    for branch, answer in enumerate([["b"], ["a"], ["b"], None]):
        turn = Turn(0, "assistant", "a", np.array([2], np.int32), column > -1, column, column)
        info = {} if answer is None else {"answer": answer}
        node = tree.add(replace(turn, info=info))
        tree.leaves.append(Leaf(node, branch, Outcome.DONE, "done", float(answer == ["b"]), info))
    episodes = from_trees([tree])
    assert [one.answer for one in episodes] == ["['b']", "['a']", "['b']", None]
    assert summarize(episodes).maj == interval([1.0], 1)


# --- reports


def test_a_report_by_hand():
    """Task 0: 2 of 4 right; task 1: 4 of 4; task 2: 0 of 4, one of them cut; task 3 never got a reward."""
    episodes = [episode(0, score, used_tool=score == 1) for score in (1, 1, 0, 0.5)]
    episodes += [episode(1, turns=4) for _ in range(4)]
    episodes += [episode(2, 0.0) for _ in range(3)] + [
        episode(2, 0.0, Outcome.TRUNCATED, stop="max_turns")
    ]
    episodes += [
        episode(3, math.nan, outcome, stop=str(outcome))
        for outcome in (Outcome.TOOL_ERROR, Outcome.INFRA_ERROR)
    ]
    report = summarize(episodes)
    assert (report.episodes, report.tasks, report.samples, report.failed) == (14, 3, 4, 2)
    assert report.reward == pytest.approx(6.5 / 12)
    assert report.success.value == pytest.approx((2 / 4 + 4 / 4 + 0) / 3)
    assert {k: found.value for k, found in report.pass_at.items()} == pytest.approx(
        {2: (5 / 6 + 1) / 3, 4: 2 / 3}
    )
    assert report.tool_share == pytest.approx(2 / 6)
    assert report.turns == pytest.approx((8 * 2 + 4 * 4) / 12)
    assert report.stops == {"answered": 11, "infra_error": 1, "max_turns": 1, "tool_error": 1}
    spread = np.var([0.5, 1.0, 0.0], ddof=1) / 3
    assert [report.success.low, report.success.high] == pytest.approx(
        wilson(0.5, 0.25 / spread), abs=1e-12
    )
    assert report.to_json()["success"]["value"] == report.success.value


def test_categories_and_tasks_have_rows_of_their_own():
    """Easy: tasks 0 (2 of 2) and 2 (0 of 1, one lost); hard: 1 (1 of 2). Task 3 had no score; nobody knows its kind."""
    rows = [(0, 1, "easy"), (0, 1, "easy"), (1, 1, "hard"), (1, 0.5, "hard"), (2, 0, "easy")]
    episodes = [
        episode(task, score, category=kind, task_id=f"t{task}") for task, score, kind in rows
    ]
    lost = [episode(task, math.nan, Outcome.INFRA_ERROR, task_id=f"t{task}") for task in (2, 3)]
    report = summarize([*episodes, *lost])
    assert list(report.by_category) == ["", "easy", "hard"]
    assert report.by_category[""] == Category(1, 0, 1, None, None)
    assert report.by_category["easy"] == Category(4, 2, 1, 2 / 3, interval([1.0, 0.0], 3))
    assert report.by_category["hard"] == Category(2, 1, 0, 0.75, interval([0.5], 2))
    assert report.by_task[2:] == [
        TaskScore(2, "t2", "easy", 2, 1, 0, 0.0),
        TaskScore(3, "t3", "", 1, 1, 0, None),
    ]
    assert "by_category" not in summarize([episode(0)]).to_json()


@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_intervals_are_clustered_by_task(tasks, samples, seed):
    """The sandwich of the clustered mean (Liang & Zeger, Biometrika 1986): G / (G-1) Σ (Σ residual)² / N²."""
    rng = np.random.default_rng(seed)
    won = rng.random((tasks, samples)) < rng.beta(0.5, 0.5, (tasks, 1))
    report = summarize([episode(task, float(one)) for task in range(tasks) for one in won[task]])
    residual = (won - won.mean()).sum(1)
    variance = tasks / (tasks - 1) * (residual**2).sum() / won.size**2
    assert report.success.value == pytest.approx(won.mean(), abs=1e-12)
    if variance > 0:
        worth = min(max(won.mean() * (1 - won.mean()) / variance, 1.0), won.size)
        assert [report.success.low, report.success.high] == pytest.approx(
            wilson(won.mean(), worth), abs=1e-9
        )


def test_any_k_may_be_asked_for():
    report = summarize([episode(0, float(n < 2)) for n in range(6)], (1, 3, 5, 7))
    assert {k: found.value for k, found in report.pass_at.items()} == pytest.approx(
        {1: 1 / 3, 3: 0.8, 5: 1.0}
    )
    assert list(report.pass_hat) == [1, 3, 5]


def test_cut_turns_are_a_share_of_those_that_were_drawn():
    """3 of 8 drawn turns; a failure counts in no estimate."""
    episodes = [episode(0, drawn=2, cut=2), episode(0, drawn=6, cut=1), episode(1, turns=9)]
    lost = episode(1, math.nan, Outcome.INFRA_ERROR, drawn=5, cut=5)
    assert summarize([*episodes, lost]).cut == 3 / 8
    assert summarize(episodes[2:]).cut is None and summarize(episodes[2:]).to_json()["cut"] is None


def test_failures_shrink_the_samples_and_count_in_no_estimate():
    episodes = [
        episode(0),
        episode(0),
        episode(0),
        episode(1),
        episode(1, 0.0),
        episode(1, math.nan, Outcome.INFRA_ERROR),
    ]
    report = summarize(episodes)
    assert (report.samples, report.failed, report.reward) == (2, 1, 0.8)
    assert report.success.value == 0.75
    assert {k: found.value for k, found in report.pass_at.items()} == {2: 1.0}


def test_one_sample_a_task_has_no_pass_at_k():
    report = summarize([episode(0), episode(1, 0.0)])
    assert (report.pass_at, report.tool_share) == ({}, 0.0)
    assert summarize([episode(0, 0.0)]).tool_share == 0.0


def test_nothing_but_failures_is_an_error():
    with pytest.raises(
        ValueError, match="none of 2 episodes was rewarded: all ended in an infrastructure failure"
    ):
        summarize([episode(0, math.nan, Outcome.TOOL_ERROR)] * 2)


def test_paths_of_trees_are_episodes():
    tree = Tree((0, 0, 5), 5, "t5", [Turn.unsampled(-1, "user", "q", np.array([1], np.int32))])
    column = np.zeros(1, np.float32)
    for branch, outcome in enumerate([Outcome.DONE, Outcome.TRUNCATED]):
        node = 0
        for _ in range(branch + 1):
            node = tree.add(
                Turn(node, "assistant", "a", np.array([2], np.int32), column > -1, column, column)
            )
        tree.leaves.append(
            Leaf(node, branch, outcome, f"s{branch}", float(1 - branch), {"used_tool": not branch})
        )
    assert from_trees([tree, tree]) == 2 * [
        Episode(5, Outcome.DONE, "s0", 1.0, 1, True, tokens=1, task_id="t5"),
        Episode(5, Outcome.TRUNCATED, "s1", 0.0, 2, False, tokens=2, task_id="t5"),
    ]
    ends = iter(("length", "closer", "end"))
    tree.turns[1:] = [replace(turn, ended=next(ends)) for turn in tree.turns[1:]]
    assert [(found.drawn, found.cut) for found in from_trees([tree])] == [(1, 1), (2, 0)]


# --- how agents searched


def searched(*infos, leaf=None):
    """A path of one reply for each info, and what its leaf says."""
    tree = Tree((0, 0, 5), 5, "t5", [Turn.unsampled(-1, "user", "q", np.array([1], np.int32))])
    column = np.zeros(1, np.float32)
    for info in infos:
        tree.add(
            Turn(
                len(tree.turns) - 1,
                "assistant",
                "a",
                np.array([2], np.int32),
                column > -1,
                column,
                column,
                info=info,
            )
        )
    last = infos[-1] if leaf is None and infos else leaf or {}
    tree.leaves.append(Leaf(len(tree.turns) - 1, 0, Outcome.DONE, "answered", 1.0, last))
    return tree


HALF = {"searches": 2, "recall": {"1": 0.0, "3": 0.5}, "f1": 0.8, "sub_em": 1}


def test_what_the_last_turn_says_of_the_searches_is_kept():
    (one,) = from_trees([searched({"searches": 1, "recall": {"1": 0.0, "3": 0.0}}, HALF)])
    assert one.search == {"searches": 2, "recall@1": 0.0, "recall@3": 0.5, "f1": 0.8, "sub_em": 1}


def test_a_path_that_the_context_ended_counts_the_searches_before():
    (cut,) = from_trees([searched({"searches": 1}, leaf={})])
    assert cut.search == {"searches": 1}


@pytest.mark.parametrize("infos", [(), ({},), ({"recall": 3, "f1": "good"},)])
def test_episodes_of_other_environments_search_nothing(infos):
    assert from_trees([searched(*infos)])[0].search == {}


def test_each_figure_of_search_has_its_own_denominator():
    """Two searched, one of them without gold passages; one never answered; a failure counts nowhere."""
    found = [
        HALF,
        {"searches": 0, "recall": {"1": 1.0, "3": 1.0}},
        {"searches": 4, "f1": 0.2, "sub_em": 0},
    ]
    episodes = from_trees([searched(info) for info in found])
    episodes.append(episode(6, math.nan, Outcome.TOOL_ERROR, search={"searches": 100}))
    means = summarize(episodes).search
    assert {name: (mean.value, mean.of) for name, mean in means.items()} == {
        "searches": (pytest.approx(2.0), 3),
        "recall@1": (pytest.approx(0.5), 2),
        "recall@3": (pytest.approx(0.75), 2),
        "f1": (pytest.approx(0.5), 2),
        "sub_em": (pytest.approx(0.5), 2),
    }
    assert summarize(episodes).to_json()["search"]["recall@3"] == {"value": 0.75, "of": 2}


def test_a_report_without_searches_is_written_as_ever():
    report = summarize([episode(0)])
    assert report.search == {} and "search" not in report.to_json()


# --- named rewards


class Exact:
    def grade(self, *, completion, gold):
        answer = completion.partition("answer: ")[2] or None
        return Grade(float(answer == gold), answer, "string")


def brief(completion, gold):
    return float(len(completion) < 20)


def rubric(weight=0.25):
    grader = Rubric({"correct": Exact(), "brief": brief}, {"brief": weight})
    return QuestionEnv(ListTasks([Task(f"t{i}", "q", str(i)) for i in range(4)]), grader)


def played(env):
    texts = ["answer: 0", "I think long: answer: 1", "answer: 3", "hm"]
    return [play(env, Script([text]), task, 0) for task, text in enumerate(texts)]


def test_named_rewards_are_kept_through_journal_evaluation_and_replay(tmp_path):
    trees = played(rubric())
    write_trees(tmp_path / "trees.jsonl", trees, Origin("own/Rubric-v0", {}))
    read = list(read_trees(tmp_path / "trees.jsonl"))
    assert [tree.leaves[0].info["rewards"] for tree in read] == [
        *({"correct": 1.0, "brief": 1.0}, {"correct": 1.0, "brief": 0.0}),
        *({"correct": 0.0, "brief": 1.0}, {"correct": 0.0, "brief": 1.0}),
    ]
    report = summarize(from_trees(read))
    assert report.rewards == {"correct": NamedReward(0.5, 1.0), "brief": NamedReward(0.75, 0.25)}
    assert report.reward == 0.5 + 0.75 * 0.25 == summarize(from_trees(trees)).reward
    assert report.to_json()["rewards"]["brief"] == {"value": 0.75, "weight": 0.25}
    assert [replay(rubric(), tree) for tree in read] == [None] * 4
    assert replay(rubric(0.5), read[0]).field == "info['score']"
    silent = replay(QuestionEnv(rubric().tasks, Rubric({"correct": Exact()})), read[1])
    assert silent.field == "info['rewards']"  # what is paid is the same


def test_named_rewards_of_a_path_are_those_before_its_context_was_full_and_none_where_it_failed():
    turn = replace(
        Turn.unsampled(0, "assistant", "a", np.zeros(1, np.int32)),
        info=played(rubric())[0].leaves[0].info,
    )
    leaves = [
        Leaf(1, 0, Outcome.TRUNCATED, "context", 1.25),
        Leaf(1, 1, Outcome.INFRA_ERROR, "infra_error", math.nan),
    ]
    tree = Tree(
        (0, 0, 0), 0, "t", [Turn.unsampled(-1, "user", "q", np.zeros(1, np.int32)), turn], leaves
    )
    assert [one.rewards for one in from_trees([tree])] == [{"correct": 1.0, "brief": 1.0}, {}]


def test_an_episode_without_a_reward_counts_0_and_a_report_without_names_has_none():
    report = summarize([episode(0, rewards={"a": 1.0}, weights={"a": 2.0}), episode(1)])
    assert report.rewards == {"a": NamedReward(0.5, 2.0)}
    assert "rewards" not in summarize([episode(0)]).to_json()
