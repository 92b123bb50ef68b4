""""""

from __future__ import annotations

from functools import partial
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from turngym.agents.evaluation.scores import Interval, Report
from turngym.tools.progress import current_work
from turngym.training.cli import compare as command
from turngym.training.cli import train as commands
from turngym.training.comparison import results
from turngym.training.comparison.results import History, Spent, Validation
from turngym.training.loop.trainer import Record, Refusals
from turngym.training.metrics.alarms import Alarm, Level

METRICS = {
    "reward": 0.5,
    "success": 0.25,
    "entropy": 0.4,
    "entropy_turn/0": 0.123,
    "entropy_turn/1": 0.456,
    "tokens": 300,
    "seconds": 2.0,
    "refused": "",
}

SEEN: list[list[tuple[str, int, int, str]]] = []


def report(success):
    return Report(
        10,
        10,
        1,
        0,
        success,
        Interval(success, success - 0.1, success + 0.1),
        {},
        0.5,
        1.5,
        {"answered": 10},
    )


def records(steps, refused=()):
    yield Record(0, {}, report(0.3))
    for step in range(1, steps + 1):
        why = "math-1 branch 2: the score is nan" if step in refused else ""
        yield Record(step, {**METRICS, "refused": why}, report(0.7) if step == steps else None)


def test_a_line_shows_calls_and_silent_groups_where_they_are_known():
    line = commands.step_line({**METRICS, "tool_calls_path": 1.25, "silent_groups": 0.5})
    assert (
        line
        == "reward 0.50  success 0.25  entropy [0.12 0.46]  calls 1.25  silent 0.50  150 tokens/s"
    )
    assert "calls" not in commands.step_line({**METRICS, "tool_calls_path": float("nan")})


@pytest.mark.parametrize("terminal", [True, False])
def test_an_alarm_is_told_when_it_begins(terminal):
    alarm = Alarm("silent-groups", (Level("silent_groups", 0.9, 0.8),))
    console = Console(file=StringIO(), force_terminal=terminal, width=400, highlight=False)
    commands.watch([Record(1, METRICS, begun=(alarm,)), Record(2, METRICS)], 2, console)
    early = Alarm("cut-turns", (Level("valid/cut", 0.9, 0.5),))
    commands.watch([Record(0, {}, report(0.3), begun=(early,))], 2, console)
    told = console.file.getvalue()
    assert f"step 0: {early}" in told
    assert told.count("silent-groups") == 1 and f"step 1: {alarm}" in told


def watched(terminal, **options):
    console = Console(file=StringIO(), force_terminal=terminal, width=200, highlight=False)
    commands.watch(records(11, **options), 11, console)
    return console.file.getvalue()


def seen(records):
    """Pass records on, and collect what there is to see of the work when the next one is asked for."""
    for record in records:
        yield record
        SEEN.append([(work.what, work.done, work.total, work.text) for work in current_work()])


@pytest.fixture(autouse=True)
def nothing_seen():
    SEEN.clear()


def test_a_line_shows_reward_success_entropy_by_turn_and_speed():
    assert (
        commands.step_line(METRICS)
        == "reward 0.50  success 0.25  entropy [0.12 0.46]  150 tokens/s"
    )


def test_a_line_of_a_step_that_was_taken_before_a_crash_has_no_speed():
    """Its time is not known: it was lost with the process that took it."""
    line = commands.step_line({**METRICS, "seconds": None, "reward": float("nan")})
    assert line == "reward nan  success 0.25  entropy [0.12 0.46]"


