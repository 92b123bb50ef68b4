import math

import numpy as np
import pytest

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.metrics.telemetry import forks


def said(parent, **options):
    zeros = np.zeros(4, np.float32)
    return Turn(
        parent, "assistant", "", np.arange(4, dtype=np.int32), zeros == 0, zeros, zeros, **options
    )


def told(parent):
    return Turn.unsampled(parent, "user", "", np.zeros(2, np.int32))


def ended(node, branch, score, **options):
    return Leaf(node, branch, Outcome.DONE, "answered", score, **options)


@pytest.fixture
def tree():
    """Branch 0 has three turns; others are forked behind its answers, inside its turns, and off a fork."""
    tree = Tree((0, 0, 0), 0, "a", [told(-1), said(0), told(1), said(2), told(3), said(4)])
    tree.turns += [
        said(2),
        told(6),
        said(7),
        said(4),
        said(2, twin=3, copied=2),
        said(0, twin=1, copied=1),
        said(0),
    ]
    tree.leaves += [
        ended(5, 0, 0.25),
        ended(8, 1, 1.0, parent=0, fork=2),  # behind the first answer: turn 1 is its first own
        ended(9, 2, 0.0, parent=0, fork=4),  # behind the second: turn 2
        ended(10, 3, 0.75, parent=0, fork=3, token=2),  # inside turn 1
        ended(11, 4, 0.5, parent=0, fork=1, token=1),  # inside turn 0
        ended(12, 5, 1.0),  # at the prompt
    ]
    return tree


def test_forks_are_counted_by_turn_and_by_kind_with_what_they_earned(tree):
    assert forks([tree]) == {
        "probes": 0,
        "forks": 4,
        "forks_behind": 2,
        "forks_inside": 2,
        "forks_turn/0": 1,
        "forks_turn/1": 2,
        "forks_turn/2": 1,
        "forks_gain": (0.75 - 0.25 + 0.5 + 0.25) / 4,
        "forks_gain_behind": (0.75 - 0.25) / 2,
        "forks_gain_inside": (0.5 + 0.25) / 2,
        "forks_gain_turn/0": 0.25,
        "forks_gain_turn/1": (0.75 + 0.5) / 2,
        "forks_gain_turn/2": -0.25,
    }


def test_a_fork_is_held_against_the_path_it_was_forked_from(tree):
    tree.leaves.append(ended(8, 6, 0.5, parent=1, fork=7))
    found = forks([tree])
    assert (found["forks_turn/2"], found["forks_gain_turn/2"]) == (2, (-0.25 - 0.5) / 2)


def test_several_trees_add_up(tree):
    found, once = forks([tree, tree]), forks([tree])
    assert all(
        found[name] == (value if "gain" in name else 2 * value) for name, value in once.items()
    )


@pytest.mark.parametrize("failed", [1, 0])
def test_a_failed_path_has_earned_nothing_that_could_be_compared(tree, failed):
    leaf = tree.leaves[failed]
    tree.leaves[failed] = Leaf(**{**vars(leaf), "outcome": Outcome.INFRA_ERROR, "score": math.nan})
    found = forks([tree])
    assert (found["forks"], found["forks_turn/1"]) == (4, 2)
    if failed:
        assert (
            found["forks_gain"] == pytest.approx((-0.25 + 0.5 + 0.25) / 3)
            and found["forks_gain_turn/1"] == 0.5
        )
    else:
        assert math.isnan(found["forks_gain"]) and "forks_gain_turn/1" not in found


def test_a_probe_is_counted_but_earns_nothing(tree):
    tree.leaves[2] = Leaf(**{**vars(tree.leaves[2]), "trained": False})
    found = forks([tree])
    assert (found["probes"], found["forks"], found["forks_gain_behind"]) == (1, 4, 0.75)
    assert "forks_gain_turn/2" not in found


def test_without_forks_there_is_no_gain():
    found = forks([Tree((0, 0, 0), 0, "a", [told(-1), said(0)], [ended(1, 0, 1.0)])])
    assert {name for name, value in found.items() if value == 0} == {
        "probes",
        "forks",
        "forks_behind",
        "forks_inside",
    }
    assert {name for name, value in found.items() if math.isnan(value)} == {
        "forks_gain",
        "forks_gain_behind",
        "forks_gain_inside",
    }
