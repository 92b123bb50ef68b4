"""Rows of programs: what holds in all passes counts, and a tool without a boundary gets none to run."""

import pytest

from turngym.tests.verify.sandbox import idle, trial
from turngym.tests.verify.sandbox.corpus import Program, Promise
from turngym.tests.verify.sandbox.programs import Pass, go_through, program_rows, row
from turngym.tools import Status, ToolResult

CODES = ("alpha = 1\nprint(alpha)", "beta = 2\nprint(beta)", "print('{{HOST}}')")
CORPUS = [
    Program(name, "cpu", code, (Promise("status", "ok"),))
    for name, code in zip("abc", CODES, strict=True)
]


class Fake:
    """A tool with a boundary, or none, that notes what it is asked to run."""

    def __init__(self, bounded=True, bad=""):
        self.bounded, self.bad, self.codes, self.closed = bounded, bad, [], False

    def call(self, arguments):
        code = arguments["code"]
        self.codes.append(code)
        if code in idle.WARM:
            return ToolResult(Status.OK, "42\n")
        if "found = []" in code:
            return ToolResult(Status.OK, "found []\n" if self.bounded else "found ['reads']\n")
        return ToolResult(Status.TIMEOUT if self.bad and self.bad in code else Status.OK, "")

    def reset(self):
        pass

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(trial, "QUIET", 0.0)
    monkeypatch.setattr(trial, "WORK", {})
    monkeypatch.setattr(idle, "STEADY", 0.0)


def ran(tool):
    return [code for code in tool.codes if code.startswith(("alpha", "beta", "print('"))]


def test_nothing_is_run_without_a_boundary():
    tool = Fake(bounded=False)
    faults = go_through(CORPUS, lambda keep: tool, Pass(0))
    assert all("not run" in fault for (fault,) in faults.values()) and set(faults) == {
        "a",
        "b",
        "c",
    }
    assert ran(tool) == [] and tool.closed


def test_a_program_that_holds_in_some_passes_is_flaky():
    counted = row(
        "what", CORPUS, [{"a": [], "b": [], "c": ["x"]}, {"a": [], "b": ["late"], "c": ["x"]}]
    )
    assert (counted.held, counted.of) == (1, 3) and counted.note == "b: late, c: x; flaky: b"


def test_rows_are_of_all_seeds_of_other_names_and_of_a_session(monkeypatch):
    made = []

    def make(keep):
        made.append(keep)
        return Fake(bad="beta" if len(made) == 2 else "")

    found = list(program_rows(CORPUS[:2], make, 0, 2))
    assert [(one.held, one.of) for one in found] == [
        (1, 2),
        (2, 2),
        (2, 2),
    ] and "flaky: b" in found[0].note
    assert made == [False, False, False, True]
