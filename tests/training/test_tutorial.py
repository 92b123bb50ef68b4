"""The tutorial goes from an empty folder to a trained policy, as it is written."""

import importlib
import json
import re
import sys
from pathlib import Path

import gymnasium
import pytest
import torch

from turngym import __main__ as cli
from turngym.tests.support.pages import blocks, commands

PAGE = "docs/tutorial-environment.md"


@pytest.mark.slow
def test_the_tutorial_trains_a_policy_from_an_empty_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    code = next(block for block in blocks("python") if block.page == PAGE)
    (shell,) = [block for block in blocks("sh") if block.page == PAGE]
    assert len([line for line in (code.text + shell.text).splitlines() if line.strip()]) <= 40
    Path("guess.py").write_text(code.text)
    importlib.invalidate_caches()
    registered, threads, said = dict(gymnasium.registry), torch.get_num_threads(), {}
    try:
        for words in commands(shell):
            with pytest.raises(SystemExit) as left:
                cli.main(words)
            said[words[0]] = capsys.readouterr().out
            assert left.value.code == 0, said
    finally:
        torch.set_num_threads(threads)
        sys.modules.pop("guess", None)
        gymnasium.registry.clear()
        gymnasium.registry.update(registered)
    assert "guess:Guess keeps the contract" in said["check"]
    summary = json.loads(Path("runs/guess/summary.json").read_text())
    # The intervals do not overlap: a twentieth of chance is far away.
    assert summary["before"]["high"] < summary["after"]["low"] and summary["after"]["success"] > 0.7
    assert re.search(
        r"128 episodes of runs/guess/trees/step-000012.jsonl were replayed", said["replay"]
    )
    assert 'env = "guess:Guess"' in Path("runs/guess/config.toml").read_text()
