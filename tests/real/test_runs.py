"""Short runs of a real model: what it learns with, what it leaves behind, and what the alarms say."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from turngym import __main__ as cli
from turngym.agents.models import memory
from turngym.agents.models.memory import TooLarge
from turngym.agents.models.resolve import Source, find
from turngym.agents.policy import load_policy
from turngym.training.runs import run
from turngym.training.runs.config import TrainConfig, read_recipe
from turngym.training.runs.export import execute, prepare

pytestmark = pytest.mark.usefixtures("one_thread")
WARM = ["--episodes", "8", "--batch", "2", "--rank", "8", "--alpha", "16"]
TAGS = ["--difficulty", "1", "--option", "format=tags", "max_turns=3", "system=false"]


def trained(config: TrainConfig) -> list[dict[str, Any]]:
    """Train, and return the lines of metrics."""
    prepared = run.prepare(config)
    try:
        for _ in run.execute(prepared):
            pass
    finally:
        prepared.close()
    return [
        json.loads(line) for line in (prepared.folder / "metrics.jsonl").read_text().splitlines()
    ]


def turngym(*args: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main([*args, "--quiet"] if args[0] in ("warmup", "train") else list(args))
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def sums(
    source: Source, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    """Five steps of the recipe of sums, at five times its learning rate: its folder and metrics."""
    folder = tmp_path_factory.mktemp("sums") / "run"
    small = {"steps": 5, "prompts": 4, "group": 8, "eval_every": 5, "eval_tasks": 16, "lr": 5e-4}
    return folder, trained(read_recipe("sums-smollm2").changed(**small, threads=1, out=str(folder)))


def test_five_steps_learn_and_are_measured(sums: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, lines = sums
    steps = lines[1:]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5] and all(
        line["refused"] == "" for line in steps
    )
    assert steps[0]["entropy_turn/0"] > 0.8  # nats a token: the tiny policy begins with 0.16
    assert steps[-1]["entropy_turn/0"] < steps[0]["entropy_turn/0"]
    assert all(0 < line["turns/length"] <= 12 and 0 <= line["repetition"] < 0.5 for line in steps)
    assert turngym("audit", str(folder)) == 0


@pytest.mark.filterwarnings(
    "ignore:Model has .tie_word_embeddings=True"
)  # the update is of the head alone
@pytest.mark.parametrize("merged", [False, True], ids=["adapter", "merged"])
def test_what_is_exported_computes_what_was_learned(
    sums: tuple[Path, list[dict[str, Any]]], merged: bool, tmp_path: Path
) -> None:
    folder = execute(prepare(sums[0], tmp_path / "out", merged))
    source, ids = find(sums[0]), torch.arange(100, 140)[None]
    model = AutoModelForCausalLM.from_pretrained(
        folder if merged else source.folder, dtype=torch.float32
    )
    model = model if merged else PeftModel.from_pretrained(model, folder)
    with torch.no_grad():
        found, true, stock = (
            one.eval()(ids).logits
            for one in (model, load_policy(source).model, load_policy(source.folder).model)
        )
    torch.testing.assert_close(found, true, atol=1e-3, rtol=1e-4)
    assert (found - stock).abs().max() > 0.1
    assert "dequantised from Q4_1" in (folder / "README.md").read_text()


def test_a_policy_that_is_only_sharpened_is_told_as_an_early_collapse(
    source: Source, tmp_path: Path
) -> None:
    config = read_recipe("sums-smollm2").changed(
        method="grpo,one-shot-em",
        lr=1e-3,
        steps=9,
        prompts=2,
        group=8,
        eval_every=9,
        eval_tasks=1,
        threads=1,
        out=str(tmp_path / "run"),
    )
    prepared = run.prepare(config)
    try:
        assert "early-collapse" in [
            alarm.kind for record in run.execute(prepared) for alarm in record.begun
        ]
    finally:
        prepared.close()


def test_a_warm_up_goes_on_and_a_run_starts_from_it(source: Source, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "warm"), "--policy", "smollm2-135m"]
    assert turngym("warmup", "turngym/MathPython-v0", *out, *TAGS, *WARM, "--steps", "4") == 0
    losses = [
        json.loads(line) for line in (tmp_path / "warm" / "losses.jsonl").read_text().splitlines()
    ]
    held = [line["held_out"] for line in losses if "held_out" in line]
    assert held[-1] < held[0]
    small = {
        "policy": str(tmp_path / "warm"),
        "steps": 1,
        "prompts": 2,
        "group": 4,
        "eval_tasks": 4,
        "eval_every": 1,
    }
    *_, line = trained(
        read_recipe("math-python-smollm2").changed(**small, threads=1, out=str(tmp_path / "run"))
    )
    assert line["step"] == 1 and line["turns/length"] > 1


def test_a_dry_run_shows_the_prompt_that_the_model_will_see(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    assert turngym("train", "sums-smollm2", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "134,515,008 weights" in said and "<|im_start|>user" in said and "\\boxed{" in said
    assert "together; cpu has" in said


def test_a_truncated_file_is_refused(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turngym.agents.models.resolve import smollm2

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with smollm2().open("rb") as whole, (tmp_path / "part.gguf").open("wb") as part:
        shutil.copyfileobj(whole, part)
        part.truncate(50_000_000)
    with pytest.raises(ValueError, match=r"part\.gguf is no whole GGUF file.*; get it again"):
        find(tmp_path / "part.gguf")
    assert not (tmp_path / "cache").exists()


def test_without_memory_nothing_is_loaded(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 200 << 20)
    with pytest.raises(
        TooLarge, match=r"does not fit: 0\.5 GiB of weights in float32.*use a smaller model, dtype"
    ):
        trained(read_recipe("sums-smollm2").changed(out=str(tmp_path / "run")))
    assert not list((tmp_path / "run").glob("trees/*"))
