"""ARPO (agentic.md, sheet C) on trees written by hand, and on trees that the real scheduler grew."""

from dataclasses import replace
from functools import partial
from math import log

import numpy as np
import pytest
import torch

from turngym.agents.journal.trees import to_json
from turngym.agents.trajectory import Event, Spawn
from turngym.training.control.branching import decides, draws, just_taken, surprise, uncertainty
from turngym.training.data.batch import Now
from turngym.training.loss.aggregation import shared_mean
from turngym.training.loss.credit import group_advantage
from turngym.training.loss.objective import start_terms
from turngym.training.methods.sampling.arpo import arpo

SMALL = {"vocabulary": 2, "tokens": 2}  # so that a rise of an entropy counts


def test_the_statistic_is_of_the_first_tokens_that_were_drawn(tree_of) -> None:
    tree = tree_of([[[0.5, 0.25, 4.0], [1.0]]])
    assert uncertainty(tree, 1, 2, 2) == pytest.approx(0.75 / log(2))
    tree.turns[1] = replace(tree.turns[1], sampled=np.array([False, True, True]))
    assert uncertainty(tree, 1, 2, 2) == pytest.approx(4.25 / log(2))
    assert surprise(tree, 3, 1, 2, 2) == pytest.approx((1.0 - 4.25) / log(2))
    assert uncertainty(tree_of([[[]]]), 1, 2, 2) == 0


@pytest.mark.parametrize(("rise", "chance"), [(-1, 0.3), (0, 0.5), (0.5, 0.6), (3, 1.0)])
def test_sheet_c_table_of_probabilities(tree_of, rise, chance) -> None:
    """The path's second turn exceeds its first by `rise`; of many keys that share is forked."""
    tree = tree_of([[[2.0], [2.0 + rise * log(2)]]])
    tree.add(replace(tree.turns[2], parent=3))  # an answer to the second turn
    plan, trials = arpo(variant="code", **SMALL).plan, 4000
    forked = [plan(tree, Event("turn", 4, 0, 5), (0, 0, task, 0), {}) for task in range(trials)]
    assert {tuple(spawns) for spawns in forked} <= {(), (Spawn(4),)}
    assert np.mean([len(spawns) for spawns in forked]) == pytest.approx(
        chance, abs=0.03 if chance < 1 else 0
    )


def test_draws_depend_on_the_key_alone_and_every_copy_is_a_trial_of_its_own() -> None:
    keys = [
        (0, step, task, branch, 2)
        for step in range(10)
        for task in range(10)
        for branch in range(10)
    ]
    counts = [draws(0.3, 3, key) for key in keys]
    assert counts == [draws(0.3, 3, key) for key in keys]
    assert np.bincount(counts, minlength=4) / len(keys) == pytest.approx(
        [0.343, 0.441, 0.189, 0.027], abs=0.04
    )
    assert draws(0.0, 5, keys[0]) == 0 and draws(1.0, 5, keys[0]) == 5


