"""A policy made from an environment's expert: the folder, going on after a death, and mistakes."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from turngym.agents.cli import terminal
from turngym.agents.cli.settings import SamplingOptions, WarmupOptions, changed
from turngym.agents.cli.warmup import Warmup
from turngym.agents.evaluation import run as evaluate
from turngym.agents.warmup import pretrain
from turngym.agents.warmup.pretrain import Settings, prepare, run
from turngym.envs.options import EnvOptions

SMALL = Settings(
    env="turngym/Math-v0",
    options={"difficulty": (1,)},
    training=WarmupOptions(
        episodes=24,
        steps=4,
        batch=4,
        lr=1e-3,
        noise=0.3,
        size="small",
        vocabulary=320,
        context=512,
        seed=0,
        threads=1,
    ),
)
MISTAKES = {
    "environment": (
        {"env": "turngym/Mth-v0"},
        "unknown environment 'turngym/Mth-v0'; did you mean 'turngym/Math-v0'",
    ),
    "episodes": ({"episodes": 0}, "episodes is 0; it must be at least 1"),
    "noise": ({"noise": 1.0}, "noise is 1.0; it is a share of turns, from 0 to below 1"),
    "rate": ({"lr": 0.0}, "lr is 0.0; it must be above 0"),
    "vocabulary": (
        {"vocabulary": 100},
        "vocabulary is 100; bytes and control tokens alone need 300",
    ),
    "size": ({"size": "huge"}, "size is 'huge'; it must be one of mini, small, medium"),
    "seed": ({"seed": -1}, "seed is -1; it must be 0 or more"),
}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_the_folder_is_a_policy_and_a_death_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "SAVE_EVERY", 2)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    told = list(run(prepare(SMALL, whole)))
    assert [at.done for at in told if at.loss is not None] == [1, 2, 3, 4]
    assert any("24 episodes of 1.0 turns" in at.note for at in told)
    for at in run(prepare(SMALL, broken)):
        if at.loss is not None and at.done == 3:
            break
    assert not (broken / "config.json").exists()
    resumed = list(run(prepare(SMALL, broken, resume=True)))
    assert [at.done for at in resumed if at.loss is not None] == [3, 4]
    one, other = (load_file(folder / "model.safetensors") for folder in (whole, broken))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert (whole / "tokenizer.json").read_text() == (broken / "tokenizer.json").read_text()
    assert (
        json.loads((whole / "warmup.json").read_text())["noise"] == 0.3
        and not (whole / "checkpoints").exists()
    )
    report = evaluate.run(
        evaluate.prepare(
            SMALL.env, SMALL.options, str(whole), episodes=2, sampling=SamplingOptions(4)
        )
    )
    assert (report.episodes, report.failed) == (2, 0)
    with pytest.raises(
        ValueError, match="already holds a policy; continue with --resume, or choose another folder"
    ):
        prepare(SMALL, whole)
    with pytest.raises(ValueError, match="is finished; use it with --policy"):
        prepare(SMALL, whole, resume=True)


def test_what_the_agent_reads_is_learned_too(tmp_path, monkeypatch):
    one = changed(SMALL, {"steps": 1, "episodes": 4, "size": "mini"})
    list(run(prepare(one, tmp_path / "read")))
    monkeypatch.setattr(pretrain, "CONTEXT_WEIGHT", 0.0)
    list(run(prepare(one, tmp_path / "said")))
    read, said = (load_file(tmp_path / name / "model.safetensors") for name in ("read", "said"))
    assert not torch.equal(read["lm_head.weight"], said["lm_head.weight"])


def test_going_on_where_the_environment_changed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "SAVE_EVERY", 1)
    for at in run(prepare(SMALL, tmp_path)):
        if at.loss is not None and at.done == 2:
            break
    (tmp_path / "tokenizer.json").write_text("another")
    with pytest.raises(
        ValueError, match=r"has changed since the warm-up in .* was started; start again in another"
    ):
        list(run(prepare(SMALL, tmp_path, resume=True)))


def test_going_on_with_other_settings_is_refused(tmp_path):
    next(run(prepare(SMALL, tmp_path)))
    with pytest.raises(
        ValueError, match=r"noise is 0.1, but the warm-up in .* was started with 0.3; use that"
    ):
        prepare(changed(SMALL, {"noise": 0.1}), tmp_path, resume=True)
    assert prepare(SMALL, tmp_path, resume=True).checkpoint is None
    with pytest.raises(
        FileNotFoundError, match="holds no warm-up to resume; leave --resume out to start one"
    ):
        prepare(SMALL, tmp_path / "nowhere", resume=True)


def test_episodes_that_do_not_fit_the_context_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"context is 16 tokens, and 24 of 24 episodes are longer \(up to \d+\)"
    ):
        list(run(prepare(changed(SMALL, {"context": 16}), tmp_path)))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_before_anything_is_written(name, tmp_path):
    change, message = MISTAKES[name]
    with pytest.raises(ValueError) as told:
        prepare(changed(SMALL, change), tmp_path / "out")
    assert message in str(told.value) and not (tmp_path / "out").exists()


def test_torch_is_not_imported_to_find_a_mistake(tmp_path):
    ask = "import sys; from turngym.agents.warmup import pretrain; assert 'torch' not in sys.modules, 'torch'"
    subprocess.run([sys.executable, "-c", ask], check=True, cwd=tmp_path)


@pytest.mark.slow
def test_the_command_makes_a_policy_and_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(terminal.console, "width", 400)
    options = EnvOptions(difficulty=(1,))
    command = Warmup(
        SMALL.env,
        tmp_path / "warm",
        WarmupOptions(60, 50, 2, vocabulary=320, context=256, threads=1),
        options=options,
    )
    assert command.run() == 0
    out = capsys.readouterr().out
    assert "60 episodes of 1.0 turns" in out and "step 50/50  loss " in out
    assert f"turngym eval {SMALL.env} --policy {tmp_path / 'warm'}" in out


def test_the_commands_mistakes_are_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        Warmup(SMALL.env, tmp_path, WarmupOptions(episodes=0)).run()
    assert (
        left.value.code == 2 and "episodes is 0; it must be at least 1" in capsys.readouterr().err
    )
