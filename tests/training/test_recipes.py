"""Recipes: TOML files of environments, and rows of `METHODS` that run a method on GRPO's advantage or its own."""

import pytest

from turngym.training.comparison.plan import OWN
from turngym.training.config import RECIPES, read_recipe, recipe_keys, recipe_names
from turngym.training.control import chain
from turngym.training.methods import METHOD_RECIPES, METHODS, parse_methods

TASKS = {"math-python", "household", "search", "sums-smollm2"}
PARTS = {"aepo-advantage", "aepo-branching", "aepo-clip", "tis"}  # of other methods, or corrections
RUN = {"steps": 60, "group": 8, "vocabulary": 640}


def test_every_method_has_a_recipe_or_is_a_part():
    assert set(METHOD_RECIPES) == set(METHODS) - PARTS
    assert {path.stem for path in RECIPES.glob("*.toml")} == TASKS
    assert recipe_names() == sorted(TASKS | set(METHOD_RECIPES))


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_names_methods_that_go_together_and_bring_an_advantage(name):
    control = chain(*parse_methods(read_recipe(name).method, RUN))
    assert control.credit is not None


@pytest.mark.parametrize("name", sorted(METHOD_RECIPES))
def test_a_methods_recipe_runs_that_method_and_sets_only_what_is_its_own(name):
    keys = recipe_keys(name)
    assert name in {part.partition(":")[0] for part in keys["method"].split(",")}
    assert set(keys) <= set(OWN)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_recipe_says_in_its_first_line_what_it_is(name):
    first = (RECIPES / f"{name}.toml").read_text().partition("\n")[0]
    assert first.startswith("# ") and 20 < len(first) <= 120


@pytest.mark.parametrize("name", sorted(METHOD_RECIPES))
def test_clips_have_a_second_update_to_act_in(name):
    """On the first one the ratio is 1 everywhere."""
    control = chain(*parse_methods(read_recipe(name).method, RUN))
    if control.sets & {"clip", "replay"} == {"clip"} or name in ("aepo", "ppo"):  # a replay has its own update
        assert read_recipe(name).schedule.updates > 1
