"""What is seen of a comparison, in a terminal and in a plain log, from trials that are played here."""

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from turngym.agents.scores import Interval
from turngym.training import progress
from turngym.training.comparison import results
from turngym.training.comparison.results import History, Spent, Validation
from turngym.training.loop import Refusals

METRICS = {"reward": 0.5, "success": 0.25, "entropy_turn/0": 0.125, "tokens": 300, "seconds": 2.0, "refused": ""}
COURSE = History((Validation(Spent(), 0.25, 8), Validation(Spent(), 0.75, 8)), Spent(6, 1800, 90, 180, 90.0), {})
STEPS = 6


class Played:
    """A trial of six steps, of which the third is refused; it may end as runs do that come to nothing."""

    def __init__(self, method: str, seed: int = 0, finished: bool = False, error: Exception | None = None) -> None:
        self.method, self.config, self.finished, self.error = (
            method,
            SimpleNamespace(seed=seed, schedule=SimpleNamespace(steps=STEPS)),
            finished,
            error,
        )
        self.folder = method

    def records(self):
        valid = SimpleNamespace(success=Interval(0.25, 0.125, 0.5))
        yield SimpleNamespace(step=0, metrics={}, valid=valid)
        for step in range(1, STEPS + 1):
            if step == 4 and self.error:
                raise self.error
            refused = "[the loss] is nan" if step == 3 else ""
            metrics = {**METRICS, "refused": refused}
            begun = ["entropy of turn 0 [is] gone"] if step == 2 else []
            yield SimpleNamespace(step=step, metrics=metrics, valid=valid if step in (4, STEPS) else None, begun=begun)


@pytest.fixture(autouse=True)
def histories(monkeypatch):
    monkeypatch.setattr(results, "read_history", lambda folder: COURSE)


def watched(trials, terminal=False, width=100):
    console, reports = Console(file=StringIO(), force_terminal=terminal, width=width, highlight=False), []
    progress.watch_comparison(SimpleNamespace(trials=trials), console, lambda: reports.append(1))
    return console.file.getvalue(), len(reports)


def test_a_plain_log_names_method_seed_and_step_in_lines_that_are_not_broken():
    text, reports = watched([Played("epo", seed=3)], width=40)
    outcome = "held-out success 25.0 % → 75.0 % in 6 steps, 1,800 tokens, 90 tool calls, 1.5 min"
    assert text.splitlines() == [
        "epo, seed 3  step 0: held-out success 25.0 % [12.5, 50.0]",
        "epo, seed 3  step 2: entropy of turn 0 [is] gone",
        "epo, seed 3  step 3 was refused: [the loss] is nan",
        "epo, seed 3  step 4: held-out success 25.0 % [12.5, 50.0]",
        "epo, seed 3  step 5/6  reward 0.50  success 0.25  entropy [0.12]  150 tokens/s",
        f"1/1  epo, seed 3: {outcome}",
    ]
    assert reports == 2  # after the run, and at the end


def test_a_finished_run_is_kept_and_said_so():
    text, reports = watched([Played("grpo", finished=True)])
    assert text == (
        "1/1  grpo, seed 0: held-out success 25.0 % → 75.0 % in 6 steps, 1,800 tokens, 90 tool calls, 1.5 min, kept\n"
    )
    assert reports == 1


@pytest.mark.parametrize("error", [Refusals("5 steps [in a row]"), FloatingPointError("overflow")])
def test_a_run_that_fails_does_not_end_the_others(error):
    text, reports = watched([Played("dapo", error=error), Played("grpo")])
    assert f"dapo, seed 0 failed: {error}\n" in text and "2/2  grpo, seed 0: held-out success" in text
    assert "1/2  dapo, seed 0:" not in text and reports == 3


def test_any_other_failure_is_not_held_back():
    with pytest.raises(OSError, match="the disk is full"):
        watched([Played("dapo", error=OSError("the disk is full"))])


def test_a_terminal_shows_the_run_its_step_and_how_far_all_of_it_is():
    text, _ = watched([Played("epo", seed=3), Played("grpo")], terminal=True, width=160)
    assert "all" in text and "run 1 of 2" in text and "run 2 of 2" in text
    assert "step 6/6  reward 0.50  success 0.25  entropy [0.12]" in text
    assert "loading the policy, first validation" in text or "first rollout" in text
