"""The fuzz: a seed is a program, and what a program does wrong is counted and traced to it."""

from contextlib import nullcontext

import pytest

from turngym.tests.verify.sandbox import fuzz, idle
from turngym.tests.verify.sandbox.area import Sandbox
from turngym.tests.verify.sandbox.fuzz import fuzz_rows
from turngym.tests.verify.sandbox.grammar import STATEMENTS, draw
from turngym.tools import Status, ToolFailure, ToolResult


class Fake:
    """A tool that answers what is right, but for programs in which `bad` is found."""

    def __init__(self, bad="", harm=None):
        self.bad, self.harm, self.timeout, self.spoilt = bad, harm, 0.5, False

    def call(self, arguments):
        code = arguments["code"]
        if "def work0" not in code:
            return ToolResult(
                Status.OK,
                "41\n" if self.spoilt else "found []\n" if "found = []" in code else "42\n",
            )
        if self.harm and self.bad in code:
            done = self.harm()
            self.spoilt = done == "spoil"
            return ToolResult(Status.OK, str(done))
        return ToolResult(Status.OK, "at the end\n")

    def fork(self):
        return self

    def reset(self):
        pass

    close = reset


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(fuzz, "QUIET", 0.0)
    monkeypatch.setattr(fuzz, "PAUSE", 0.0)
    monkeypatch.setattr(fuzz, "_victim", lambda: nullcontext(1))
    monkeypatch.setattr(idle, "SETTLE", 0.1)
    monkeypatch.setattr(idle, "STEADY", 0.0)


def counted(bad, harm, count=8):
    return list(fuzz_rows(lambda *_: Fake(bad, harm), 0, count))


def telling(number, count=8):
    """Return a line of a program that no other of the first ones has."""
    others = "".join(draw(other) for other in range(count) if other != number)
    return next(line for line in draw(number).splitlines() if line not in others)


def test_programs_follow_their_seed_and_are_python():
    programs = [draw(number) for number in range(200)]
    assert programs == [draw(number) for number in range(200)] and len(set(programs)) == 200
    for program in programs:
        compile(program, "program", "exec")
    fixed = [line for lines in STATEMENTS.values() for line in lines if "<" not in line]
    assert sum(any(line in program for program in programs) for line in fixed) > len(fixed) // 2


def test_a_good_tool_holds_in_every_row():
    assert [(row.held, row.of) for row in counted("", None)] == [(8, 8), (8, 8), (1, 1)]


def test_what_a_call_does_wrong_is_counted_with_its_program(monkeypatch):
    def fail():
        raise ToolFailure("lost")

    on_time, answers, _ = counted(telling(3), fail)
    assert (on_time.held, answers.held) == (7, 8) and "3: ToolFailure: lost" in on_time.note
    on_time, answers, left = counted(telling(5), lambda: "spoil")
    assert (on_time.held, answers.held) == (8, 7) and "5: the next call answers" in answers.note
    assert "--program 5:" in left.note

    def clocked(work):
        answer = work() or ToolResult(Status.OK, "")
        return answer, 9.0 if answer.text == "slow" else 0.0

    monkeypatch.setattr(fuzz, "_clocked", clocked)
    on_time, _, _ = counted(telling(6), lambda: "slow")
    assert on_time.held == 7 and "6: late" in on_time.note


def test_one_program_that_is_late_each_time_counts_so(monkeypatch):
    monkeypatch.setattr(fuzz, "_clocked", lambda work: (work() or ToolResult(Status.OK, ""), 9.0))
    on_time, answers, _ = fuzz_rows(lambda *_: Fake(), 0, 0, program=6)
    assert on_time.held == 0 and answers.held == answers.of and "6: late" in on_time.note


def test_what_programs_leave_is_traced_to_one(tmp_path):
    worlds = []

    class World(fuzz.Surroundings):
        def __enter__(self):
            worlds.append(self)
            return super().__enter__()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuzz, "Surroundings", World)
        *_, left = counted(telling(4), lambda: (worlds[0].outside / "notes.txt").chmod(0o644))
    assert left.held == 0 and "4: or up to 4: the folder outside changed" in left.note


def test_nothing_is_run_without_a_boundary():
    class Open(Fake):
        def call(self, arguments):
            assert "def work0" not in arguments["code"]
            return ToolResult(Status.OK, "found ['reads']\n")

    (row,) = fuzz_rows(lambda *_: Open(), 0, 5)
    assert not row.good and "no boundary" in row.what


def test_landlock_holds(monkeypatch):  # the default level: test_areas.py
    monkeypatch.undo()
    rows = list(Sandbox(seed=11, only="fuzz", level="landlock", programs=16).rows())
    assert len(rows) == 3 and [row for row in rows if not row.good] == []
