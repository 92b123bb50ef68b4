"""Random trees: that they branch everywhere, and that a path which is not its own actions' is found."""

from dataclasses import replace

import numpy as np
import pytest

from turngym.agents.journal.replay import replay
from turngym.envs import Outcome
from turngym.envs.registry import make
from turngym.tests.verify.methods import branching
from turngym.tests.verify.methods.branching import BUDGET, acts, branch_row, fault


@pytest.fixture(scope="module")
def grown():
    """Eight trees and their house."""
    env = make("turngym/Household-v0", size="tiny", max_turns=4)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branching, "fault", lambda env, tree: seen.append(tree) or "")
        row = branch_row("trees", env, acts, 8, 0)
    assert (row.held, row.of) == (8, 8)
    return env, seen


def test_trees_branch_behind_answers_and_inside_turns_and_replay(grown):
    env, trees = grown
    forked = [leaf for tree in trees for leaf in tree.leaves if leaf.parent >= 0]
    assert any(leaf.token for leaf in forked) and any(not leaf.token for leaf in forked)
    assert [fault(env, tree) for tree in trees] == [""] * 8
    done = [
        turn.text
        for tree in trees
        for turn in tree.turns
        if turn.role != "assistant" and turn.parent >= 0
    ]
    assert np.mean(["Nothing happens" in text for text in done]) < 0.9  # some commands do something


def test_another_answer_a_path_too_few_and_a_failure_are_faults(grown):
    env, trees = grown
    tree = replace(trees[0], turns=list(trees[0].turns), leaves=list(trees[0].leaves))
    node = next(node for node, turn in enumerate(tree.turns) if node and turn.role != "assistant")
    tree.turns[node] = replace(tree.turns[node], text="You see a unicorn 1.")
    assert fault(env, tree) == str(replay(env, tree)) != ""
    trained = [leaf for leaf in trees[0].leaves if leaf.trained]
    assert (
        fault(env, replace(trees[0], leaves=trained[:-1]))
        == f"{BUDGET - 1} trained paths of {BUDGET}, 0 failed"
    )
    lost = [replace(trained[0], outcome=Outcome.INFRA_ERROR), *trained[1:]]
    assert (
        fault(env, replace(trees[0], leaves=lost))
        == f"{BUDGET} trained paths of {BUDGET}, 1 failed"
    )
