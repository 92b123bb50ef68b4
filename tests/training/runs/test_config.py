import json
import re
import subprocess
import tomllib

import pytest

from turngym.agents.cli.settings import flat
from turngym.envs.options import EnvOptions
from turngym.envs.registry import ENVS, Entry
from turngym.envs.reserved_choices import reserved_choices
from turngym.training.cli.train import recipe_of
from turngym.training.runs import config
from turngym.training.runs.config import (
    TrainConfig,
    from_mapping,
    from_run,
    read_recipe,
    recipe_keys,
    recipe_names,
    recorded,
    reserved_of,
    revision,
    to_toml,
)


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_loads_and_changes_exactly_what_it_says(name):
    values = recipe_keys(name)
    named = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    assert flat(read_recipe(name)) == {**flat(TrainConfig()), **named}


def test_the_recipe_of_the_command_line_ships():
    assert "math-python" in recipe_names()


def test_a_recipe_can_be_any_toml_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'steps = 3\nlr = 1\ndifficulty = [4, 5]\noption = ["max_turns=2"]\ntasks = "x.jsonl"\n'
    )
    assert read_recipe(str(path)) == TrainConfig().changed(
        steps=3, lr=1, difficulty=(4, 5), option=("max_turns=2",), tasks="x.jsonl"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("promts = 3", "unknown key 'promts'; did you mean 'prompts'? keys are env, tasks"),
        ("zzz = 3", "unknown key 'zzz'; keys are env, tasks"),
        ('steps = "3"', "steps is '3'; it must be of type int"),
        ("steps = true", "steps is True; it must be of type int"),
        ("steps = 3.0", "steps is 3.0; it must be of type int"),
        ("lr = true", "lr is True; it must be of type float"),
        ("policy = 3", "policy is 3; it must be of type str"),
        ("shuffle_rewards = 1", "shuffle_rewards is 1; it must be of type bool"),
        ("tasks = 3", "tasks is 3; it must be of type str | None"),
        ("difficulty = 2", "difficulty is 2; it must be of type tuple[int, ...] | None"),
        ('difficulty = ["2"]', "difficulty is ['2']; it must be of type tuple[int, ...] | None"),
        ("option = [3]", "option is [3]; it must be of type tuple[str, ...]"),
        ('targets = "q_proj"', "targets is 'q_proj'; it must be of type tuple[str, ...]"),
        ("steps = 0", "steps is 0; it must be at least 1"),
        ("steps = ", "mine.toml is not TOML: "),
    ],
)
def test_a_mistake_in_a_recipe_is_named_with_its_file(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_recipe(str(path))
    assert str(path) in str(caught.value) or text == "steps = 0"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("math-pyton", "did you mean 'math-python'? recipes are"), ("x.toml", "there is no recipe")],
)
def test_a_recipe_that_does_not_exist_is_refused_with_those_that_do(name, hint):
    with pytest.raises(FileNotFoundError, match=re.escape(hint)):
        read_recipe(name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({name: 0}, f"{name} is 0; it must be at least 1")
        for name in (
            "steps",
            "prompts",
            "group",
            "max_tokens",
            "rank",
            "micro_tokens",
            "eval_every",
            "eval_tasks",
        )
    ]
    + [
        ({name: value}, f"{name} is {value}; it must be above 0 and finite")
        for name in ("lr", "alpha", "clip_norm", "temperature")
        for value in (0.0, -1.0, float("nan"), float("inf"))
    ]
    + [
        ({"token_budget": -1}, "token_budget is -1; it must be 0 or more"),
        ({"lr_end": 1.5}, "lr_end is 1.5; it must lie in [0, 1]"),
        ({"lr": 3.0}, "lr is 3.0; it must be at most 1; LoRA learns at about 1e-4 to 1e-3"),
        ({"dtype": "int8"}, "dtype is 'int8'; it must be float32 or bfloat16"),
        ({"device": "gpu"}, "device is 'gpu'; it must be cpu, cuda (or cuda:0, cuda:1, …) or mps"),
        ({"threads": 0}, "threads is 0; torch needs at least 1"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_rule(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TrainConfig().changed(**values).check()


def test_a_config_survives_the_run_folder(tmp_path):
    for one in (
        TrainConfig(),
        TrainConfig().changed(
            tasks='a "b"\\c\n.jsonl',
            difficulty=(3,),
            option=("families=['words']", "max_turns=1"),
            lr=1e-05,
            seed=7,
        ),
        TrainConfig().changed(
            policy="naïve 漢字",
            shuffle_rewards=True,
            alpha=1e16,
            targets=("q_proj", "up_proj"),
            out="runs/x",
        ),
    ):
        (tmp_path / "config.toml").write_text(to_toml(one, {"version": "0", "revision": "abc+"}))
        assert from_run(tmp_path) == one
        assert tomllib.loads((tmp_path / "config.toml").read_text())["record"] == {
            "version": "0",
            "revision": "abc+",
        }


def test_what_made_a_run_is_recorded_beside_its_config(tmp_path):
    for record in (
        {},
        {"version": "0"},
        {"levels": {}},
        {"levels": {"python": "namespaces", 'a "b" c': "é"}, "n": 1},
    ):
        (tmp_path / "config.toml").write_text(to_toml(TrainConfig(), record))
        assert recorded(tmp_path) == record and from_run(tmp_path) == TrainConfig()
    (tmp_path / "config.toml").write_text("record = 3\n")
    assert recorded(tmp_path) == {}


def test_resuming_is_no_part_of_what_a_run_is(tmp_path):
    (tmp_path / "config.toml").write_text(to_toml(TrainConfig().changed(resume=True), {}))
    assert from_run(tmp_path) == TrainConfig().changed(resume=False)


def test_a_run_whose_config_is_something_else_is_named(tmp_path):
    (tmp_path / "config.toml").write_text("steps = 3\n")
    with pytest.raises(
        ValueError, match=r"config\.toml has no table \[train\]; it is no config of a run"
    ):
        from_run(tmp_path)


def test_values_are_taken_as_given_where_they_fit():
    assert from_mapping({"difficulty": (1,), "lr": 1e-4}, "here") == TrainConfig().changed(
        difficulty=(1,), lr=1e-4
    )


def test_the_revision_is_that_of_the_checkout_with_a_mark_where_files_differ(tmp_path, monkeypatch):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]

    def run(*command):
        return subprocess.run(
            [*git, *command], check=True, capture_output=True, text=True
        ).stdout.strip()

    monkeypatch.setattr(config, "__file__", str(tmp_path / "config.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert revision() == "unknown"
    run("init", "-q")
    (tmp_path / "config.py").write_text("")
    run("add", ".")
    run("commit", "-qm", "one")
    assert revision() == run("rev-parse", "HEAD")
    (tmp_path / "config.py").write_text("changed")
    assert revision() == run("rev-parse", "HEAD") + "+"


# --- data never chooses an isolation level below the default


@pytest.mark.parametrize("level", ["landlock", "rlimits-only"])
def test_a_recipe_or_run_folder_cannot_choose_a_weaker_isolation_level(tmp_path, level):
    weak = TrainConfig().changed(option=(f'level="{level}"',))
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f"option = ['max_turns=3', 'level=\"{level}\"']\n")
    (tmp_path / "config.toml").write_text(to_toml(weak, {}))
    for read in (
        lambda level: read_recipe(str(recipe), allowed=level),
        lambda level: from_run(tmp_path, level),
    ):
        with pytest.raises(
            ValueError,
            match=f"asks for isolation level '{level}', which is weaker than the default",
        ):
            read(())
        assert any(level in option for option in read((level,)).environment.option)


WIDER = {
    "memory": ({"option": ["memory_mb=100000"]}, ["--option", "memory_mb=100000"]),
    "time": ({"option": ["timeout=1e9"]}, ["--option", "timeout=1000000000.0"]),
    "no time": ({"option": ["timeout=nan"]}, ["--option", "timeout=nan"]),
    "server": ({"option": ["url=http://10.0.0.1"]}, ["--option", "url=http://10.0.0.1"]),
    "internet": ({"option": ["visit=true"]}, ["--option", "visit=true"]),
    "packages": ({"option": ["packages=torch"]}, ["--option", "packages=torch"]),
    "tool": ({"option": ["tools=own_tools:f"]}, ["--option", "tools=own_tools:f"]),
    "method": ({"method": "grpo,own_methods:f"}, ["--method", "grpo,own_methods:f"]),
    "unknown option": ({"option": ["reach=3"]}, ["--option", "reach=3"]),
    "logger": ({"log": "tensorboard,wandb"}, ["--log", "tensorboard,wandb"]),
    "task file": ({"tasks": "/etc/shadow"}, ["--tasks", "/etc/shadow"]),
    "examples": ({"shots": "/etc/passwd"}, ["--shots", "/etc/passwd"]),
    "games": ({"option": ["games=/etc"]}, ["--option", "games=/etc"]),
    "corpus": ({"option": ["corpus=/etc/passwd"]}, ["--option", "corpus=/etc/passwd"]),
    "template": ({"chat_template": "/tmp/t.jinja"}, ["--chat-template", "/tmp/t.jinja"]),
    "more output": ({"option": ["max_output=100000000"]}, ["--option", "max_output=100000000"]),
    "a module in another option": ({"option": ["format=own:f"]}, ["--option", "format=own:f"]),
    "hub": ({"tasks": "someone/data"}, ["--tasks", "someone/data"]),
    "package": ({"env": "other/Env-v0"}, ["--env", "other/Env-v0"]),
    "engine": ({"engine": "vllm", "server": ["http://10.0.0.1"]}, ["--server", "http://10.0.0.1"]),
    "its code": (
        {"engine": "vllm", "server_option": ["trust-remote-code=true"]},
        ["--server-option", "trust-remote-code=true"],
    ),
}


@pytest.mark.parametrize("name", WIDER)
def test_a_recipe_or_run_folder_cannot_choose_what_reaches_further(tmp_path, monkeypatch, name):
    values, flags = WIDER[name]
    foreign = Entry("other/Env-v0", "evil_module_of_a_stranger:make", "", package="other")
    monkeypatch.setattr("turngym.envs.reserved_choices.entries", lambda: (*ENVS, foreign))
    monkeypatch.setattr(
        "turngym.agents.cli.settings.find_spec", lambda name: name
    )  # whether vLLM is installed or not
    recipe = tmp_path / "mine.toml"
    recipe.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    (tmp_path / "config.toml").write_text("[train]\n" + recipe.read_text())
    for args in (["train", str(recipe)], ["train", "--resume", "--out", str(tmp_path)]):
        with pytest.raises(ValueError, match="a file cannot choose that") as caught:
            recipe_of(list(args))
        assert str(caught.value).endswith(f"add {' '.join(flags)} to the command")
        assert recipe_of([*args, *flags])


def test_what_a_file_may_choose_is_not_asked_for(tmp_path):
    for option in (
        "memory_mb=256",
        "timeout=2.5",
        "level=namespaces",
        "visit=false",
        "packages=[]",
    ):
        assert (
            reserved_choices(
                EnvOptions("gsm8k", option=(option,)).kwargs(), "turngym/MathPython-v0"
            )
            == []
        )
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tasks.jsonl").touch()
    assert reserved_choices({"tasks": str(tmp_path / "own" / "tasks.jsonl")}) == []
    served = TrainConfig().changed(engine="vllm", server_option=("gpu-memory-utilization=0.5",))
    assert reserved_of(served) == []


def test_the_command_line_may_choose_a_weaker_isolation_level(tmp_path):
    out = ["--out", str(tmp_path)]
    (tmp_path / "config.toml").write_text(
        to_toml(TrainConfig().changed(option=("level=landlock",)), {})
    )
    with pytest.raises(ValueError, match="add --option level=landlock to the command"):
        recipe_of(["train", "--resume", *out])
    with pytest.raises(ValueError, match="add --option level=landlock to the command"):
        recipe_of(["train", "--resume", *out, "--option", "level=rlimits-only"])
    assert recipe_of(
        ["train", "--resume", *out, "--option", "level=landlock"]
    ).environment.option == ("level=landlock",)


def test_the_default_method_is_plain_grpo():
    assert TrainConfig().method == read_recipe("math-python").method == "grpo"
