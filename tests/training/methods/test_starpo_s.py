"""StarPO-S: the worked examples of agentic.md, section J3, every rule of the filter, and the stop."""

import json

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree
from turngym.envs import Outcome
from turngym.training.control.control import Request, Stats, Verdict
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods.sampling.starpo_s import kept_groups, spread, starpo_s

SCORES = [0.5, 0.4, 0.1, 0.0]  # of the sheet, already std
KEEP, DROP = Verdict.KEEP, Verdict.DROP


def tree(*scores: float, outcome: Outcome = Outcome.DONE, trained: bool = True) -> Tree:
    leaves = [
        Leaf(0, branch, outcome, "", score, trained=trained) for branch, score in enumerate(scores)
    ]
    return Tree((0, 0, 0), 0, "task", [], leaves)


@pytest.mark.parametrize(
    ("scores", "std"),
    [([1, 0, 1, 0], 0.577350), ([1, 1, 1, 1], 0.0), ([1, 0, 0, 0], 0.5), ([1], 0.0), ([], 0.0)],
)
def test_sheet_section_j3_spread_of_a_group(scores, std) -> None:
    assert spread(tree(*scores)) == pytest.approx(std, abs=1e-6)


def test_only_what_is_learned_from_spreads() -> None:
    mixed = tree(1.0, 1.0)
    mixed.leaves += (
        tree(0.0, trained=False).leaves + tree(float("nan"), outcome=Outcome.INFRA_ERROR).leaves
    )
    assert spread(mixed) == 0.0


def test_sheet_section_j3_linear_keeps_two() -> None:
    assert kept_groups(SCORES, "top-p", 0.9, True) == {0, 1}
    assert kept_groups(SCORES, "top-p", 0.91 + 1e-6, True) == {0, 1, 2}  # threshold just above 0.9


def test_sheet_section_j3_softmax_keeps_four() -> None:
    assert kept_groups(SCORES, "softmax", 0.9, True) == {0, 1, 2, 3}
    cumulative = np.exp(SCORES).cumsum() / np.exp(SCORES).sum()
    assert cumulative.tolist() == pytest.approx([0.314299, 0.598688, 0.809368, 1.0], abs=1e-6)
    for count, share in enumerate(cumulative[:3], start=1):
        assert len(kept_groups(SCORES, "softmax", share - 1e-6, True)) == count
        assert len(kept_groups(SCORES, "softmax", share + 1e-6, True)) == count + 1


@pytest.mark.parametrize(
    ("rule", "share", "include_zero", "kept"),
    [
        ("top-k", 0.25, False, {0}),
        ("top-k", 0.5, False, {0, 1}),
        ("top-k", 0.01, False, {0}),  # at least one
        ("top-k", 1.0, False, {0, 1, 2}),  # four of them, of which one has no spread
        ("top-k", 1.0, True, {0, 1, 2, 3}),
        ("top-k-abs", 2, False, {0, 1}),
        ("top-k-abs", 9, False, {0, 1, 2}),
        ("min-p", 0.8, False, {0, 1}),
        ("min-p", 0.2, False, {0, 1, 2}),
        ("min-p", 1.0, False, {0}),
        ("top-p", 1.0, False, {0, 1, 2}),
        ("top-p", 1.0, True, {0, 1, 2, 3}),
        ("softmax", 1.0, True, {0, 1, 2, 3}),
        ("softmax", 0.9, False, {0, 1, 2}),
    ],
)
def test_every_rule(rule, share, include_zero, kept) -> None:
    assert kept_groups(SCORES, rule, share, include_zero) == kept
    shuffled = kept_groups(SCORES[::-1], rule, share, include_zero)
    assert {3 - place for place in shuffled} == kept


@pytest.mark.parametrize("rule", ["top-k", "top-k-abs", "top-p", "softmax", "min-p"])
def test_groups_without_any_spread_leave_nothing(rule) -> None:
    assert kept_groups([0.0, 0.0, 1e-11], rule, 1.0, False) == set()
    assert kept_groups([], rule, 1.0, True) == set()


def test_the_slack_of_the_sum_may_leave_nothing() -> None:
    assert kept_groups([0.005, 0.004], "top-p", 0.9, False) == set()


def test_a_sum_that_is_just_reached_is_enough() -> None:
    assert kept_groups([0.3, 0.3], "softmax", 0.5, True) == {0}


def test_of_equal_spreads_the_earlier_group_is_kept() -> None:
    assert kept_groups([0.5, 0.7, 0.5, 0.7], "top-k", 0.75, False) == {0, 1, 3}


def test_whole_groups_are_dropped() -> None:
    trees = [tree(1, 1), tree(1, 0), tree(0, 0), tree(0.6, 0.4)]
    control = starpo_s()
    assert control.select(trees, control.init()) == [DROP, KEEP, DROP, DROP]
    assert starpo_s(share=0.5).select(trees, control.init()) == [DROP, KEEP, DROP, KEEP]
    everything = starpo_s(rule="top-p", share=1.0, include_zero=True)
    assert everything.select(trees, control.init()) == [KEEP] * 4


def test_it_sets_the_clip_and_no_kl(toy) -> None:
    control = starpo_s()
    terms = control.shape(
        start_terms(torch.ones(14).double()), toy.batch, Now.at_start(toy.batch), control.init()
    )
    assert set(terms.clip_low.tolist()) == {0.2}
    assert set(terms.clip_high.tolist()) == {0.28}
    assert not terms.kl_coef.any()
    assert (control.sets, control.needs.logp_ref) == ({"clip"}, False)
    assert starpo_s(clip_high=0.2).sets == frozenset()


def observed(control, rewards) -> list[bool]:
    """Return whether it asks to stop after each step; a reward of None is a step that kept nothing."""
    state, asked = control.init(), []
    for step, reward in enumerate(rewards):
        seen = Stats(step, "rollout") if reward is None else Stats(step, "rollout", reward=reward)
        state, requests = control.observe(seen, json.loads(json.dumps(state)))
        asked.append(Request.STOP in requests)
        if reward is not None:
            state, requests = control.observe(Stats(step, "update", reward=reward), state)
            assert requests == frozenset()
    return asked


def test_five_empty_steps_in_a_row_stop_the_run() -> None:
    assert observed(starpo_s(), [0.5] + [None] * 5) == [False] * 5 + [True]
    assert not any(observed(starpo_s(), [None] * 4 + [0.0] + [None] * 4))
    assert observed(starpo_s(patience=1), [None]) == [True]
