"""What docs/promise.md says: a run and an evaluation that version 0.1.0 wrote are read, and its names are still there.

`tests/data` holds what 0.1.0 wrote. `kept.json` lists its commands and options, public names with their arguments,
fields of controls, parameters of methods, and of some tasks the digest of the prompt and what the expert earned.
"""

import contextlib
import inspect
import io
import json
import re
import shutil
from enum import EnumType
from hashlib import sha256
from pathlib import Path

import pytest

import turngym
from turngym import __main__ as cli
from turngym import __version__, envs, tools
from turngym.agents.journal.trees import FORMAT
from turngym.training import methods
from turngym.training.comparison.results import read_history
from turngym.training.control import control
from turngym.training.data import batch as columns
from turngym.training.runs.config import TrainConfig, from_mapping, from_run, recipe_names

DATA = Path(turngym.__file__).parent / "tests" / "data"
RUN, EVAL = DATA / "run-0.1.0", DATA / "eval-0.1.0"
KEPT = json.loads((DATA / "kept.json").read_text())
OLDER = """[train]
env = "turngym/Math-v0"
steps = 7
method = "grpo"

[record]
version = "{version}"
"""


def command(*args: object) -> str:
    """Return what a command prints; it must succeed."""
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in args])
    assert left.value.code == 0, out.getvalue()
    return out.getvalue()


# --- names


@pytest.mark.parametrize("name", KEPT["options"])
def test_a_command_keeps_its_options(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert set(KEPT["options"][name]) <= set(re.findall(r"--[a-z][a-z-]*", command(name, "--help")))


def arguments(thing: object) -> dict[str, inspect.Parameter]:
    """Return the arguments of a function or class by name; none of what takes none, or of an enumeration."""
    if isinstance(thing, EnumType):
        return {}
    with contextlib.suppress(TypeError, ValueError):
        return dict(inspect.signature(thing).parameters)
    return {}


@pytest.mark.parametrize("module", [turngym, tools, envs], ids=lambda module: module.__name__)
def test_public_names_keep_their_arguments_and_new_ones_have_defaults(module):
    for name, known in KEPT["names"][module.__name__].items():
        found = arguments(getattr(module, name))
        assert name in module.__all__ and set(known) <= set(found), name
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        new = [one for key, one in found.items() if key not in known and one.kind not in optional]
        assert all(one.default is not inspect.Parameter.empty for one in new), name


@pytest.mark.parametrize("name", KEPT["fields"])
def test_what_a_control_is_made_of_and_gets_keeps_its_fields(name):
    of = getattr(control, name, None) or getattr(columns, name)
    assert set(KEPT["fields"][name]) <= set(of.__dataclass_fields__)
    assert {member.value for member in control.Request} >= set(KEPT["requests"])


def test_methods_recipes_and_groups_of_entry_points_stay():
    for name, known in KEPT["methods"].items():
        assert set(known) <= set(methods.method_parameters(name)), name
    assert set(KEPT["recipes"]) <= set(recipe_names())
    assert {methods.GROUP, envs.registry.GROUP, tools.plugins.TOOLS_GROUP} == set(KEPT["groups"])


@pytest.mark.parametrize("env_id", KEPT["tasks"])
def test_an_id_keeps_its_tasks_and_their_rewards(env_id):
    """Or it gets a new version."""
    env = envs.registry.make(env_id)
    try:
        for task, (digest, reward) in enumerate(KEPT["tasks"][env_id]):
            prompt, _ = env.reset(seed=task, options={"task": task})
            assert sha256(prompt.encode()).hexdigest() == digest
            assert sum(env.step(action)[1] for action in env.gold()) == pytest.approx(reward)
    finally:
        env.close()


# --- files


def test_a_run_folder_of_an_older_version_is_read(tmp_path):
    (tmp_path / "config.toml").write_text(OLDER.format(version="0.0.9"))
    assert from_run(tmp_path) == TrainConfig().changed(
        env="turngym/Math-v0", steps=7, method="grpo"
    )


@pytest.mark.parametrize("version", ["0.0.9", __version__])
def test_a_key_that_this_version_does_not_have_is_refused_with_the_version_that_wrote_it(
    version, tmp_path
):
    (tmp_path / "config.toml").write_text(OLDER.format(version=version).replace("steps", "splines"))
    with pytest.raises(ValueError, match=r"config\.toml.*: unknown key 'splines'") as refused:
        from_run(tmp_path)
    assert ("which turngym 0.0.9 wrote: " in str(refused.value)) is (version == "0.0.9")


def test_the_config_of_0_1_0_says_what_it_said():
    values = {
        "method": "grpo,epo",
        "steps": 2,
        "rank": 1,
        "targets": ["q_proj"],
        "max_tokens": 24,
        "group": 2,
    }
    values["threads"] = 1  # then the default
    rest = {
        "env": "turngym/Math-v0",
        "difficulty": [1],
        "prompts": 2,
        "eval_every": 2,
        "eval_tasks": 4,
        "out": "run",
    }
    assert from_run(RUN) == from_mapping({**values, **rest}, "the test")


def test_lines_of_metrics_are_read_as_a_comparison_reads_them():
    found, summary = read_history(RUN), json.loads((RUN / "summary.json").read_text())
    assert (found.spent.steps, found.spent.tokens) == (2, summary["tokens"])
    assert [valid.success for valid in found.validations] == [
        summary[at]["success"] for at in ("before", "after")
    ]


@pytest.mark.parametrize(
    "journal", [EVAL / "trees.jsonl", *sorted(RUN.glob("trees/*"))], ids=lambda path: path.name
)
def test_a_journal_is_replayed_without_a_difference_and_names_what_wrote_it(journal):
    header = json.loads(journal.read_text().partition("\n")[0])
    assert (header["journal"], header["turngym"]) == (FORMAT, "0.1.0")
    assert (
        "4 episodes of" in (said := " ".join(command("replay", journal).split()))
        and "without a difference" in said
    )


def test_the_steps_of_a_run_still_add_up():
    assert re.findall(r"holds +(\d+/\d+)", command("audit", RUN)) == ["3/3", *["2/2"] * 4]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_run_goes_on_and_its_adapter_is_a_policy(tmp_path):
    run = shutil.copytree(RUN, tmp_path / "run")
    command("train", "--resume", "--out", run, "--steps", "3")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2, 3]
    assert lines[:3] == (RUN / "metrics.jsonl").read_text().splitlines()
    assert re.findall(r"holds +(\d+/\d+)", command("audit", run)) == ["4/4", *["3/3"] * 4]
    assert "3 tasks, 0 failed" in command(
        "eval", "turngym/Math-v0", "--policy", RUN, "--episodes", "3", "--out", tmp_path / "e"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_an_adapter_is_a_folder_of_peft():
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from turngym.agents.models.resolve import TINY

    (adapter,) = RUN.glob("checkpoints/*/adapter")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(TINY), adapter)
    assert any("lora_B" in name and bool(weight.any()) for name, weight in model.named_parameters())
