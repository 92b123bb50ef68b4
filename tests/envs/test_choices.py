"""What a file may choose: every option of every kind of file has a decision, and what is not decided is refused."""

import inspect
import math
from dataclasses import fields
from pathlib import Path

import pytest

from turngym.agents.cli.evaluate import KEYS, Eval
from turngym.agents.cli.settings import flat
from turngym.envs import choices, registry
from turngym.envs.registry import ENVS, flag_of
from turngym.envs.reserved_choices import find_outside_paths, reserved_choices
from turngym.training.runs.config import TrainConfig

PAGE = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text("utf-8")
MODULES = (
    "os:system",
    "os.system",
    "own_tools:f",
    "a.b:c",
    "/tmp/x.py",
    "../x",
    "http://10.0.0.1/x",
    "~/x",
)
SHAPES = {
    "text": lambda name: name,
    "list": lambda name: [name],
    "list of lists": lambda name: [[name]],
    "list with a good word in front": lambda name: ["words", name],
    "keys of a table": lambda name: {name: 1},
    "values of a table": lambda name: {"a": name},
    "a table in a list": lambda name: [{name: name}],
    "a list in a table": lambda name: {"a": [name]},
    "text with commas": lambda name: f"words,{name}",
    "text with spaces": lambda name: f" {name} ",
}
# Texts that are read by people and models alone: a prompt may hold any sign, and nothing is looked up by it.
PROMPTS = ("system",)


def options_of(entry: registry.Entry) -> list[str]:
    creator = registry._load_factory(registry.spec_of(entry.id))
    return [*inspect.signature(creator).parameters, "shots"]


@pytest.mark.parametrize("entry", ENVS, ids=lambda entry: entry.id)
def test_each_option_of_each_environment_has_a_decision(entry):
    assert sorted({*options_of(entry)} - choices.OPTIONS.keys()) == []


def test_each_setting_of_a_training_run_has_a_decision():
    assert flat(TrainConfig()).keys() == choices.SETTINGS.keys()


def test_each_setting_of_an_evaluation_has_a_decision_and_a_suite_sets_the_others():
    settings = {*flat(Eval())} | {one.name for one in fields(Eval)} - {
        "endpoint",
        "sampling",
        "machine",
        "engine",
    }
    assert settings - {"options"} == choices.EVALUATION.keys()
    own = {name for name, rule in choices.EVALUATION.items() if rule is not choices.COMMAND}
    assert own == {*KEYS}


def test_every_option_is_in_the_table_of_the_page():
    known = {
        *choices.OPTIONS,
        *choices.SETTINGS,
        *(n for n, r in choices.EVALUATION.items() if r is choices.COMMAND),
    }
    assert sorted(name for name in known if f"`{name}`" not in PAGE) == []


@pytest.mark.parametrize("entry", ENVS, ids=lambda entry: entry.id)
def test_the_defaults_of_an_environment_may_stand_in_a_file(entry):
    defaults = registry.defaults_of(entry.id)
    data = {
        name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()
    }
    assert reserved_choices(data, entry.id) == []


def test_the_defaults_of_a_training_run_may_stand_in_a_file():
    values = flat(TrainConfig())
    assert [name for name, rule in choices.SETTINGS.items() if not rule(values[name])] == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("module", MODULES)
def test_no_option_takes_what_could_name_a_module_a_file_or_a_server_in_any_shape(shape, module):
    value = SHAPES[shape](module)
    for name in choices.OPTIONS:
        if name in PROMPTS and isinstance(value, str):
            continue
        if name in ("user", "task") and module == "os.system" and isinstance(value, str):
            continue  # the name of a model, or of an experiment, of which nothing is imported
        if name in ("config", "problem_field", "answer_field", "user") and isinstance(value, str):
            continue  # a name within a data set, or of a model behind the command's own server
        assert reserved_choices({name: value}, "turngym/MathPython-v0"), (name, value)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("module", MODULES[:4])
def test_an_option_that_is_not_known_takes_no_module_either(shape, module, monkeypatch):
    """Neither in turngym's environments, where it is refused, nor in those of others, where plain values are taken."""
    value = SHAPES[shape](module)
    assert reserved_choices({"grader": value}, "turngym/Math-v0")
    assert any(one != "env=own:Env" for one in reserved_choices({"grader": value}, "own:Env"))


