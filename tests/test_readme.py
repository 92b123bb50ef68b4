"""What the README shows is run, and the commands it names exist."""

import re
from pathlib import Path

import pytest
import torch

import turngym
from turngym import __main__ as cli

README = (Path(turngym.__file__).parent / "README.md").read_text("utf-8")
PYTHON, SHELL = (re.findall(rf"```{language}\n(.*?)```", README, re.S) for language in ("python", "sh"))


def block(word: str) -> str:
    (found,) = [text for text in PYTHON if word in text]
    return found


def test_the_environment_example_runs_and_prints_a_reward(capsys):
    exec(block("gymnasium.make"), {})
    assert re.search(r"^1\.0 answered done$", capsys.readouterr().out, re.M)


def test_the_training_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    text = block("TrainConfig")
    short = text.replace("steps=5, eval_tasks=32", "steps=1, eval_tasks=2, prompts=2, group=2, max_tokens=8, threads=1")
    assert short != text
    exec(short, {})
    torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert out.count("held-out success") == 2 and re.search(r"^1 [\d.]+ [\d.]+$", out, re.M)
    assert (tmp_path / "runs" / "readme" / "summary.json").is_file()


def test_the_example_of_the_tool_and_the_grader_runs(capsys):
    exec(block("PythonTool("), {})
    assert capsys.readouterr().out == "ok {2: 3, 3: 2, 5: 1}\n\n1.0 numeric\n"


def test_every_python_block_is_one_of_those_that_are_run():
    assert sorted(PYTHON) == sorted([block("gymnasium.make"), block("PythonTool("), block("TrainConfig")])


def test_every_command_and_option_that_is_named_exists(capsys):
    lines = [line.partition("#")[0].split() for text in SHELL for line in text.splitlines()]
    calls = [line[1:] for line in lines if line and line[0].endswith("turngym")]
    calls += [words.split() for words in re.findall(r"`(?:\.venv/bin/)?turngym ([a-z][^`]*)`", README)]
    assert {call[0] for call in calls} == {
        "train",
        "compare",
        "eval",
        "play",
        "check",
        "replay",
        "audit",
        "verify",
        "methods",
        "doctor",
    }
    for call in calls:
        area = [word for word in call[1:2] if call[0] == "verify" and not word.startswith("--")]
        with pytest.raises(SystemExit) as left:
            cli.main([call[0], *area, "--help"])
        help_text = capsys.readouterr().out
        assert left.value.code == 0
        assert all(re.search(rf"{word}\b", help_text) for word in call if word.startswith("--"))


def test_every_make_target_that_is_named_exists():
    targets = re.findall(r"^(\w+):.*##", (Path(turngym.__file__).parent / "Makefile").read_text(), re.M)
    named = re.findall(r"\bmake (\w+)(?=\s+#|`)", README)
    assert named and set(named) <= set(targets)


def test_every_folder_and_page_that_is_named_exists():
    root = Path(turngym.__file__).parent
    named = re.findall(r"^\| `(\w+/)` \|", README, re.M) + re.findall(r"\]\(([\w./-]+)\)", README)
    assert len(named) > 6
    assert [name for name in named if not (root / name).exists()] == []
