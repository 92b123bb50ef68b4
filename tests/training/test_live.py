from io import StringIO

import pytest
from rich.console import Console

from turngym.agents.scores import Interval, Report
from turngym.training import progress
from turngym.training.alarms import Alarm, Level
from turngym.training.loop import Record

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


def report(success):
    return Report(
        10, 10, 1, 0, success, Interval(success, success - 0.1, success + 0.1), {}, 0.5, 1.5, {"answered": 10}
    )


def records(steps, refused=()):
    yield Record(0, {}, report(0.3))
    for step in range(1, steps + 1):
        why = "math-1 branch 2: the score is nan" if step in refused else ""
        yield Record(step, {**METRICS, "refused": why}, report(0.7) if step == steps else None)


def test_a_line_shows_calls_and_silent_groups_where_they_are_known():
    line = progress.line({**METRICS, "tool_calls_path": 1.25, "silent_groups": 0.5})
    assert line == "reward 0.50  success 0.25  entropy [0.12 0.46]  calls 1.25  silent 0.50  150 tokens/s"
    assert "calls" not in progress.line({**METRICS, "tool_calls_path": float("nan")})


@pytest.mark.parametrize("terminal", [True, False])
def test_an_alarm_is_told_when_it_begins(terminal):
    alarm = Alarm("silent-groups", (Level("silent_groups", 0.9, 0.8),))
    console = Console(file=StringIO(), force_terminal=terminal, width=400, highlight=False)
    progress.watch([Record(1, METRICS, begun=(alarm,)), Record(2, METRICS)], 2, console)
    told = console.file.getvalue()
    assert told.count("silent-groups") == 1 and f"step 1: {alarm}" in told


def watched(terminal, **options):
    console = Console(file=StringIO(), force_terminal=terminal, width=200, highlight=False)
    progress.watch(records(11, **options), 11, console)
    return console.file.getvalue()


def test_a_line_shows_reward_success_entropy_by_turn_and_speed():
    assert progress.line(METRICS) == "reward 0.50  success 0.25  entropy [0.12 0.46]  150 tokens/s"


def test_a_line_of_a_step_that_was_taken_before_a_crash_has_no_speed():
    """Its time is not known: it was lost with the process that took it."""
    line = progress.line({**METRICS, "seconds": None, "reward": float("nan")})
    assert line == "reward nan  success 0.25  entropy [0.12 0.46]"


def test_a_plain_log_gets_every_validation_and_a_line_every_few_steps():
    lines = watched(terminal=False).splitlines()
    step = "reward 0.50  success 0.25  entropy [0.12 0.46]  150 tokens/s"
    assert [line for line in lines if line] == [
        "step 0: held-out success 30.0 % [20.0, 40.0]",
        f"step 5/11  {step}",
        f"step 10/11  {step}",
        "step 11: held-out success 70.0 % [60.0, 80.0]",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_refused_step_is_always_said_with_its_reason(terminal):
    assert "step 3 was refused: math-1 branch 2: the score is nan" in watched(terminal, refused=(3,))


def test_a_terminal_gets_a_live_bar_with_the_last_step():
    shown = watched(terminal=True)
    assert "11/11" in shown and "entropy [0.12 0.46]" in shown
    assert "step 5/11" not in shown


def test_the_last_table_compares_what_the_summary_holds():
    before = {"success": 0.3, "low": 0.2, "high": 0.4, "tool_share": 0.9, "turns": 1.5}
    after = {"success": 0.75, "low": 0.7, "high": 0.8, "tool_share": 1.0, "turns": 1.96}
    console = Console(file=StringIO(), width=120)
    console.print(progress.before_after({"before": before, "after": after, "steps": 60}))
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert rows[-2:] == [
        ["before", "0", "30.0", "%", "[20.0,", "40.0]", "90", "%", "1.50"],
        ["after", "60", "75.0", "%", "[70.0,", "80.0]", "100", "%", "1.96"],
    ]
