"""Recipes: TOML files of environments, and rows of `METHODS` that run a method on GRPO's advantage or its own."""

import pytest

from turngym.agents.models.memory import GIB, Load, count_of, needed
from turngym.tests.support.pages import tables
from turngym.training.comparison.plan import OWN
from turngym.training.control.chain import chain
from turngym.training.methods import METHOD_RECIPES, METHODS, parse_methods
from turngym.training.runs.config import RECIPES, read_recipe, recipe_keys, recipe_names
from turngym.training.runs.dry_run import PUBLISHED, _server_share

TASKS = {
    "math-python",
    "household",
    "search",
    "sums-smollm2",
    "math-python-smollm2",
    "household-smollm2",
}
PUBLIC = {"gsm8k-python", "hotpotqa", "alfworld"}  # tasks, to be joined with a model
MODELS = {
    "qwen2.5-0.5b": 24,
    "qwen2.5-1.5b": 24,
    "qwen2.5-7b": 80,
    "qwen3-8b": 80,
}  # GB of the card
PARTS = {"aepo-advantage", "aepo-branching", "aepo-clip", "tis"}  # of other methods, or corrections
RUN = {"steps": 60, "group": 8, "vocabulary": 640}


def test_every_method_has_a_recipe_or_is_a_part():
    assert set(METHOD_RECIPES) == set(METHODS) - PARTS
    shipped = TASKS | PUBLIC | set(MODELS)
    assert {path.stem for path in RECIPES.glob("*.toml")} == shipped
    assert recipe_names() == sorted(shipped | set(METHOD_RECIPES))


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_names_methods_that_go_together_and_bring_an_advantage(name):
    control = chain(*parse_methods(read_recipe(name).method, RUN))
    assert control.credit is not None


@pytest.mark.parametrize("name", sorted(METHOD_RECIPES))
def test_a_methods_recipe_runs_that_method_and_sets_only_what_is_its_own(name):
    keys = recipe_keys(name)
    assert name in {part.partition(":")[0] for part in keys["method"].split(",")}
    assert set(keys) <= set(OWN)


@pytest.mark.parametrize("name", sorted(TASKS | PUBLIC | set(MODELS)))
def test_a_recipe_says_in_its_first_line_what_it_is(name):
    first = (RECIPES / f"{name}.toml").read_text().partition("\n")[0]
    assert first.startswith("# ") and 20 < len(first) <= 120


@pytest.mark.parametrize("name", sorted(METHOD_RECIPES))
def test_clips_have_a_second_update_to_act_in(name):
    """On the first one the ratio is 1 everywhere."""
    control = chain(*parse_methods(read_recipe(name).method, RUN))
    if control.sets & {"clip", "replay"} == {"clip"} or name in (
        "aepo",
        "ppo",
    ):  # a replay has its own update
        assert read_recipe(name).schedule.updates > 1


@pytest.mark.parametrize("name", sorted(PUBLIC | set(MODELS)))
def test_every_value_of_a_recipe_for_gpus_is_explained(name):
    lines = (RECIPES / f"{name}.toml").read_text().splitlines()[1:]
    told = [
        line
        for line in lines
        if not line.startswith(("env =", "policy =", "device =")) and "  # " not in line
    ]
    assert told == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tasks", sorted(PUBLIC))
def test_tasks_and_a_model_are_one_recipe_whose_learner_fits_beside_its_server(tasks, model):
    config = read_recipe(f"{tasks}+{model}")
    assert config.env == read_recipe(tasks).env and config.policy in PUBLISHED
    assert config.sampling.max_tokens == (
        2048 if model == "qwen3-8b" else read_recipe(tasks).sampling.max_tokens
    )
    parts = gpu_parts(model)
    card = MODELS[model] * 1e9
    assert (
        sum(parts.values()) < 0.9 * (card - parts["share"] - 1 * GIB) + parts["share"]
    )  # a tenth is left


def gpu_parts(model):
    """Bytes that the learner of a recipe for GPUs takes, and the server's share."""
    config, shape = read_recipe(f"gsm8k-python+{model}"), PUBLISHED[read_recipe(model).policy]
    work = Load(config.micro_tokens, config.micro_tokens, config.checkpointing, copied=False)
    takes = needed(shape, count_of(shape), config.machine.dtype, config.lora, 0, work)
    parts = {name: size for name, size in vars(takes).items() if size}
    return parts | {"share": MODELS[model] * 1e9 * _server_share(config.engine.server_option)}


def test_the_page_on_gpus_has_what_is_computed():
    (rows,) = (found for title, found in tables("docs/gpu.md").items() if title.endswith(": GiB"))
    for column, model in enumerate(MODELS, 1):
        parts = gpu_parts(model)
        told = [
            parts["weights"],
            parts["lora"] + parts["optimizer"],
            parts["activations"],
            parts["logits"],
        ]
        told += [sum(told), parts["share"]]
        assert [float(cells[column]) for cells in rows] == [
            round(size / GIB, 1) for size in told
        ], model


@pytest.mark.parametrize("name", ["gsm8k-python+qwen2.5", "+", "gsm8k-python+"])
def test_a_part_that_is_no_recipe_is_named(name):
    with pytest.raises(FileNotFoundError, match=r"there is no recipe '(qwen2\.5)?'"):
        read_recipe(name)
