"""AEPO of Dong et al. (agentic.md, sheet D): budget, fading forks, clip and advantage, each beside its equation."""

from dataclasses import replace
from functools import partial
from math import exp, inf, log

import numpy as np
import pytest
import torch

from turngym.agents.journal.trees import to_json
from turngym.agents.trajectory import Event, Spawn
from turngym.training.control.branching import draws, forked_before, forks_in_a_row
from turngym.training.data.batch import Current, Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods.sampling.aepo import aepo, aepo_advantage, aepo_clip, standardized
from turngym.training.methods.sampling.aepo_branching import (
    aepo_branching,
    code_prompt_paths,
    fork_chance,
    probed,
    prompt_paths,
)

SMALL = {"vocabulary": 2, "tokens": 2}
KEY = (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("group", "tilt", "share", "code"),
    [
        (16, 0, 8.0, 9),
        (16, 1.0, 11.696937, 12),
        (16, -1.0, 4.303063, 5),
        (12, 0.25, 6.746118, 7),
        (16, 10, 15.999274, 16),
    ],
)
def test_sheet_d_table_of_the_budget(group, tilt, share, code) -> None:
    assert group / (1 + exp(-tilt)) == pytest.approx(share, abs=1e-6)
    assert prompt_paths(group, tilt) == round(share)
    assert code_prompt_paths(group, tilt) == code


def test_the_budget_lies_between_one_path_and_all_of_them() -> None:
    for paths in (prompt_paths, code_prompt_paths):
        assert [paths(8, tilt) for tilt in (-1e6, -50.0, 50.0, 1e6)] == [1, 1, 8, 8]


@pytest.mark.parametrize(
    ("row", "rise", "chance"),
    [
        (0, 0, 0.5),
        (2, 0, 0.444444),
        (2, 0.5, 0.544444),
        (6, 0, 0.285714),
        (10, 0, 0.0),
        (10, 1, 0.2),
        (20, 1, 0.0),
    ],
)
def test_sheet_d_table_of_probabilities(row, rise, chance) -> None:
    assert fork_chance(0.5, 0.2 * rise, 0.05 * row) == pytest.approx(chance, abs=1e-6)
    u, fade = (
        np.arange(0.0005, 1, 0.001),
        max(0.0, 1 - 0.05 * row),
    )  # the code's own test, on a fine grid of draws
    assert (((u + 0.2 * rise) * fade).clip(0, 1) >= 0.5).mean() == pytest.approx(chance, abs=2e-3)


def test_a_chance_lies_between_zero_and_one() -> None:
    assert [fork_chance(0.5, rise, 0.0) for rise in (-9, 9)] == [0, 1]
    assert fork_chance(0.5, 9.0, 1.5) == 0


def test_the_probe_tells_how_much_surer_the_policy_is_behind_answers(tree_of) -> None:
    tree = tree_of([[[1.0, 1.0], [0.5, 0.5], [1.5, 0.9, 99.0]]])
    tool = (0.5 + 0.5 + 1.5 + 0.9) / 2
    assert probed(tree, 2, 2) == pytest.approx((2.0 - tool) / log(2), rel=1e-6)
    assert probed(tree, 2, 2, first=0) == pytest.approx(
        (2.0 - (2.0 + 2 * tool) / 3) / log(2), rel=1e-6
    )


@pytest.mark.parametrize(
    ("method", "first", "paths"),
    [(aepo_branching, 1, 4), (partial(aepo_branching, variant="code"), 0, 5)],
)
def test_a_probe_without_an_answer_leaves_half_of_the_budget(tree_of, method, first, paths) -> None:
    assert probed(tree_of([[[2.0]]]), 2, 2, first) == probed(tree_of([[]]), 2, 2, first) == 0
    assert method(group=8, **SMALL).plan(tree_of([[[2.0]]]), Event("idle", 0, -1, 8), KEY, {}) == [
        Spawn(0, n=paths)
    ]


