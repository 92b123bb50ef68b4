"""A run from its config: every mistake is answered before torch is imported, and a run folder is whole."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from safetensors.torch import load_file

from turngym import __version__
from turngym.agents.cli.settings import SamplingOptions
from turngym.agents.engines.torch import TorchEngine
from turngym.agents.engines.torch.runner import set_threads
from turngym.agents.evaluation import run as evaluate
from turngym.agents.journal.trees import lock_folder
from turngym.agents.models.resolve import OWN, TINY, find
from turngym.agents.policy import load_policy
from turngym.envs import QuestionEnv, TextEnv
from turngym.training.runs.config import TrainConfig, from_run, recorded, revision, to_toml
from turngym.training.runs.run import execute, open_splits, prepare, resume_hint, task_options

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = TrainConfig().changed(
    method="grpo,epo", steps=1, prompts=2, group=2, max_tokens=16, eval_tasks=2, lr=1e-2, threads=1
)
MISTAKES = {
    "environment": (
        {"env": "turngym/MathPyton-v0"},
        "unknown environment 'turngym/MathPyton-v0'; did you mean",
    ),
    "option": ({"option": ["max_turn=3"]}, "takes no option 'max_turn'; did you mean 'max_turns'?"),
    "option-form": (
        {"option": ["max_turns"]},
        "--option 'max_turns' is not of the form name=value, such as max_turns=3",
    ),
    "limit": ({"option": ["timeout=0"]}, "timeout is 0; it must be 0.01 to 3600 seconds"),
    "split": (
        {"option": ["split=test"]},
        "option split is 'test'; training takes `train` and `valid`: leave it out",
    ),
    "difficulty": (
        {"difficulty": [7]},
        "difficulty is (7,); choose one or several of 1, 2, 3, 4, 5",
    ),
    "no file": (
        {"tasks": "nowhere.jsonl"},
        "task file nowhere.jsonl does not exist; give a .jsonl or .json, .csv, .tsv or .parquet file",
    ),
    "empty file": ({"tasks": "empty.jsonl"}, "empty.jsonl has no rows; it needs "),
    "gold": (
        {"tasks": "gold.jsonl"},
        "gold.jsonl:2: field 'answer' is '}{': the gold answer '}{' has",
    ),
    "few tasks": ({"tasks": "few.jsonl", "prompts": 50}, "prompts is 50, but the task set has "),
    "policy": (
        {"policy": "./nowhere"},
        "'nowhere' is not a folder; name `tiny`, a run folder, a model folder or a hub",
    ),
    "tokenizer": (
        {"policy": "bare"},
        "bare has no tokenizer.json; save the model's tokenizer there: transformers.",
    ),
    "targets": ({"targets": ["q_prj"]}, "targets name 'q_prj', which is no layer of "),
    "other targets": (
        {"out": "taken", "resume": True, "targets": ["q_proj"]},
        "targets is ('q_proj',), but the run in taken was made with (); leave it out to resume",
    ),
    "template": (
        {"policy": "thinker"},
        "thinker has a chat template that is not prefix-preserving: adding message 3",
    ),
    "in the way": (
        {"out": "empty.jsonl"},
        "cannot write to empty.jsonl (File exists); choose another folder with --out",
    ),
    "unwritable": ({"out": "/proc/turngym"}, "cannot write to /proc/turngym"),
    "taken": (
        {"out": "taken"},
        "taken already holds a run; continue with --resume, or choose another folder with --out",
    ),
    "changed": (
        {"out": "taken", "resume": True, "lr": 5e-4},
        "lr is 0.0005, but the run in taken was made with 0.001",
    ),
    "no run": (
        {"out": "bare", "resume": True},
        "bare holds no run to resume; leave --resume out to start one",
    ),
    "left over": (
        {"out": "stale"},
        "stale already holds a run; continue with --resume, or choose another folder with",
    ),
    "no run of ours": (
        {"out": "lines"},
        "lines already holds a run; continue with --resume, or choose another folder",
    ),
    "all damaged": (
        {"out": "broken", "resume": True},
        "all 2 checkpoints in broken/checkpoints are damaged: broken/",
    ),
    "range": ({"steps": 0}, "steps is 0; it must be at least 1"),
    "engine": ({"engine": "sglang"}, "engine is 'sglang'; it must be one of torch, vllm"),
    "server": (
        {"server": ["http://127.0.0.1:1"]},
        "server is ('http://127.0.0.1:1',), but the engine is torch; add",
    ),
    "no vllm": (
        {"engine": "vllm"},
        "vllm is not installed here: pip install 'turngym[vllm]', or name a running",
    ),
    "no such device here": (
        {"device": "mps", "out": "runs/mps"},
        "device is 'mps', but only Macs have it; use --device cpu",
    ),
    "device": (
        {"device": "tpu"},
        "device is 'tpu'; it must be cpu, cuda (or cuda:0, cuda:1, …) or mps",
    ),
}
ASK = """
import json, sys
from turngym.training.runs.config import TrainConfig
from turngym.training.runs.run import prepare