def test_every_validation_is_printed():
    assert watched(terminal=False).splitlines() == [
        "step 0: held-out success 30.0 % [20.0, 40.0]",
        "step 11: held-out success 70.0 % [60.0, 80.0]",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_refused_step_is_always_said_with_its_reason(terminal):
    assert "step 3 was refused: math-1 branch 2: the score is nan" in watched(
        terminal, refused=(3,)
    )


def test_the_progress_of_a_run_is_its_last_step():
    commands.watch(seen(records(11)), 11, Console(quiet=True))
    step = "reward 0.50  success 0.25  entropy [0.12 0.46]  150 tokens/s"
    assert SEEN[0] == [("step", 0, 11, "")] and SEEN[4] == [("step", 4, 11, step)]
    assert current_work() == ()


def test_the_last_table_compares_what_the_summary_holds():
    before = {"success": 0.3, "low": 0.2, "high": 0.4, "tool_share": 0.9, "turns": 1.5, "cut": None}
    after = {
        "success": 0.75,
        "low": 0.7,
        "high": 0.8,
        "tool_share": 1.0,
        "turns": 1.96,
        "cut": 0.625,
    }
    console = Console(file=StringIO(), width=120)
    console.print(commands.before_after({"before": before, "after": after, "steps": 60}))
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert rows[-2:] == [
        ["before", "0", "30.0", "%", "[20.0,", "40.0]", "90", "%", "1.50"],
        ["after", "60", "75.0", "%", "[70.0,", "80.0]", "100", "%", "1.96", "62", "%"],
    ]


PLAYED = {
    "reward": 0.5,
    "success": 0.25,
    "entropy_turn/0": 0.125,
    "tokens": 300,
    "seconds": 2.0,
    "refused": "",
}
HISTORY = History(
    (Validation(Spent(), 0.25, 8), Validation(Spent(), 0.75, 8)), Spent(6, 1800, 90, 180, 90.0), {}
)
STEPS = 6


class Played:
    """A trial of six steps, of which the third is refused; it may end as runs do that come to nothing."""

    def __init__(
        self, method: str, seed: int = 0, finished: bool = False, error: Exception | None = None
    ) -> None:
        self.method, self.config, self.finished, self.error = (
            method,
            SimpleNamespace(seed=seed, schedule=SimpleNamespace(steps=STEPS)),
            finished,
            error,
        )
        self.folder = method

    def __str__(self) -> str:
        return f"{self.method}, seed {self.config.seed}"

    def records(self):
        valid = SimpleNamespace(success=Interval(0.25, 0.125, 0.5))
        yield SimpleNamespace(step=0, metrics={}, valid=valid, begun=[])
        for step in range(1, STEPS + 1):
            if step == 4 and self.error:
                raise self.error
            refused = "[the loss] is nan" if step == 3 else ""
            metrics = {**PLAYED, "refused": refused}
            begun = ["entropy of turn 0 [is] gone"] if step == 2 else []
            yield SimpleNamespace(
                step=step, metrics=metrics, valid=valid if step in (4, STEPS) else None, begun=begun
            )


@pytest.fixture(autouse=True)
def histories(monkeypatch):
    monkeypatch.setattr(results, "read_history", lambda folder: HISTORY)


def watched_comparison(trials, terminal=False, width=100):
    console, reports = (
        Console(file=StringIO(), force_terminal=terminal, width=width, highlight=False),
        [],
    )
    command.watch_comparison(SimpleNamespace(trials=trials), console, lambda: reports.append(1))
    return console.file.getvalue(), len(reports)


def test_a_plain_log_names_method_seed_and_step_in_lines_that_are_not_broken():
    text, reports = watched_comparison([Played("epo", seed=3)], width=40)
    outcome = "held-out success 25.0 % → 75.0 % in 6 steps, 1,800 tokens, 90 tool calls, 1.5 min"
    assert text.splitlines() == [
        "epo, seed 3  step 0: held-out success 25.0 % [12.5, 50.0]",
        "epo, seed 3  step 2: entropy of turn 0 [is] gone",
        "epo, seed 3  step 3 was refused: [the loss] is nan",
        "epo, seed 3  step 4: held-out success 25.0 % [12.5, 50.0]",
        f"1/1  epo, seed 3: {outcome}",
    ]
    assert reports == 2  # after the run, and at the end


def test_a_finished_run_is_kept_and_said_so():
    text, reports = watched_comparison([Played("grpo", finished=True)])
    assert text == (
        "1/1  grpo, seed 0: held-out success 25.0 % → 75.0 % in 6 steps, 1,800 tokens, 90 tool calls, 1.5 min, kept\n"
    )
    assert reports == 1


@pytest.mark.parametrize("error", [Refusals("5 steps [in a row]"), FloatingPointError("overflow")])
def test_a_run_that_fails_does_not_end_the_others(error):
    text, reports = watched_comparison([Played("dapo", error=error), Played("grpo")])
    assert (
        f"dapo, seed 0 failed: {error}\n" in text and "2/2  grpo, seed 0: held-out success" in text
    )
    assert "1/2  dapo, seed 0:" not in text and reports == 3


def test_any_other_failure_is_not_held_back():
    with pytest.raises(OSError, match="the disk is full"):
        watched_comparison([Played("dapo", error=OSError("the disk is full"))])


def test_the_progress_of_a_comparison_is_that_of_all_runs_and_the_step_of_one():
    trials = [Played("dapo", finished=True), Played("epo", seed=3), Played("grpo")]
    for trial in trials:
        trial.records = partial(seen, trial.records())
    watched_comparison(trials)
    step = "reward 0.50  success 0.25  entropy [0.12]  150 tokens/s"
    assert SEEN[2] == [("all steps", 2, 12, "run 2/3"), ("epo, seed 3: step", 2, 6, step)]
    assert SEEN[7] == [("all steps", 6, 12, "run 3/3"), ("grpo, seed 0: step", 0, 6, "")]