@pytest.mark.parametrize(
    "value", [3, 0.5, True, None, "small", "two words", [1, 2], ["a", "b"], "A sentence. Or two."]
)
def test_an_environment_of_another_package_has_plain_options(value):
    assert reserved_choices({"grader": value}, "own:Env") == ["env=own:Env"]
    assert reserved_choices({"grader": value}, "turngym/Math-v0") != []


def test_a_file_may_name_tables_of_text_but_no_parquet_and_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weather").mkdir()
    for name in ("t.jsonl", "t.json", "t.csv", "t.tsv.gz"):
        assert reserved_choices({"tasks": name}, "turngym/Math-v0") == []
    for name in ("t.parquet", "weather", "weather/", "t.csv/x", "t.py"):
        assert reserved_choices({"tasks": name}, "turngym/Math-v0") == [f"tasks={name}"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("memory_mb", [1, 512, 512.0], [513, 1e9, "512", True, [1], math.nan]),
        ("timeout", [0.5, 10], [10.1, math.inf, math.nan, "5", True]),
        (
            "level",
            ["namespaces"],
            ["landlock", " landlock", "LANDLOCK", ["rlimits-only"], {"a": 1}, None, 0, True, 2],
        ),
        ("visit", [False, None], [True, 1, "yes", [1]]),
        ("url", [None], ["http://127.0.0.1:9", 5]),
        ("packages", ["", [], None], ["torch", ["torch"], {"torch": 1}, [["torch"]]]),
        (
            "tasks",
            ["gsm8k", "reasoning-gym:countdown,leg_counting", None],
            ["a/b", "reasoning-gym:../x", ["a/b"], 5],
        ),
        ("shots", [0, 3, 64], [65, -1, "/etc/passwd", True]),
        ("max_turns", [1, 100], [10**18, -1, "x"]),
        ("difficulty", [3, [1, 2]], [[[1]], {"a": 1}, "x"]),
        ("games", [None], ["/etc", "games"]),
    ],
)
def test_values_that_a_file_may_choose_and_those_that_it_may_not(name, good, bad):
    assert [
        value for value in good if reserved_choices({name: value}, "turngym/MathPython-v0")
    ] == []
    assert [
        value for value in bad if not reserved_choices({name: value}, "turngym/MathPython-v0")
    ] == []


def test_a_task_file_is_plain_and_ends_as_one(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "device.jsonl").symlink_to("/dev/zero")
    (tmp_path / "own.jsonl.gz").touch()
    names = {
        "own.jsonl.gz": True,
        "missing.jsonl": True,
        "folder.jsonl": False,
        "device.jsonl": False,
        "x": False,
    }
    for name, allowed in names.items():
        for option in ("tasks", "shots", "corpus"):
            asked = reserved_choices({option: str(tmp_path / name)}, "turngym/Search-v0")
            assert (asked == []) == allowed, (option, name)


def test_a_recipe_names_files_near_itself_or_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("x.jsonl", "data/x.jsonl", str(tmp_path / "x.jsonl"), "/shared/recipes/x.jsonl"):
        assert find_outside_paths({"tasks": path}, Path("/shared/recipes")) == []
    for path in (
        "../x.jsonl",
        "/data/x.jsonl",
        "~/x.jsonl",
        "data/../../x.jsonl",
        "/shared/recipes/../x.jsonl",
    ):
        assert find_outside_paths({"shots": path, "policy": path}, Path("/shared/recipes")) == [
            f"shots={path}",
            f"policy={path}",
        ]


def test_the_option_that_allows_a_choice_can_be_pasted_into_a_shell():
    assert flag_of("tasks=a b; rm x") == "--tasks 'a b; rm x'"
    assert flag_of("landlock") == "--option level=landlock"
    assert flag_of('tools={"a:b" = 1}') == """--option 'tools={"a:b" = 1}'"""
    assert flag_of("system=\x1b[31m") == "--option 'system=\\x1b[31m'"
    assert len(flag_of(f"system={'x' * 10**6}")) < 400
