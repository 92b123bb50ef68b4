"""`turngym train --dry-run`: what it finds, and that it draws and writes nothing."""

import json
import shutil

import pytest

from turngym import __main__ as cli
from turngym.agents.models import folder as model_folder
from turngym.agents.models.memory import GIB, count_of
from turngym.agents.models.resolve import TINY
from turngym.training.loop.task_order import next_tasks
from turngym.training.runs import dry_run as module
from turngym.training.runs import run
from turngym.training.runs.config import from_mapping, read_recipe
from turngym.training.runs.dry_run import Lengths, dry_run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_folder, "_download", refuse)
    monkeypatch.setattr(module, "OPENINGS", 3)
    yield
    assert list(tmp_path.glob("runs*")) == []  # nothing is written


def refuse(name, *patterns):
    raise FileNotFoundError(f"{name!r} cannot be fetched")


@pytest.fixture
def small(tmp_path):
    """The tiny policy's folder without its weights."""
    return shutil.copytree(
        TINY, tmp_path / "small", ignore=shutil.ignore_patterns("*.safetensors", "*.py", "__*")
    )


def told(found):
    return {line.what: line for line in found.lines}


def test_a_run_that_could_begin_passes_and_shows_its_first_prompt(small):
    config = read_recipe("math-python").changed(policy=str(small))
    found = dry_run(config, "math-python", ("policy",))
    lines = told(found)
    assert found.failed == 0 and not any(line.passed is False for line in found.lines)
    assert lines["template"].about.endswith("turns end with '<|im_end|>', calls as hermes")
    assert "python" in lines["tools"].about
    prepared = run.prepare(config.changed(policy="tiny"))
    try:
        first, _ = next_tasks(0, len(prepared.train.tasks), 0, 1, set())
        _, info = module.begin(prepared.env, prepared.train.tasks[first[0]], 0)
        tokens = prepared.chat.prompt(info["messages"], info["tools"]).tolist()
    finally:
        prepared.close()
        shutil.rmtree("runs")
    assert found.prompt == prepared.chat.tokenizer.decode(tokens, skip_special_tokens=False)


def test_the_command_says_what_fails_and_ends_with_status_1(small, capsys):
    words = [
        "train",
        "--policy",
        str(small),
        "--max-tokens",
        "5000",
        "--device",
        "mps",
        "--dry-run",
    ]
    with pytest.raises(SystemExit, match="1"):
        cli.main(words)
    said = capsys.readouterr().out
    assert "device    FAILS device is 'mps'" in said and "lengths   FAILS an opening of" in said
    assert "2 checks failed; nothing was drawn or written" in said and "<|im_start|>user" in said


def test_what_does_not_need_the_model_is_checked_without_it():
    config = from_mapping(
        {"policy": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bfloat16", "checkpointing": True}, "a test"
    )
    found = dry_run(config.changed(max_tokens=512), "math-python", ())
    lines = told(found)
    assert [line.about for line in found.lines if line.what == "model"] == [
        "'Qwen/Qwen2.5-7B-Instruct' cannot be fetched",
        "to get it: hf download Qwen/Qwen2.5-7B-Instruct; the sizes below are its published ones",
    ]
    assert (
        lines["tasks"].passed
        and lines["lengths"].passed
        and not found.prompt
        and "template" not in lines
    )
    assert any(
        f"{7_615_616_512 * 2 / GIB:7.2f} GiB  bfloat16, frozen" in line.about
        for line in found.lines
    )
    unknown = told(dry_run(config.changed(policy="nobody/nothing"), "math-python", ()))
    assert not unknown["model"].passed and unknown["tasks"].passed and "memory" not in unknown


@pytest.mark.parametrize(
    ("change", "what", "said"),
    [
        ({"option": ("split=test",)}, "options", "option split is 'test'"),
        ({"tasks": "missing.jsonl"}, "tasks", "missing.jsonl"),
        ({"targets": ("nothing",)}, "settings", "targets name 'nothing'"),
        ({"method": "grpo,empgg"}, "settings", "empg"),
        ({"group": 1}, "settings", "group"),
    ],
)
def test_each_mistake_is_a_line_of_its_own(change, what, said):
    found = dry_run(read_recipe("math-python").changed(**change), "", ())
    (failed,) = (line for line in found.lines if line.passed is False)
    assert failed.what == what and said in failed.about


def test_without_tasks_the_memory_is_that_of_an_assumed_opening():
    config = read_recipe("math-python")
    found = dry_run(config.changed(tasks="missing.jsonl"), "", ())
    lines = told(found)
    assert lines["prompts"].about == "taken to be of 1,024 tokens, as there are no tasks to measure"
    assert f"in 3 turns of up to {module.max_tokens(module.find('tiny'))}" in lines["lengths"].about
    here = told(dry_run(config, "", ()))["memory"].about
    assert (
        lines["memory"].passed
        and "together; cpu has" in lines["memory"].about
        and "together" in here
    )
    tags = told(dry_run(config.changed(option=("format=tags",)), "", ()))
    assert tags["tools"].about.startswith("python (")  # its calls are text, of no schema
    gpu = told(
        dry_run(read_recipe("alfworld+qwen2.5-7b"), "", ())
    )  # neither the games nor the model
    assert (
        "23.90 GiB  together, beside 50% of the GPU" in gpu["memory"].about
        and not gpu["tasks"].passed
    )


def test_a_model_without_a_chat_template_is_named(small):
    (small / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((small / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (small / "tokenizer_config.json").write_text(json.dumps(settings))
    found = dry_run(read_recipe("math-python").changed(policy=str(small)), "", ())
    (failed,) = (line for line in found.lines if line.passed is False)
    assert "has no chat template: put one in chat_template.jinja" in failed.about
    assert told(found)["tasks"].passed and told(found)["memory"].passed


def test_too_little_memory_fails_with_its_numbers(monkeypatch):
    monkeypatch.setattr(module, "free_bytes", lambda device: 1 << 20)
    last = dry_run(read_recipe("math-python"), "", ()).lines[-1]
    assert last.passed is False and last.about.endswith("together; cpu has 0.00 GiB free")


def test_a_path_is_no_longer_than_the_context():
    assert (
        Lengths([10, 30], 100, 4, 4096).path == 430 and Lengths([10, 30], 100, 4, 200).path == 200
    )
    with pytest.raises(
        ValueError, match=r"an opening of 30 tokens and a turn of 100 are more than .* 128 tokens"
    ):
        Lengths([10, 30], 100, 4, 128).check()


def test_published_sizes_are_those_of_the_cards():
    sizes = {
        name.split("-")[-1 if "Qwen3" in name else -2]: count_of(module.PUBLISHED[name])
        for name in module.PUBLISHED
    }
    assert sizes == {
        "0.5B": 494_032_768,
        "1.5B": 1_543_714_304,
        "7B": 7_615_616_512,
        "8B": 8_190_735_360,
    }
