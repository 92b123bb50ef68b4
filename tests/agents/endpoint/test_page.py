"""The Python of docs/evaluate.md, with a server that answers."""

import json

import pytest

from turngym.envs.registry import make
from turngym.tests.support.chat_server import ChatServer, Scripted
from turngym.tests.support.pages import blocks

PAGE = [block for block in blocks("python") if block.page.endswith("evaluate.md")]


@pytest.mark.parametrize("block", PAGE, ids=str)
def test_each_block_evaluates_a_model(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "turngym.agents.evaluation.run.pick_tasks", lambda tasks, count, seed: list(range(count))
    )
    server = ChatServer(Scripted.of(make("turngym/MathPython-v0", split="test")))
    with server.run() as url:
        exec(block.text.replace("http://127.0.0.1:8000", url), {})
    out = capsys.readouterr().out
    assert server.asked and server.asked[0]["tools"]
    if "evals/name" in block.text:
        assert "'model': 'scripted-1'" in out and out.count("answered 1.0") == 3
        assert json.loads((tmp_path / "evals" / "name" / "eval.json").read_text())["episodes"] == 8
    else:
        assert "boxed" in out or "1.0 answered" in out
