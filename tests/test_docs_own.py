"""The tutorials on a tool and a method of one's own: their files, and their commands."""

import json
from pathlib import Path

import pytest
import torch

from turngym import __main__ as cli
from turngym.tests.support.packages import working_in
from turngym.tests.support.pages import blocks, commands

SHORT = [
    "--prompts",
    "2",
    "--group",
    "2",
    "--eval-tasks",
    "4",
    "--eval-every",
    "2",
    "--max-tokens",
    "24",
]


def tutorial(page, word):
    """The block of Python that holds a word, and the commands of the block of shell behind it."""
    every = [block for block in blocks() if block.page == page]
    (file,) = [block for block in every if block.language == "python" and word in block.text]
    shell = next(block for block in every if block.language == "sh" and block.number > file.number)
    return file.text, commands(shell)


def run(words):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 0, words


@pytest.fixture
def folder(tmp_path):
    threads = torch.get_num_threads()
    with working_in(tmp_path):
        yield tmp_path
    torch.set_num_threads(threads)


def test_tutorials_are_short():
    for page, word in (("docs/tools.md", "class Pad"), ("docs/methods.md", "def turn_decay")):
        file, lines = tutorial(page, word)
        assert len(file.splitlines()) + len(lines) <= 40


@pytest.mark.slow
def test_the_tutorial_of_a_tool_runs(folder, capsys):
    file, lines = tutorial("docs/tools.md", "class Pad")
    (folder / "pad.py").write_text(file)
    assert [words[0] for words in lines] == ["play", "check", "eval", "replay", "train"]
    *_, evaluate, replay, train = lines
    run(evaluate)
    run(replay)
    assert (
        "8 episodes of runs/pad/trees.jsonl were replayed without a difference"
        in capsys.readouterr().out
    )
    with pytest.raises(SystemExit):
        cli.main(replay[:2])
    assert "add --option tools=pad:Pad to the command" in capsys.readouterr().err
    run([*train[: train.index("--steps")], "--steps", "1", "--out", "run", *SHORT])
    tree = json.loads(Path("run/trees/step-000001.jsonl").read_text().splitlines()[1])
    assert [tool["function"]["name"] for tool in tree["turns"][0]["info"]["tools"]] == [
        "python",
        "note",
        "total",
    ]


@pytest.mark.slow
def test_the_tutorial_of_own_questions_runs(folder, capsys, monkeypatch):
    file, _ = tutorial("docs/own-tasks.md", "TEMPERATURES")
    (folder / "my_env.py").write_text(file)
    every = [
        words
        for block in blocks("sh")
        if block.page == "docs/own-tasks.md"
        for words in commands(block)
    ]
    elsewhere = ("--base-url", "Qwen/Qwen2.5-0.5B-Instruct")  # models that are not here
    here = [words for words in every if not {*words} & {*elsewhere}]
    assert [words[0] for words in here] == [
        "check",
        "play",
        "eval",
        "eval",
        "replay",
        "train",
        "eval",
        "audit",
    ]
    replies = iter(
        ['<tool_call>{"name": "lookup", "arguments": {"city": "Oslo"}}</tool_call>', "-3"]
    )
    monkeypatch.setattr(
        "turngym.agents.cli.terminal.console.input", lambda *args, **options: next(replies)
    )
    monkeypatch.setattr("builtins.input", lambda *args: next(replies))
    for words in here:
        run(words)
    out = capsys.readouterr().out
    assert "my_env.py:make keeps the contract" in out and "3 episodes of runs/tiny-weather" in out
    resumed = ["train", "--resume", "--out", "runs/weather-trained", "--steps", "4"]
    run([*resumed, "--env", "my_env.py:make"])


@pytest.mark.slow
def test_the_tutorial_of_a_method_runs(folder, capsys):
    file, lines = tutorial("docs/methods.md", "def turn_decay")
    (folder / "decay.py").write_text(file)
    assert [words[0] for words in lines] == ["methods", "train", "compare"]
    run(lines[0])
    assert "keep=0.9 (0 to 1)" in capsys.readouterr().out
    run([*lines[1][: lines[1].index("--steps")], "--steps", "1", "--out", "run", *SHORT])
    assert 'method = "grpo,decay:turn_decay:keep=0.8"' in Path("run/config.toml").read_text()
    again = ["train", "--resume", "--out", "run", "--steps", "2"]
    with pytest.raises(SystemExit):
        cli.main(again)
    assert "add --method grpo,decay:turn_decay:keep=0.8 to the command" in capsys.readouterr().err
    run([*again, "--method", "grpo,decay:turn_decay:keep=0.8"])
