""""""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from turngym.agents.evaluation.statistics import Estimate
from turngym.training.comparison.outcomes import Table, markdown, tables
from turngym.training.comparison.results import Entropy, History, MethodResult, Spent, Validation
from turngym.training.report.picture import draw, entropies, save, successes


def history(success, tokens):
    end = Spent(60, tokens, tokens // 10, tokens // 5, 90.0)
    valid = (Validation(Spent(), 0.25, 100), Validation(end, success, 100))
    return History(valid, end, {0: Entropy({1: 0.5, 2: 0.7, 3: 0.3}), 1: Entropy({2: 0.125})})


def result(histories, peers):
    ahead = {
        seed: histories[seed].validations[-1].success - peers[seed].validations[-1].success
        for seed in histories
    }
    mean = Estimate(sum(ahead.values()) / 2, 0.0125, 2) if ahead else None
    return MethodResult(
        histories, {}, mean, {seed: one.spent for seed, one in histories.items()}, len(histories)
    )


GRPO = {0: history(0.5, 10_000), 1: history(0.7, 12_000)}
FOUND = {
    "grpo": result(GRPO, GRPO),
    "epo": result({0: history(0.8, 9000), 1: history(0.8, 9000)}, GRPO),
    "aepo": result({}, GRPO),
}
WHAT = {
    "on": "math-python",
    "seeds": [0, 1],
    "shared": {
        "env": "E",
        "policy": "tiny",
        "steps": 60,
        "token_budget": 0,
        "eval_tasks": 100,
        "eval_every": 20,
    },
    "methods": {
        "grpo": {"method": "grpo", "updates": 1},
        "epo": {"method": "grpo,epo", "updates": 2},
    },
}


@pytest.fixture(scope="module")
def made():
    return tables(FOUND, "grpo", 2)


def test_success_has_denominators_and_both_intervals(made):
    assert made[0].header == (
        "method",
        "seeds",
        "before (%)",
        "after (%)",
        "pooled (%)",
        "ahead of grpo",
    )
    grpo, epo, aepo = made[0].rows
    assert grpo == ("grpo", "2/2", "25.0", "60.0 [0.0, 100.0]", "60.0 [53.1, 66.6] of 200", "")
    assert epo == ("epo", "2/2", "25.0", "80.0", "80.0 [73.9, 85.0] of 200", "+20.0 ± 1.2")
    assert aepo == ("aepo", "0/2", "–", "–", "–", "–")


def test_costs_are_counts_with_a_half_width(made):
    assert made[1].rows[0] == (
        "grpo",
        "60",
        "11,000 ± 12,706",
        "1,100 ± 1,271",
        "2,200 ± 2,541",
        "1.5",
    )
    assert made[1].rows[1] == ("epo", "60", "9,000", "900", "1,800", "1.5")
    assert made[1].rows[2] == ("aepo", *["–"] * 5)


def test_costs_until_the_references_success_say_how_many_seeds_came_there(made):
    assert made[2].title == "Spent until the final success of grpo"
    assert made[2].rows[1] == ("epo", "2/2", "60", "9,000", "900", "1,800", "1.5")
    assert made[2].rows[2] == ("aepo", "0/0", *["–"] * 5)


def test_entropy_has_a_row_a_turn(made):
    assert made[3].rows == [
        ("grpo", "0", "0.500", "0.04", "0.05"),
        ("grpo", "1", "0.125", "–", "–"),
        ("epo", "0", "0.500", "0.04", "0.05"),
        ("epo", "1", "0.125", "–", "–"),
    ]


def test_markdown_says_what_was_compared_and_holds_every_table(made):
    text = markdown(WHAT, made)
    assert text.startswith("# grpo, epo on math-python\n\nE, policy tiny; 60 steps; seeds 0, 1. ")
    assert "\n- epo: method `grpo,epo`, updates `2`\n" in text and "](compare.png)\n" in text
    assert text.count("\n## ") == 4 and text.count("\n| --- |") == 4
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith(" |")
    for table in re.findall(r"(?:\|.*\n)+", text):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    budget = markdown({**WHAT, "shared": {**WHAT["shared"], "token_budget": 50_000}}, made)
    assert "60 steps, at most 50,000 tokens; seeds" in budget


def test_a_table_is_readable_in_a_terminal_of_100_columns(made):
    console = Console(file=StringIO(), width=100)
    for table in made:
        console.print(table)
    lines = console.file.getvalue().splitlines()
    assert any(
        line.split()[:3] == ["epo", "2/2", "25.0"] and line.rstrip().endswith("+20.0 ± 1.2")
        for line in lines
    )
    for table in made:
        for row in table.rows:
            assert any(line.split() == " ".join(row).split() for line in lines), row


def test_a_note_follows_its_table():
    assert (
        Table("T", ("a", "b"), [("1", "2")], "so").markdown()
        == "## T\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nso\n"
    )


def history_of(curve, entropy):
    valid = tuple(Validation(Spent(tokens=tokens), success, 10) for tokens, success in curve)
    return History(
        valid, valid[-1].spent, {turn: Entropy(values) for turn, values in entropy.items()}
    )


ONE = history_of([(0, 0.2), (100, 0.4), (200, 0.8)], {0: {1: 0.5, 2: 0.25}, 1: {2: 0.125}})
OTHER = history_of([(0, 0.4), (150, 0.5)], {0: {1: 0.75, 2: 0.25, 3: 0.5}})


def test_success_is_linear_between_validations_and_a_run_keeps_its_last():
    assert successes([ONE, OTHER]) == [
        (0.0, 0.2, pytest.approx(0.3), 0.4),
        (
            100.0,
            0.4,
            pytest.approx((0.4 + 0.4 + 0.1 * 2 / 3) / 2),
            pytest.approx(0.4 + 0.1 * 2 / 3),
        ),
        (150.0, 0.5, pytest.approx(0.55), pytest.approx(0.6)),
        (200.0, 0.5, pytest.approx(0.65), 0.8),
    ]
    assert successes([]) == []


def test_entropy_of_a_step_is_of_the_seeds_that_came_so_far():
    assert entropies([ONE, OTHER], 0) == [
        (1.0, 0.5, 0.625, 0.75),
        (2.0, 0.25, 0.25, 0.25),
        (3.0, 0.5, 0.5, 0.5),
    ]
    assert entropies([ONE, OTHER], 1) == [(2.0, 0.125, 0.125, 0.125)]


@pytest.mark.parametrize("count", [1, 4])
def test_a_picture_has_a_row_for_every_three_methods(tmp_path, count):
    histories = {0: ONE, 1: OTHER}
    found = {f"m{number}": MethodResult(histories, {}, None, {}, 0) for number in range(count)}
    save(
        draw({**found, "none": MethodResult({}, {0: "not begun"}, None, {}, 0)}), tmp_path / "x.png"
    )
    data = (tmp_path / "x.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (width, height) == (1430, int((4.2 + 2.6 * -(-(count + 1) // 3)) * 130))
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]


def test_actions_by_turn_are_a_table_where_any_run_has_them():
    runs = {
        seed: replace(history(0.5, 1), actions={"action_entropy/1": value})
        for seed, value in ((0, 0.5), (1, 0.7))
    }
    without, found = ({"grpo": MethodResult(own, {}, None, {}, 2)} for own in (GRPO, runs))
    assert "Actions by turn" not in [table.title for table in tables(without, "grpo", 2)]
    *_, table = tables(found, "grpo", 2)
    assert table.title == "Actions by turn"
    assert [row[:4] for row in table.rows] == [("grpo", "1", "0.600 ± 1.271", "–")]
