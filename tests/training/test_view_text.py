"""`turngym view --text`: what it prints is what the folder holds, in any terminal, whatever the files say."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from turngym import __main__ as cli
from turngym.agents.journal.trees import Origin, write_trees
from turngym.agents.trajectory import NO_TOKENS, Leaf, Tree, Turn
from turngym.envs import StopReason
from turngym.training.report.data import read
from turngym.training.report.text import plain, show, spark
from turngym.training.runs.config import TrainConfig, to_toml

HOSTILE = "a \x1b[31mred\x1b]0;title\x07 \u202e<script>\nline"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of 40 steps with NaN, a damaged line, hostile text and one failed episode."""
    (tmp_path / "config.toml").write_text(to_toml(TrainConfig().changed(steps=40), {}))
    lines = [json.dumps({"step": 0, "valid/success": 0.25})]
    for step in range(1, 41):
        line = {
            "step": step,
            "reward": step / 40,
            "entropy_turn/0": 1 - step / 80,
            "entropy": None,
            "refused": "",
        }
        lines.append(
            json.dumps(
                {**line, f"control/epo/{HOSTILE}": step, "entropy_turn/13": 0.125}
                if step > 20
                else line
            )
        )
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, "{damaged", ""]))
    (tmp_path / "incidents.jsonl").write_text(
        json.dumps({"step": 3, "kind": "retry", "what": HOSTILE, "key": []}) + "\n"
    )
    (tmp_path / "trees").mkdir()
    tree = Tree((0, 39, 7), 7, "t7", [Turn.unsampled(-1, "user", HOSTILE, NO_TOKENS)])
    tree.leaves = [
        Leaf.ended(0, 0, StopReason.ANSWERED, 1.0, {}),
        Leaf.ended(0, 1, StopReason.CONTEXT, 0.0, {}),
    ]
    write_trees(tmp_path / "trees" / "step-000040.jsonl", [tree], Origin("turngym/Math-v0", {}))
    return tmp_path


def printed(folder: Path, width: int, terminal: bool = False) -> str:
    colours = "truecolor" if terminal else None
    console = Console(
        file=StringIO(), width=width, force_terminal=terminal, color_system=colours, highlight=False
    )
    show(read([folder]), console)
    return console.file.getvalue()


def test_the_numbers_are_those_of_the_files(folder):
    text = printed(folder, 200)
    rows = [line.split() for line in text.splitlines()]
    assert "40 of 40 steps, not finished, last written" in text
    (reward,) = [row for row in rows if row[:1] == ["reward"]]
    assert (
        (reward[1], reward[-1]) == ("0.025", "1") and reward[2][0] == "▁" and reward[2][-1] == "█"
    )
    heads, first, late = [row for row in rows if row[:1] in (["turn"], ["0"], ["13"])][:3]
    assert (heads[1], heads[-1], first[1], first[-1], late[-1]) == (
        "1",
        "40",
        "0.99",
        "0.50",
        "0.12",
    )
    assert "2 episodes of step 40: answered 1, context 1; 1 failed" in text
    assert ["7", "1", "0", "truncated", "context"] in rows
    assert "incidents: retry 1" in text and "metrics.jsonl, line 42: damaged" in text
    assert "entropy  " not in text.replace(
        "entropy by turn", ""
    )  # none of its values could be computed


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("terminal", [True, False])
def test_no_text_of_a_file_controls_the_terminal_and_no_line_is_too_long(folder, width, terminal):
    text = printed(folder, width, terminal)
    assert "\x1b]0" not in text and "\x07" not in text and "\u202e" not in text
    assert terminal == ("\x1b[" in text)
    assert terminal or max(map(len, text.splitlines())) <= width


def test_what_does_not_print_is_spelled_out():
    assert plain(HOSTILE) == r"a \x1b[31mred\x1b]0;title\x07 \u202e<script>\nline"


def test_bars_are_means_of_equal_parts():
    assert spark([0, 7], 9) == "▁█" and spark([0, 0, 7, 7, 3, 4], 3) == "▁█▅"
    assert spark([2, 2], 5) == "▁▁" and spark([], 5) == ""


def view(capsys, *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        cli.main(["view", *args])
    return left.value.code, *capsys.readouterr()


def test_the_command_and_its_mistakes(folder, tmp_path_factory, capsys):
    status, out, _ = view(capsys, str(folder), str(folder), "--text")
    assert status == 0 and out.count("incidents: retry 1") == 2
    status, out, err = view(capsys, str(tmp_path_factory.mktemp("empty")), "--text")
    assert (status, out, err.count("\n")) == (
        2,
        "",
        1,
    ) and "is no run, evaluation or comparison" in err
    status, _, err = view(capsys, str(folder), "--text", "--live")
    assert status == 2 and "give one of them" in err


def test_a_run_without_a_step_and_an_evaluation_without_turns(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 0}\n')
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "eval.json").write_text('{"episodes": 0, "success": {"value": null}}')
    status, out, _ = view(capsys, str(tmp_path / "run"), str(tmp_path / "eval"), "--text")
    assert status == 0 and "0 of ? steps, not finished" in out and "config.toml is missing" in out
    assert "0 episodes" in out and "trees.jsonl is missing" in out
