"""Methods that compare the paths of a group, and groups of a single path."""

import re

import numpy as np
import pytest
import torch

from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import Outcome
from turngym.training.control.chain import chain
from turngym.training.data.packing import pack
from turngym.training.methods import COMPARING, METHOD_RECIPES, check_group, parse_methods
from turngym.training.metrics.telemetry import counts
from turngym.training.runs.config import TrainConfig
from turngym.training.runs.run import prepare

BASES = sorted(
    {recipe["method"].partition(",")[0].partition(":")[0] for recipe in METHOD_RECIPES.values()}
)


def group(task, *scores):
    """A tree whose paths say two tokens each."""
    tree = Tree(
        (0, 0, task), task, str(task), [Turn.unsampled(-1, "user", "q", np.array([1], np.int32))]
    )
    for branch, score in enumerate(scores):
        column = np.full(2, -0.5, np.float32)
        node = tree.add(
            Turn(
                0,
                "assistant",
                "a",
                np.array([2, 3], np.int32),
                column < 0,
                column,
                column,
                reward=score,
            )
        )
        tree.leaves.append(Leaf(node, branch, Outcome.DONE, "answered", score))
    return tree


@pytest.mark.parametrize("name", BASES)
def test_the_methods_that_compare_are_those_that_learn_nothing_from_equal_scores(name):
    (control,) = parse_methods(name, {"steps": 9, "group": 2, "vocabulary": 9})
    if control.credit is None or control.needs.modules:
        assert name not in COMPARING  # the score itself, or a value network
        return
    batch = pack([group(0, 1.0, 1.0), group(1, 0.0, 0.0)], control.needs.columns).batch
    advantage = control.credit(batch, control.init())
    assert (name in COMPARING) == bool((advantage == 0).all())


@pytest.mark.parametrize(
    "method", [*sorted(COMPARING), "reinforce:baseline=group", "reinforce-pp:baseline=group"]
)
def test_a_group_of_one_is_refused_by_the_methods_that_compare(method, tmp_path):
    name = method.partition(":")[0]
    what = f"group is 1, but {name} judges a path by the others of its group; use --group 8, or a method that needs no"
    with pytest.raises(ValueError, match=re.escape(what)):
        prepare(
            TrainConfig().changed(
                method=f"{method},entropy-bonus", group=1, out=str(tmp_path / "run")
            )
        )
    assert not (tmp_path / "run").exists()
    check_group(method, 2)


def test_a_group_of_one_is_no_mistake_where_nothing_is_compared():
    for method in ("reinforce", "reinforce-pp", "ppo,entropy-bonus", "bilevel-gae"):
        check_group(method, 1)


def test_a_path_whose_others_failed_keeps_its_score_and_is_not_silent():
    """As GRPO did where it was asked for groups of one: a loss of minus the mean reward, and no comparison."""
    alone = [group(0, 0.75)]
    control = chain(*parse_methods("grpo"))
    assert control.credit is not None
    advantage = control.credit(pack(alone).batch, control.init())
    assert torch.allclose(advantage, torch.full((2,), 0.75), atol=1e-5)
    assert np.isnan(counts(alone)["silent_groups"])
