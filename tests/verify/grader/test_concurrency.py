import threading

from turngym.envs.math import MathGrader
from turngym.envs.math.grading.grader import Grade
from turngym.tests.verify.grader import concurrency
from turngym.tests.verify.grader.right import Written

WRITTEN = [Written(str(n), rf"\boxed{{{n}}}", ("as it is",)) for n in range(40)]
HOSTILE = [("42", r"\boxed{41}"), ("42", "no box")] * 3


def test_what_changes_or_raises_in_other_threads_is_found(monkeypatch):
    right = MathGrader.grade

    def grade(self, *, completion, gold):
        if threading.current_thread() is not threading.main_thread():
            if gold == "7":
                raise RuntimeError("lost")
            if gold == "8":
                return Grade(0.0, "8", "string")
        return right(self, completion=completion, gold=gold)

    monkeypatch.setattr(MathGrader, "grade", grade)
    row = concurrency.together(WRITTEN, HOSTILE, 4, 1.0, 0)
    assert (row.held, row.of) == (41, 43)
    assert "raised RuntimeError: lost" in row.note and r"\\boxed{8}" in row.note


def test_the_least_of_three_overruns_counts(monkeypatch):
    now = [0.0]
    spent = iter([1.2, 1.01, 1.2, 1.3, 1.4, 0.1])
    monkeypatch.setattr(concurrency.time, "monotonic", lambda: now[0])

    def grade(self, *, completion, gold):
        if gold == "42":
            now[0] += next(spent)
        return Grade(0.0, None, "timeout")

    monkeypatch.setattr(MathGrader, "grade", grade)
    row = concurrency.overruns([("42", "a"), ("42", "b"), ("42", "c")], 1.0)
    assert (row.held, row.of) == (2, 3)
    assert row.note == "200 ms over: 'b'; worst overrun 200.0 ms; timeout 3"