def test_the_plan_begins_with_a_probe_that_is_not_forked(tree_of) -> None:
    for method in (aepo_branching, partial(aepo_branching, variant="code")):
        plan = method(group=4, base=9.0, **SMALL).plan
        assert plan(tree_of([[]]), Event("start", 0, -1, 4), KEY, {}) == [Spawn(0, trained=False)]
        tree = tree_of([[[0.1], [9.0]]])
        assert (
            plan(tree, Event("turn", 2, 0, 4), KEY, {})
            == plan(tree, Event("end", 3, 0, 4), KEY, {})
            == []
        )
    assert plan(tree, Event("idle", 0, -1, 2), KEY, {}) == [
        Spawn(0)
    ]  # the code's rest begins one by one
    assert aepo_branching(group=4).plan(tree, Event("idle", 0, -1, 2), KEY, {}) == []


def chained(tree_of, turn_of, forked):
    """Return a path of five turns, behind the first answers of which siblings were forked where `forked` says so."""
    tree = tree_of([[[1.0]] * 5])
    for answer, fork in zip((2, 4, 6), forked):
        if fork:
            tree.add(turn_of(answer, [1.0]))
    return tree, [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("forked", "row"),
    [
        ((0, 0, 0), 0),
        ((1, 0, 0), 0),
        ((0, 0, 1), 1),
        ((0, 1, 1), 2),
        ((1, 1, 1), 3),
        ((1, 0, 1), 1),
    ],
)
def test_forks_in_a_row_are_counted_back_from_the_last_decision(
    tree_of, turn_of, forked, row
) -> None:
    tree, said = chained(tree_of, turn_of, forked)
    assert forked_before(tree, said) == row
    assert (
        forks_in_a_row(tree, 4) == row
    )  # the code decides behind the fourth answer: three turns were before


def test_the_code_counts_forks_of_the_whole_tree_and_the_paper_those_of_the_path(
    tree_of, turn_of
) -> None:
    tree = tree_of([[[1.0], [1.0], [1.0]], [[1.0], [1.0], [1.0]]])
    tree.add(turn_of(2, [1.0]))  # behind the first answer of the first path
    assert forks_in_a_row(tree, 2) == 1
    assert forked_before(tree, [1, 3, 5]) == 1
    assert forked_before(tree, [6, 8, 10]) == 0


def test_the_paper_branches_less_where_it_has_just_branched(tree_of, turn_of) -> None:
    """(0.5 + 0.2·Δ)(1 - 0.1·l) > 0.5 with Δ = 1: up to l = 2."""
    for forked, asked in (((0, 0, 0), True), ((0, 1, 1), True), ((1, 1, 1), False)):
        tree, _ = chained(tree_of, turn_of, forked)
        tree.turns[9] = turn_of(8, [1.0 + log(2)])
        plan = aepo_branching(group=9, penalty=0.1, **SMALL).plan
        assert plan(tree, Event("end", 9, 0, 5), KEY, {}) == ([Spawn(8)] if asked else [])


def test_a_penalty_above_one_never_turns_a_fall_into_a_fork(tree_of, turn_of) -> None:
    tree, _ = chained(tree_of, turn_of, (1, 1, 1))
    tree.turns[1] = turn_of(0, [9.0])  # Δ is far below zero, and so is 1 - penalty·l
    plan = aepo_branching(group=9, penalty=2.0, threshold=0.1, **SMALL).plan
    assert plan(tree, Event("end", 9, 0, 5), KEY, {}) == []


