import os

import pytest

from turngym.tests.verify.grader import trials
from turngym.tests.verify.grader.answers import Answer
from turngym.tests.verify.grader.predicates import Seen
from turngym.tests.verify.grader.processes import Process
from turngym.tests.verify.grader.trials import Trial, unheld
from turngym.tools.subprocesses.process import Died

PAID = Answer("paid", "math", r"\boxed{7}", "7", ("reward=1", "stable", "deadline"))
SELF = Process(os.getpid(), 0, False, "python worker.py")


class FakeProbe:
    """Stands in for a fresh process."""

    def __init__(self, folder):
        self.workers, self.fails = [], True

    def ready(self, tools):
        pass

    def see(self, env, text, gold, limit):
        if text == "hard" and self.fails:
            raise Died("gone")
        return Seen(score=0.0)

    def processes(self):
        return self.workers

    def rest(self):
        pass

    def close(self):
        pass


@pytest.fixture
def faked(monkeypatch):
    monkeypatch.setattr(trials, "Probe", FakeProbe)
    monkeypatch.setattr(trials, "SETTLE", 0.0)


def test_what_does_not_hold_is_told_with_what_was_raised():
    raised = Seen(raised="ValueError: x")
    assert unheld(PAID, [Seen(score=1.0), raised]) == ["reward=1", "stable", "ValueError: x"]
    assert unheld(PAID, []) == ["reward=1", "stable", "deadline"]


def test_a_process_that_dies_is_replaced(faked, tmp_path):
    trial = Trial(tmp_path)
    found = {"hard": [], "paid": []}
    trial.run([Answer("hard", "math", "hard", "7", ()), PAID], found)
    assert found["hard"][0].raised == "Died: gone" and found["hard"][0].seconds == trials.PATIENCE
    assert found["paid"] == [Seen(score=0.0)]


@pytest.mark.parametrize(
    ("workers", "closed", "told"),
    [
        ([], [], ""),
        ([SELF] * trials.POOL, [], ""),
        ([SELF] * (trials.POOL + 1), [], "while it graded"),
        ([SELF._replace(zombie=True)], [], "zombie python worker.py"),
        ([], [SELF], "1 processes when it was closed, 0 allowed"),
    ],
)
def test_leaks_are_named(faked, tmp_path, workers, closed, told):
    trial = Trial(tmp_path)
    trial.workers, trial.closed = workers, closed
    assert told in trial.leak() and bool(told) == bool(trial.leak())


def test_a_process_left_at_the_end_is_named(faked, tmp_path, monkeypatch):
    trial = Trial(tmp_path)
    trial.probe.workers = [SELF]
    monkeypatch.setattr(trials, "lives", lambda one: True)
    assert trial.leak().startswith(f"1 processes at the end, 0 allowed: {os.getpid()} python")


def test_processes_that_end_are_waited_for():
    left = [[SELF, SELF], [SELF], []]
    assert trials._await(lambda: left.pop(0), 1) == [SELF] and len(left) == 1