def shared(batch_of, sharers, rewards):
    """Return a batch of paths of two tokens each, the first of which `sharers` have in common, and their advantage."""
    batch = batch_of([[2]] * len(rewards), scores=rewards)
    token = torch.tensor(
        [0 if i % 2 == 0 and i // 2 in sharers else i + 1 for i in range(2 * len(rewards))]
    )
    advantage = group_advantage(
        torch.tensor(rewards, dtype=torch.float64),
        torch.zeros(4, dtype=torch.long),
        normalize="std",
        ddof=1,
        eps=1e-6,
    )
    return replace(batch, token=token), advantage[batch.path]


@pytest.mark.parametrize(
    ("sharers", "prefix"), [((0, 2), 0.0), ((0, 1, 2), 0.288675), ((0, 1, 2, 3), 0.0)]
)
def test_sheet_c_example_of_hard_attribution(batch_of, sharers, prefix) -> None:
    batch, advantage = shared(batch_of, sharers, [1.0, 1.0, 0.0, 0.0])
    assert advantage[::2].tolist() == pytest.approx(
        [0.866024, 0.866024, -0.866024, -0.866024], abs=1e-6
    )
    terms, now = start_terms(advantage), Now.at_start(batch)
    hard = arpo(attribution="hard").shape(terms, batch, now, {}).advantage
    for slot in range(8):
        inside = slot % 2 == 0 and slot // 2 in sharers
        assert hard[slot].item() == pytest.approx(
            prefix if inside else advantage[slot].item(), abs=1e-6
        )
    assert arpo().shape(terms, batch, now, {}) is terms


def test_the_shared_mean_follows_the_tokens_not_the_paths(batch_of) -> None:
    batch = replace(batch_of([[2], [2]]), token=torch.tensor([5, 1, 5, 3]))
    assert shared_mean(torch.tensor([1.0, 2.0, 5.0, 4.0]), batch).tolist() == [3, 2, 3, 4]


def test_what_was_just_taken(tree_of) -> None:
    tree = tree_of([[[1.0], [1.0]], [[1.0]]])  # 0 prompt, 1 said, 2 answer, 3 said; 4 said
    assert just_taken(tree, Event("turn", 2, 0, 1)) == [1]
    assert just_taken(tree, Event("end", 3, 0, 1)) == [1, 3]
    assert just_taken(tree, Event("end", 2, 0, 1)) == []  # the context was full before another turn
    assert (
        just_taken(tree, Event("start", 0, -1, 1))
        == just_taken(tree, Event("idle", 0, -1, 1))
        == []
    )


def test_an_answer_is_decided_on_once(tree_of, turn_of) -> None:
    tree = tree_of([[[0.5], [2.0]]])
    plan, event = arpo(**SMALL).plan, Event("end", 3, 0, 4)
    assert decides(tree, [1, 3])
    assert plan(tree, event, (0, 0, 0, 0), {}) == [Spawn(2)]
    assert plan(tree, replace(event, budget=0), (0, 0, 0, 0), {}) == []
    tree.add(turn_of(2, [9.0]))  # of the sibling, behind the same answer
    assert plan(tree, Event("end", 4, 1, 3), (0, 0, 0, 1), {}) == []
    assert plan(tree, event, (0, 0, 0, 0), {}) == [Spawn(2)]  # the first still decides
    assert not decides(tree, [1]) and not decides(tree, [1, 4])


def rise(tree, leaf):
    """Return by how much the turn behind a fork, on the path that it was forked from, exceeds the path's first."""
    path = tree.path(tree.leaves[leaf.parent])
    first, there = path[1], path[path.index(leaf.fork) + 1]
    one, other = (
        tree.turns[node].entropy[:2].astype(np.float64).sum() / np.log(2) for node in (there, first)
    )
    return one - other


@pytest.mark.parametrize("beam", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_grown_trees_spend_their_budget_where_the_rule_says(grow, beam) -> None:
    trees = grow(arpo(group=12, initial=4, beam=beam, weight=0.3, **SMALL), 12)
    forked = [(tree, leaf) for tree in trees for leaf in tree.leaves if leaf.parent >= 0]
    assert len(forked) > 20
    for tree in trees:
        assert sum(leaf.trained for leaf in tree.leaves) == len(tree.leaves) == 12
        assert [leaf.parent for leaf in tree.leaves[:4]] == [-1] * 4
    for tree, leaf in forked:
        assert tree.turns[leaf.fork].role == "user" and leaf.fork != 0 and leaf.token == 0
        assert rise(tree, leaf) > 0  # base + weight·Δ > threshold, which is base
        assert sum(turn.parent == leaf.fork for turn in tree.turns) <= beam
    for tree in trees:
        if tree.leaves[-1].parent < 0:  # topped up: the budget was there for every answer
            wanted = [node for node in answers(tree) if first_rise(tree, node) > 0]
            assert {leaf.fork for leaf in tree.leaves[4:] if leaf.parent >= 0} == {
                *wanted
            } - behind_topped(tree)


def answers(tree):
    return [
        node
        for node, turn in enumerate(tree.turns)
        if turn.role == "user" and node and children(tree, node)
    ]


def children(tree, node):
    return [child for child, turn in enumerate(tree.turns) if turn.parent == node]


def first_rise(tree, node):
    """Return the rise of the turn behind an answer that was there first: that of the path with the lowest number."""
    leaf = next(leaf for leaf in tree.leaves if node in tree.path(leaf))
    path = tree.path(leaf)
    one, other = (
        tree.turns[said].entropy[:2].astype(np.float64).sum()
        for said in (path[path.index(node) + 1], path[1])
    )
    return one - other


def behind_topped(tree):
    """Return the turns of paths that began when nothing was left."""
    late = [leaf for leaf in tree.leaves[4:] if leaf.parent < 0]
    return {node for leaf in late for node in tree.path(leaf)}


def test_the_code_forks_behind_the_answer_while_the_path_goes_on(grow) -> None:
    control = arpo(group=10, initial=3, variant="code", **SMALL)
    trees = grow(control, 10)
    forked = [(tree, leaf) for tree in trees for leaf in tree.leaves if leaf.parent >= 0]
    assert len(forked) > 20 and {len(tree.leaves) for tree in trees} == {10}
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
        assert draws(0.5 + 0.2 * (last - first), 1, (1, 2, tree.task, leaf.parent, len(said))) == 1
    assert [to_json(tree) for tree in grow(control, 10, in_flight=1)] == [
        to_json(tree) for tree in trees
    ]
    late = [leaf for tree in trees for leaf in tree.leaves[3:] if leaf.parent < 0]
    begun = {leaf.branch for leaf in late}
    assert late and any(
        leaf.parent in begun for _, leaf in forked
    )  # topped up one by one, and forked in turn


@pytest.mark.parametrize("method", [arpo, partial(arpo, variant="code")])
def test_without_an_answer_it_is_plain_grpo(grow, method) -> None:
    for tree in grow(method(group=7, **SMALL), 7, most=1):
        assert [leaf.parent for leaf in tree.leaves] == [-1] * 7


def test_as_many_at_the_prompt_as_there_are_paths_is_no_branching(grow) -> None:
    assert arpo(group=5, initial=5).plan is None and arpo(group=1).plan is None
    assert {leaf.parent for tree in grow(arpo(group=5, initial=5), 5) for leaf in tree.leaves} == {
        -1
    }


def test_a_beam_of_one_never_forks(grow) -> None:
    for method in (arpo, partial(arpo, variant="code")):
        trees = grow(method(group=6, beam=1, base=9.0), 6, tasks=5)
        assert {leaf.parent for tree in trees for leaf in tree.leaves} == {-1}


def test_half_of_the_group_begins_at_the_prompt() -> None:
    start = Event("start", 0, -1, 9)
    for group, initial in ((16, 8), (5, 3), (2, 1)):
        assert arpo(group=group).plan(None, start, (0, 0, 0, -1), {}) == [Spawn(0, n=initial)]
    assert arpo(group=12, initial=6).plan(None, start, (0, 0, 0, -1), {}) == [Spawn(0, n=6)]