def test_grown_trees_have_a_probe_and_exact_budgets(grow) -> None:
    trees = grow(aepo_branching(group=9, weight=0.3, **SMALL), 9)
    assert sum(leaf.parent >= 0 for tree in trees for leaf in tree.leaves) > 15
    for tree in trees:
        assert [leaf.trained for leaf in tree.leaves] == [False] + [True] * 9
        probe = [
            tree.turns[node].entropy[:2].astype(np.float64).sum() / log(2)
            for node in tree.replies(tree.leaves[0])
        ]
        tilt = 0.5 * (probe[0] - np.mean(probe[1:])) if len(probe) > 1 else 0.0
        begun = min(max(round(9 / (1 + np.exp(-tilt))), 1), 9)
        parents = [leaf.parent for leaf in tree.leaves[1:]]
        assert parents[:begun] == [-1] * begun
        assert 0 not in parents  # the probe has no siblings
        for leaf in tree.leaves:
            if leaf.parent >= 0:
                assert sum(turn.parent == leaf.fork for turn in tree.turns) == 2


def test_the_code_forks_by_keyed_draws(grow) -> None:
    control = aepo_branching(group=8, variant="code", **SMALL)
    trees = grow(control, 8)
    forked = [(tree, leaf) for tree in trees for leaf in tree.leaves if leaf.parent >= 0]
    assert len(forked) > 15 and {sum(leaf.trained for leaf in tree.leaves) for tree in trees} == {8}
    for tree, leaf in forked:
        parent = tree.path(tree.leaves[leaf.parent])
        said = [
            node
            for node in parent[: parent.index(leaf.fork)]
            if tree.turns[node].role == "assistant"
        ]
        last, first = (
            tree.turns[node].entropy[:2].astype(np.float64).sum() / log(2)
            for node in (said[-1], said[0])
        )
        assert (
            draws(0.5 + 0.2 * (last - first), 1, (1, 2, tree.task, leaf.parent, len(said))) == 1
        )  # at most, as l ≥ 0
    assert [to_json(tree) for tree in grow(control, 8, in_flight=1)] == [
        to_json(tree) for tree in trees
    ]


def test_single_turns_are_plain_groups(grow) -> None:
    for tree in grow(aepo_branching(group=6, **SMALL), 6, most=1, tasks=5):
        assert [leaf.parent for leaf in tree.leaves] == [-1] * 7


def weighed(batch_of, entropy, advantage, scale=0.2):
    """Return what the advantage becomes where the policy's entropy is now `entropy`."""
    batch = batch_of([[len(entropy)]], entropy=[7.0 * i for i in range(len(entropy))])
    now = Now(batch.logp_old, torch.tensor(entropy, dtype=torch.float64))
    return (
        aepo_advantage(scale=scale)
        .shape(start_terms(batch.entropy * 0 + advantage), batch, now, {})
        .advantage
    )


def test_sheet_d_example_of_the_entropy_advantage(batch_of) -> None:
    entropy = [0.1, 0.4, 1.2, 0.3]
    z = standardized(torch.tensor(entropy, dtype=torch.float64), batch_of([[4]]))
    assert z.tolist() == pytest.approx([-0.828079, -0.207020, 1.449138, -0.414039], abs=1e-6)
    expected = [0.834384, 0.958596, 1.289828, 0.917192]
    assert weighed(batch_of, entropy, 1.0).tolist() == pytest.approx(expected, abs=1e-6)
    assert weighed(batch_of, entropy, -1.0).tolist() == pytest.approx(
        [-value for value in expected], abs=1e-6
    )


def test_equal_entropies_one_token_and_no_advantage_change_nothing(batch_of) -> None:
    assert weighed(batch_of, [0.1, 0.1, 0.1], 1.0).tolist() == [
        1,
        1,
        1,
    ]  # their mean is not 0.1 to the last bit
    assert weighed(batch_of, [0.7], -1.0).tolist() == [-1]
    assert weighed(batch_of, [0.1, 0.9], 0.0).tolist() == [0, 0]
    assert standardized(torch.zeros(0), batch_of([[0]])).tolist() == []
    assert not aepo_advantage(scale=0.0).needs.now and aepo_advantage().needs.now