def answer(values):
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        prepare(TrainConfig().changed(**values))
    except (ValueError, OSError) as error:
        return [str(error), "torch" in sys.modules]

print(json.dumps({name: answer(values) for name, values in json.load(sys.stdin).items()}))
"""


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory, chat_templates: dict[str, str]
) -> dict[str, Any]:
    """What a fresh process answers to every mistake, and whether it had imported torch by then."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "empty.jsonl").write_text("\n")
    rows = [{"problem": f"What is {n}+1?", "answer": str(n + 1)} for n in range(40)]
    (folder / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows[1]["answer"] = "}{"
    (folder / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("bare", "thinker"):
        (folder / name).mkdir()
        shutil.copy(TINY / "config.json", folder / name)
        shutil.copy(TINY / "model.safetensors", folder / name)
    shutil.copy(TINY / "tokenizer.json", folder / "thinker")
    (folder / "thinker" / "chat_template.jinja").write_text(
        chat_templates["qwen3.jinja"] + "{# of mine #}"
    )
    for name in ("taken", "broken"):
        (folder / name).mkdir()
        (folder / name / "config.toml").write_text(
            to_toml(TrainConfig().changed(max_tokens=96), {})
        )
    (folder / "lines").mkdir()
    (folder / "lines" / "metrics.jsonl").touch()
    for name in (
        "stale/checkpoints/step-000007",
        "broken/checkpoints/step-000001",
        "broken/checkpoints/step-000002",
    ):
        (folder / name).mkdir(parents=True)
    asked = json.dumps({name: values for name, (values, _) in MISTAKES.items()})
    command = [sys.executable, "-W", "error", "-c", ASK]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not (folder / "runs").exists()  # a mistake leaves nothing behind
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_thing_value_and_fix_before_torch_is_imported(answers, name):
    message, torch_imported = answers[name]
    assert MISTAKES[name][1] in message
    assert not torch_imported


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("turn-pi", "no method is called 'turn-pi'; did you mean 'turn-floor'?"),
        ("grpo,epo:alfa=1", "did you mean 'alpha'?"),
        ("grpo,grpo", "grpo and grpo both set credit"),
    ],
)
def test_a_mistake_in_the_methods_is_found_before_the_policy_is_loaded(tmp_path, method, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        prepare(SMALL.changed(method=method, out=str(tmp_path)))


def unforkable():
    raise RuntimeError("it holds a lock")


def test_a_method_with_branches_is_refused_where_there_is_no_room_or_no_fork(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="group is 1, but grpo judges"):
        prepare(SMALL.changed(method="grpo,aepo", group=1, out=str(tmp_path)))

    fork = TextEnv.fork
    for fails in (bool, lambda began: True):  # once an episode has begun, and always
        monkeypatch.setattr(
            TextEnv,
            "fork",
            lambda env, fails=fails: unforkable() if fails(env._start) else fork(env),
        )
        with pytest.raises(
            ValueError,
            match=r"MathPython-v0 cannot be forked \(it holds a lock\); choose a method with",
        ):
            prepare(SMALL.changed(method="grpo,arpo", out=str(tmp_path)))


def test_a_file_of_questions_is_parted_so_that_valid_problems_are_never_trained_on(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = [{"problem": f"What is {n}+1?", "answer": str(n + 1)} for n in range(400)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepared = prepare(SMALL.changed(tasks=str(path), out=str(tmp_path / "run")))
    train, valid = (
        {env.tasks[i].prompt for i in range(len(env.tasks))}
        for env in (prepared.env, prepared.valid.env)
    )
    assert train.isdisjoint(valid) and len(train | valid) == 400
    assert 5 <= len(valid) <= 40
    half = prepare(
        SMALL.changed(tasks=str(path), option=("holdout=0.5",), out=str(tmp_path / "run"))
    )
    assert 150 < len(half.valid.env.tasks) < 250


def test_an_environment_that_takes_no_holdout_is_trained_on_a_file(tmp_path, monkeypatch):
    path = tmp_path / "questions.csv"
    path.write_text("question,answer\n1+1?,2\n2+2?,4\n3+3?,6\n")

    def make_own(tasks="nothing.csv", max_turns=5):
        return QuestionEnv(tasks, lambda answer, gold: answer == gold, max_turns=max_turns)

    spec = EnvSpec("test/Own-v0", entry_point=make_own)
    monkeypatch.setitem(gymnasium.registry, "test/Own-v0", spec)
    config = SMALL.changed(env="test/Own-v0", tasks=str(path))
    assert task_options(config) == {"tasks": str(path)}
    train, valid = open_splits(config, task_options(config))
    assert len(train.tasks) == 3 and valid.repeats_training
    assert "test/Own-v0 has 3 tasks and no splits" in valid.note


def test_without_a_folder_the_first_free_one_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in ("", "-2", "-3"):
        prepared = prepare(SMALL)
        assert prepared.folder == Path(f"runs/mathpython{number}") == Path(prepared.config.out)
        (prepared.folder / "config.toml").touch()
    assert prepare(SMALL.changed(env="turngym/Math-v0")).folder == Path("runs/math")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    list(execute(prepare(SMALL.changed(out=str(folder)))))
    return folder


def test_a_run_folder_holds_what_it_promises(finished):
    assert {path.name for path in finished.iterdir()} == {
        "config.toml",
        "metrics.jsonl",
        "trees",
        "updates",
        "vocabulary.json",
        "checkpoints",
        "summary.json",
    }
    assert from_run(finished) == SMALL.changed(out=str(finished))
    record = tomllib.loads((finished / "config.toml").read_text())["record"]
    levels = {"python": "namespaces"}  # though nobody asked for it
    how = {"engine": "exact", "forward": "own", "draw_threads": 1, "levels": levels}
    own = {
        "fitted": {},
        "chat_template": {"sha256": OWN, "family": ""},
    }  # as the policy speaks turngym's own
    assert record == {"version": __version__, "revision": revision(), **how, **own}
    assert {path.suffix for path in finished.rglob("*") if path.is_file()} <= {
        ".toml",
        ".jsonl",
        ".npz",
        ".json",
        ".safetensors",
    }


@pytest.mark.slow
def test_neither_journal_nor_weights_depend_on_how_many_threads_draw(
    finished, tmp_path, monkeypatch
):
    def measured(engine: TorchEngine, most: int) -> None:
        set_threads(engine._worker, torch.set_num_threads, 2)
        engine.threads = 2

    monkeypatch.setattr(TorchEngine, "measure_threads", measured)
    list(execute(prepare(SMALL.changed(threads=None, out=str(tmp_path / "run")))))
    assert torch.get_num_threads() == 1  # the learner's
    assert recorded(tmp_path / "run")["draw_threads"] == 2
    assert from_run(tmp_path / "run").machine.threads is None  # so a resumed run measures again
    for name in (
        "trees/step-000001.jsonl",
        "checkpoints/step-000001/adapter/adapter_model.safetensors",
    ):
        assert (finished / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_the_summary_compares_the_first_validation_with_the_last(finished):
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((finished / "summary.json").read_text())
    for name, line in (("before", lines[0]), ("after", lines[-1])):
        assert summary[name] == {
            key.partition("/")[2]: line[key] for key in line if key.startswith("valid/")
        }
        assert 0 <= summary[name]["low"] <= summary[name]["success"] <= summary[name]["high"] <= 1
    assert (summary["steps"], summary["refused_steps"], summary["tokens"]) == (
        1,
        0,
        lines[1]["tokens"],
    )


def test_a_run_that_is_over_is_not_resumed_but_may_be_made_longer(finished):
    over = from_run(finished).changed(resume=True)
    with pytest.raises(
        ValueError, match=r"steps is 1, and the run in .* has taken 1; ask for more to go on"
    ):
        prepare(over)
    longer = prepare(over.changed(steps=3, threads=2, micro_tokens=99))
    assert longer.checkpoint == finished / "checkpoints" / "step-000001"
    for name, value in (("seed", 1), ("group", 3), ("method", "grpo,empg"), ("eval_every", 7)):
        with pytest.raises(
            ValueError, match=rf"{name} is {value!r}, but the run in .* was made with"
        ):
            prepare(over.changed(steps=3, **{name: value}))


def test_a_run_goes_on_at_the_level_at_which_it_began(finished, tmp_path):
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    again, config = SMALL.changed(steps=2, out=str(copy), resume=True), copy / "config.toml"
    with pytest.raises(
        ValueError,
        match=r"option is \('level=rlimits-only',\), but the run in .* was made with \(\)",
    ):
        prepare(again.changed(option=("level=rlimits-only",)))
    said = config.read_text()
    assert said.count('"namespaces"') == 1
    config.write_text(
        said.replace('"namespaces"', '"rlimits-only"')
    )  # where another default made it
    with pytest.raises(
        ValueError,
        match=r"levels .* \{'python': 'namespaces'\}, but .* \{'python': 'rlimits-only'\}",
    ):
        prepare(again)
    config.write_text(
        "".join(line for line in said.splitlines(keepends=True) if not line.startswith("levels"))
    )
    assert prepare(again).checkpoint is not None  # of a time before levels


def test_a_damaged_checkpoint_is_named_when_resuming(finished, tmp_path, caplog):
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    weights = copy / "checkpoints" / "step-000001" / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    again = SMALL.changed(steps=2, out=str(copy), resume=True)
    prepared = prepare(again)
    assert prepared.checkpoint == copy / "checkpoints" / "step-000000"
    ((kind, what),) = [(incident.kind, incident.what) for incident in prepared.incidents]
    assert kind == "checkpoint" and what in caplog.text
    assert what.endswith(
        "step-000001: the file 'adapter/adapter_model.safetensors' is not what was written"
    )
    (copy / "checkpoints" / "step-000000" / "state.json").unlink()
    with pytest.raises(
        ValueError,
        match=r"all 2 checkpoints .*step-000001: the file .*step-000000: the file 'state.json'",
    ):
        prepare(again)


def test_a_run_without_a_checkpoint_is_begun_again_and_nothing_of_it_is_left(finished, tmp_path):
    """It was killed before its first checkpoint, or somebody removed them all."""
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    shutil.rmtree(copy / "checkpoints")
    (copy / "trees" / "step-000009.jsonl").write_text("of another life")
    prepared = prepare(SMALL.changed(out=str(copy), resume=True))
    assert prepared.checkpoint is None
    assert [record.step for record in execute(prepared)] == [0, 1]
    for name in ("trees", "checkpoints"):
        files = {
            path.relative_to(copy): path for path in (copy / name).rglob("*") if path.is_file()
        }
        assert files.keys() == {
            path.relative_to(finished) for path in (finished / name).rglob("*") if path.is_file()
        }
        assert all(
            path.read_bytes() == (finished / part).read_bytes() for part, path in files.items()
        )
    steps = [json.loads(line)["step"] for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1]


@pytest.mark.parametrize("lost", [1, 0])
def test_what_is_missing_at_the_end_of_a_run_is_made_again(finished, tmp_path, lost):
    """Its summary, and the last validation with its line of metrics where it is not there."""
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text(
        "".join(lines[: len(lines) - lost]) + '{"step": 1, "re' * lost
    )
    (copy / "summary.json").write_text('{"before": {"succ')
    records = list(execute(prepare(SMALL.changed(out=str(copy), resume=True))))
    assert [record.step for record in records] == [1] * lost
    found, true = (
        [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (copy, finished)
    )
    for one, other in zip(found, true, strict=True):
        seconds = {name for name in other if "seconds" in name}
        assert one.keys() == other.keys() and all(
            one[name] == other[name] for name in one.keys() - seconds
        )
        assert {one[name] for name in seconds if one["step"] == lost} <= {None}
    summary, whole = (
        json.loads((folder / "summary.json").read_text()) for folder in (copy, finished)
    )
    assert {**summary, "seconds": 0} == {**whole, "seconds": 0}


def test_a_run_that_its_method_ended_is_over(finished, tmp_path):
    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    newest, listed = (
        copy / "checkpoints" / "step-000001" / "state.json",
        copy / "checkpoints" / "step-000001",
    )
    newest.write_text(newest.read_text().replace('"stop": false', '"stop": true'))
    manifest = json.loads((listed / "manifest.json").read_text())
    manifest["state.json"] = sha256(newest.read_bytes()).hexdigest()
    (listed / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        ValueError, match=r"steps is 5, and the run in .* has taken 1; its method ended it there"
    ):
        prepare(SMALL.changed(steps=5, out=str(copy), resume=True))


def test_an_interrupted_run_is_told_how_to_go_on(finished, tmp_path):
    assert resume_hint(finished) == f"continue with: turngym train --resume --out {finished}"
    assert resume_hint(tmp_path) == "the run had not started; use the same command again"


def test_a_run_folder_is_a_policy_with_the_weights_of_its_last_step(finished):
    policy = load_policy(find(finished), threads=1)
    saved = load_file(
        finished / "checkpoints" / "step-000001" / "adapter" / "adapter_model.safetensors"
    )
    mine = {
        name.replace(".default.", "."): p.detach()
        for name, p in policy.trainable_parameters().items()
    }
    assert mine.keys() == saved.keys() and all(
        torch.equal(mine[name], saved[name]) for name in saved
    )
    assert any(
        weight.abs().max() > 0 for name, weight in saved.items() if "lora_B" in name
    )  # it was trained
    prepared = evaluate.prepare(
        SMALL.env, {}, str(finished), episodes=2, sampling=SamplingOptions(16)
    )
    assert evaluate.run(prepared).episodes == 2


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    prepared = prepare(SMALL.changed(out=str(tmp_path / "run")))
    with (
        lock_folder(prepared.folder),
        pytest.raises(BlockingIOError, match=f"another process is writing {prepared.folder};"),
    ):
        next(execute(prepared))
    assert [*prepared.folder.iterdir()] == []
    steps = execute(prepared)
    next(steps)
    with pytest.raises(BlockingIOError), lock_folder(prepared.folder):
        pass
    steps.close()
    with lock_folder(prepared.folder):
        pass


@pytest.mark.slow
def test_lora_is_on_the_layers_that_were_named_and_stays_there(tmp_path):
    targets, run = ("v_proj", "q_proj"), tmp_path / "run"
    named = SMALL.changed(targets=targets, out=str(run))
    list(execute(prepare(named)))
    assert from_run(run) == named
    saved = load_file(run / "checkpoints" / "step-000001" / "adapter" / "adapter_model.safetensors")
    assert {name.split(".")[-3] for name in saved} == set(targets)
    assert any(
        weight.abs().max() > 0 for name, weight in saved.items() if "lora_B" in name
    )  # they were trained
    assert [record.step for record in execute(prepare(named.changed(steps=2, resume=True)))] == [2]
    with pytest.raises(
        ValueError,
        match=r"targets is \('q_proj',\), but the run in .* was made with \('v_proj', 'q_p",
    ):
        prepare(named.changed(steps=3, targets=("q_proj",), resume=True))
    prepared = evaluate.prepare(SMALL.env, {}, str(run), episodes=2, sampling=SamplingOptions(16))
    assert evaluate.run(prepared).episodes == 2
    with pytest.raises(
        ValueError,
        match=r"targets is \('o_proj',\), but the adapter in .* is on \('q_proj', 'v_proj'\)",
    ):
        prepare(SMALL.changed(policy=str(run), targets=("o_proj",), out=str(tmp_path / "next")))


def test_the_engine_is_closed_when_a_run_is_left(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(TorchEngine, "close", lambda engine: closed.append(engine))
    steps = execute(prepare(SMALL.changed(out=str(tmp_path / "run"))))
    next(steps)
    assert closed == []
    steps.close()
    assert len(closed) == 1 and not (tmp_path / "run" / "summary.json").exists()


def test_a_machine_whose_rollouts_depend_on_the_batch_is_told_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(TorchEngine, "mode_reason", "8 rows and 16 rows differ")
    steps = execute(prepare(SMALL.changed(out=str(tmp_path / "run"))))
    next(steps)
    steps.close()
    assert (
        "rollouts depend on what else is in the batch on this machine: 8 rows and 16 rows differ"
        in caplog.text
    )
    record = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["record"]
    assert record["engine"] == "batch-dependent"
