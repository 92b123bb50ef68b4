"""CURE, TreeRL and FR3E: where trees are forked, beside the sheets' tables, and what the tokens of a tree are worth."""

from dataclasses import replace

import pytest
import torch

from turngym.agents.trajectory import Event, Spawn
from turngym.training.control.control import Control, advantages
from turngym.training.data.batch import Now
from turngym.training.loss.objective import start_terms
from turngym.training.methods import METHODS
from turngym.training.methods.contrib.fr3e import begun_at, tempered
from turngym.training.methods.sampling.cure import ranked


def test_cure_begins_again_before_the_most_uncertain_token_but_the_first(tree_of) -> None:
    tree = tree_of([[[9.0, 0.1, 2.0, 1.5, 0.3]]])
    plan = METHODS["cure"](group=4, initial=1, top=1).plan
    assert plan(tree, Event("start", 0, -1, 4), (0, 0, 0, -1), {}) == [Spawn(0, n=1)]
    assert plan(tree, Event("idle", 0, -1, 3), (0, 0, 0, -1), {}) == [Spawn(1, 2, n=3)]
    assert (
        plan(tree, Event("idle", 0, -1, 1), (0, 0, 0, -1), {}) == []
    )  # what was not granted begins at the prompt
    assert ranked(tree, [1], lambda turn: turn.entropy) == [(1, 2), (1, 3), (1, 4), (1, 1)]
    assert METHODS["cure"](group=4, initial=4).plan is None


@pytest.mark.parametrize(("method", "begun"), [("cure", 3), ("treerl", 2), ("fr3e", 4)])
def test_grown_trees_fork_inside_turns_and_keep_their_number_of_paths(grow, method, begun) -> None:
    trees = grow(METHODS[method](group=12), 12)
    assert {len(tree.leaves) for tree in trees} == {12}
    inside = [leaf for tree in trees for leaf in tree.leaves if leaf.parent >= 0 and leaf.token]
    assert len(inside) > 20
    for tree in trees:
        assert sum(leaf.parent < 0 for leaf in tree.leaves) >= begun
        for leaf in (one for one in tree.leaves if one.token):
            assert tree.turns[leaf.fork].sampled[leaf.token]


def test_a_shared_beginning_is_learned_from_once(batch_of) -> None:
    batch = replace(batch_of([[2], [2]]), token=torch.tensor([5, 1, 5, 3]))
    control: Control = METHODS["cure"](group=4)
    terms = control.shape(start_terms(batch.logp_old), batch, Now.at_start(batch), {})
    assert terms.weight.tolist() == [1, 1, 0, 1]


def test_sheet_i1_values_of_segments(batch_of) -> None:
    """Leaves 1, 0, 1 share a first token, a fourth of score 0 does not."""
    batch = batch_of([[2], [2], [2], [1]], scores=[1.0, 0.0, 1.0, 0.0])
    batch = replace(batch, token=torch.tensor([0, 1, 0, 2, 0, 3, 4]))
    paper, code = (
        advantages(METHODS["treerl"](variant=name), batch, {}).tolist()
        for name in ("paper", "code")
    )
    assert paper == pytest.approx(
        [0.2566, 1.111111, 0.2566, -1.555556, 0.2566, 1.111111, -1.333333], abs=1e-6
    )
    assert code == pytest.approx(
        [0.2566, 1.205033, 0.2566, -1.461633, 0.2566, 1.205033, -1.333333], abs=1e-6
    )


def test_sheet_i2_progress_damps_and_regress_amplifies(tree_of) -> None:
    scores = torch.tensor([0.25, 0.5, 0.5, 0.125], dtype=torch.float64)
    alpha = tempered(scores, torch.zeros(4).long(), torch.arange(4.0))
    assert alpha.tolist() == pytest.approx([1.0, 0.778801, 1.0, 1.454991], abs=1e-6)
    tree = tree_of([[[1.0, 2.0, 3.0]]] * 3)
    tree.leaves[1:] = [
        replace(leaf, parent=0, fork=1, token=3 - at) for at, leaf in enumerate(tree.leaves[1:])
    ]
    assert begun_at(tree) == [0, 2, 1]