def test_a_very_sure_token_keeps_the_sign_of_its_advantage(batch_of) -> None:
    weights = weighed(batch_of, [-1000.0, *[0.0] * 99], 1.0, scale=0.2)
    assert weights[0] == 0 and weights.min() == 0


def test_a_token_that_paths_share_counts_once(batch_of) -> None:
    batch = batch_of([[2], [2]], entropy=[0.1, 0.4, 0.1, 1.2])
    batch = replace(
        batch,
        token=torch.tensor([0, 1, 0, 2]),
        share=torch.tensor([0.5, 1, 0.5, 1], dtype=torch.float64),
    )
    unique = np.array([0.1, 0.4, 1.2])
    expected = (np.array([0.1, 0.4, 0.1, 1.2]) - unique.mean()) / unique.std(ddof=1)
    assert standardized(batch.entropy, batch).tolist() == pytest.approx(
        expected.tolist(), abs=1e-12
    )


def clipped(batch_of, ratio, advantage, control, clip=0.2):
    """Return loss and the coefficient of ∇logp in ascent, as the sheet's table has them."""
    batch = batch_of([[1]])
    logp = torch.tensor([log(ratio)], dtype=torch.float64, requires_grad=True)
    terms = start_terms(torch.tensor([advantage], dtype=torch.float64))
    terms = replace(terms, clip_low=terms.clip_low * 0 + clip, clip_high=terms.clip_high * 0 + clip)
    terms = control.shape(terms, batch, Now.at_start(batch), {})
    value = terms.surrogate(Current(logp, batch.entropy), batch, terms)
    value.backward()
    return -value.item(), logp.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "coefficient"),
    [
        (1.5, 1, -1.2, 1.2),
        (1.5, -1, 1.5, -1.5),
        (0.6, 1, -0.6, 0.6),
        (0.6, -1, 0.8, 0),
        (1.1, 1, -1.1, 1.1),
        (4, -1, 3, 0),
    ],
)
def test_sheet_d_table_of_the_clip(batch_of, ratio, advantage, loss, coefficient) -> None:
    code = clipped(batch_of, ratio, advantage, aepo_clip(variant="code"))
    assert code == pytest.approx((loss, coefficient), abs=1e-6)
    if ratio < 4:
        assert clipped(batch_of, ratio, advantage, aepo_clip()) == pytest.approx(code, abs=1e-12)
    else:
        assert clipped(batch_of, ratio, advantage, aepo_clip()) == pytest.approx((4, -4), abs=1e-12)


def test_the_coefficient_is_the_papers_everywhere(batch_of) -> None:
    """F = 1 + high where δ > 1 + high and A > 0; 0 where δ < 1 - low and A < 0; δ otherwise."""
    for ratio in np.linspace(0.3, 2.5, 23):
        for advantage in (-2.0, -0.5, 0.5, 2.0):
            held = (
                1.2
                if ratio > 1.2 and advantage > 0
                else 0.0
                if ratio < 0.8 and advantage < 0
                else ratio
            )
            _, found = clipped(batch_of, ratio, advantage, aepo_clip())
            assert found == pytest.approx(held * advantage, abs=1e-9)


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_bounds_that_hold_nothing_or_everything_keep_the_gradient_finite(
    batch_of, advantage
) -> None:
    assert clipped(batch_of, 3.0, advantage, aepo_clip(), clip=inf) == pytest.approx(
        (-3 * advantage, 3 * advantage)
    )
    assert clipped(batch_of, 1.0, advantage, aepo_clip(), clip=0.0) == pytest.approx(
        (-advantage, advantage)
    )


def test_the_whole_is_its_parts(toy) -> None:
    control = aepo(group=6, scale=0.4)
    assert control.sets == {"branching", "surrogate"} and control.needs.now
    assert [part.name for part in control.parts] == [
        "aepo-branching",
        "aepo-clip",
        "aepo-advantage",
    ]
    plan = control.plan
    assert plan(None, Event("start", 0, -1, 6), KEY, control.init()) == [Spawn(0, trained=False)]
