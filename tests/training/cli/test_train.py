"""The commands `audit` and `verify` of an installed package and of a checkout."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import turngym
from turngym import __main__ as cli
from turngym.agents.cli import terminal
from turngym.agents.journal.trees import Origin, write_trees
from turngym.agents.trajectory import Leaf, Tree, Turn
from turngym.envs import StopReason
from turngym.training.runs.config import TrainConfig, to_toml


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(terminal.console, "width", 200)


@pytest.fixture
def command(capsys):
    """Run a command line; return its status, output and errors."""

    def run(*args):
        with pytest.raises(SystemExit) as left:
            cli.main(args)
        return left.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def folder(tmp_path):
    """A run without a step."""
    (tmp_path / "config.toml").write_text(
        to_toml(TrainConfig().changed(steps=1, prompts=1, group=1), {})
    )
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    return tmp_path


def test_audit_prints_every_check_and_fails_where_one_does(command, folder):
    status, out, _ = command("audit", str(folder))
    assert status == 1 and "holds  1/1  steps with one line of metrics and one whole journal" in out
    assert "FAILS  0/0  steps with a whole group for each prompt, every branch once" in out

    (folder / "trees").mkdir()
    tree = Tree((0, 0, 7), 7, "t7", [Turn.unsampled(-1, "user", "q", np.arange(5, dtype=np.int32))])
    tree.leaves = [Leaf.ended(0, 0, StopReason.CONTEXT, 0.0, {})]
    write_trees(folder / "trees" / "step-000001.jsonl", [tree], Origin("turngym/Math-v0", {}))
    status, out, _ = command("audit", str(folder))
    assert status == 1 and "FAILS  1/2  steps with one line of metrics" in out


def test_audit_refuses_a_folder_without_a_run(command):
    status, _, err = command("audit", "nowhere")
    assert status == 2 and "nowhere has no config.toml; give a run folder" in err


def test_verify_lists_its_areas_in_a_checkout(command):
    status, out, _ = command("verify", "--help")
    assert status == 0 and all(f" {area} " in out for area in ("accounting", "sandbox", "vllm"))


def test_verify_of_an_installed_package_says_what_it_needs(tmp_path):
    root, package = Path(turngym.__file__).parent, tmp_path / "turngym"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "tools", "envs", "agents", "training"):
        (package / name).symlink_to(root / name)
    installed = "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in f.__module__]"
    code = (
        f"import sys; {installed}; from turngym.__main__ import main; main(['verify', 'sandbox'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "`turngym verify` needs a source checkout" in done.stderr
