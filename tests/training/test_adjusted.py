"""Recipes with other policies and environments than those that they are made for."""

import pytest

from turngym.agents.cli.settings import flat
from turngym.agents.models import resolve as source
from turngym.agents.models.resolve import MODELS
from turngym.training.cli.train import train_of
from turngym.training.runs.config import (
    GRADED,
    adjust,
    adjusted,
    read_recipe,
    recipe_names,
    recipe_values,
)

SEARCH, HOUSEHOLD, MATH = "turngym/Search-v0", "turngym/Household-v0", "turngym/MathPython-v0"
SMALL = MODELS[0][1]


@pytest.fixture
def policy(stranger):
    return {"policy": str(stranger)}


def changed(recipe, **values):
    """What of a recipe's config is other than the recipe says."""
    now, before = flat(adjusted(recipe, values)[0]), flat(read_recipe(recipe))
    return {
        name: value for name, value in now.items() if value != before[name] and name not in values
    }


@pytest.mark.parametrize(
    "name",
    [name for name in recipe_names() if recipe_values(name)[0].get("policy", "tiny") == "tiny"],
)
def test_a_recipe_stays_as_it_is_with_the_policy_it_is_made_for(name):
    assert adjusted(name, {})[1] == ()
    assert changed(name) == ({} if "max_tokens" in recipe_values(name)[0] else {"max_tokens": 96})


def test_no_value_of_a_shipped_recipe_that_was_fitted_to_its_policy_reaches_a_model(policy):
    for name in recipe_names():
        found = flat(adjusted(name, policy)[0])
        assert {key: found[key] for key in SMALL if key != "difficulty"} == {
            key: value for key, value in SMALL.items() if key != "difficulty"
        }
        assert found["option"] == ()
        assert found["difficulty"] == (
            SMALL["difficulty"] if found["env"] in GRADED and not found["tasks"] else None
        )


@pytest.mark.parametrize(("size", "row"), [(4.9e8, 0), (1.5e9, 1), (7.6e9, 2)])
def test_the_defaults_are_those_of_the_models_size(policy, monkeypatch, size, row):
    monkeypatch.setattr(source, "parameters", lambda folder: size)
    found = flat(adjusted("math-python", policy)[0])
    assert {key: found[key] for key in MODELS[row][1]} == MODELS[row][1]


def test_what_is_given_stays(policy):
    given = {
        "max_tokens": 7,
        "lr": 0.5,
        "difficulty": (5,),
        "option": ("max_turns=9",),
        "checkpointing": False,
    }
    values = flat(adjusted("math-python", {**policy, **given})[0])
    assert {name: values[name] for name in given} == given


def test_a_run_says_what_it_took_from_where(policy):
    assert adjusted("math-python", {**policy, "lr": 1e-4, "prompts": 4})[1] == (
        "from the defaults for models, as the recipe math-python is made for the policy tiny: max_tokens 512, "
        "difficulty 1 2 3, group 8, micro_tokens 2048, checkpointing true",
        "not taken from the recipe math-python, as they are for the policy tiny: option max_turns=3",
    )
    assert adjusted("search", {**policy, "env": HOUSEHOLD, **SMALL})[1] == (
        f"not taken from the recipe search, as they are for the environment {SEARCH}: "
        "option size=tiny hops=1 k=1 max_turns=3",
    )
    assert adjusted("math-python", {"env": HOUSEHOLD, "difficulty": (2,)})[1] == (
        f"not taken from the recipe math-python, as they are for the environment {MATH}: option max_turns=3",
    )


def test_options_of_one_environment_are_never_sent_to_another():
    assert changed("math-python", env=SEARCH) == {
        "difficulty": None,
        "option": (),
        "max_tokens": 96,
    }
    assert changed("math-python", env=MATH) == {"max_tokens": 96}


def test_a_recipe_file_of_ones_own_keeps_what_it_sets(policy, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(
        f'policy = "{policy["policy"]}"\nlr = 0.002\noption = ["max_turns=2"]\ntasks = "x.jsonl"\n'
    )
    config, lines = adjusted(str(mine), {})
    values = flat(config)
    assert (values["lr"], values["option"], values["tasks"]) == (0.002, ("max_turns=2",), "x.jsonl")
    assert (values["max_tokens"], values["difficulty"]) == (
        512,
        None,
    )  # a file of tasks has its own difficulty
    assert lines == (
        f"from the defaults for models, as {mine} leaves them out: max_tokens 512, prompts 8, group 8, "
        "micro_tokens 2048, checkpointing true",
    )
    values = flat(adjusted(str(mine), {"env": SEARCH})[0])
    assert (values["lr"], values["option"], values["tasks"]) == (0.002, (), None)


def test_a_policy_that_goes_on_from_a_run_draws_turns_as_long_as_before(policy, monkeypatch):
    monkeypatch.setattr("turngym.training.runs.config.max_tokens", lambda source: 300)
    assert adjusted("math-python", policy)[0].sampling.max_tokens == 300


@pytest.mark.parametrize(
    ("args", "recipe", "given"),
    [
        ([], "math-python", ()),
        (["epo", "--lr", "0.1", "--max-tokens=7"], "epo", ("lr", "max_tokens")),
        (
            ["--no-checkpointing", "--eval_tasks", "3"],
            "math-python",
            ("checkpointing", "eval_tasks"),
        ),
    ],
)
def test_the_command_knows_what_it_was_given(args, recipe, given):
    command = train_of(["train", *args])
    assert (command.recipe, command.named) == (recipe, given)
    assert command.config == read_recipe(recipe)


def test_a_run_that_goes_on_takes_nothing_from_a_recipe(tmp_path):
    (tmp_path / "config.toml").write_text("[train]\nlr = 0.003\n")
    command = train_of(["train", "--resume", "--out", str(tmp_path)])
    assert (command.recipe, command.config.lr) == ("", 0.003)


def test_a_policy_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="'nowhere' is not a folder"):
        adjust(read_recipe("grpo").changed(policy="./nowhere"), "grpo", ["policy"])


def test_options_of_a_command_are_added_to_those_of_the_recipe():
    """A recipe's options stay unless the command names them."""
    recipe = dict(item.split("=") for item in recipe_values("math-python")[0]["option"])
    found = adjusted("math-python", {"option": ("level=landlock",)})[0].environment.kwargs()
    assert {str(found[name]) for name in recipe} == {*recipe.values()} and found[
        "level"
    ] == "landlock"
    assert (
        adjusted("math-python", {"option": ("max_turns=2",)})[0].environment.kwargs()["max_turns"]
        == 2
    )


def test_an_option_that_is_a_setting_stands_in_its_place():
    config = adjusted("math-python", {"option": ("difficulty=5",)})[0]
    assert config.environment.difficulty is None and config.environment.kwargs()["difficulty"] == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"option": ("max_turns=2", "max_turns=3")},
            "max_turns is given twice, the second time as 'max_turns=3'",
        ),
        (
            {"option": ("difficulty=5",), "difficulty": (1,)},
            "difficulty is given twice, by --difficulty and by --option",
        ),
    ],
)
def test_what_is_given_twice_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        adjusted("math-python", changes)
