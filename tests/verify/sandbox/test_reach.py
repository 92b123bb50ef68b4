"""What a program reaches of the kernel is what the page declares, at each level that has a filter."""

import pytest

from turngym.tests.verify.sandbox.reach import reach_rows
from turngym.tools import PythonTool, Status, ToolResult
from turngym.tools.python.isolation import seccomp


class Fake:
    """A tool whose answer is known."""

    def __init__(self, answer):
        self.answer = answer

    def call(self, arguments):
        return self.answer


@pytest.mark.slow
@pytest.mark.parametrize("level", seccomp.SOCKET_FAMILIES)
def test_a_level_reaches_what_it_declares(level):
    tool = PythonTool(timeout=60.0, max_output=100_000, level=level)
    for row in reach_rows(tool, level):
        assert row.good, row
    tool.close()


def test_what_is_reached_but_not_declared_is_named():
    number = seccomp.call_number("fchown")
    text = f'[{{"0":[{number}]}},[[1,40],[1]]]'
    calls, families = reach_rows(Fake(ToolResult(Status.OK, text)), "landlock")
    assert not calls.good and "fchown" in calls.note
    assert (families.held, families.of) == (126, 128)


def test_a_program_that_fails_is_no_row():
    with pytest.raises(ValueError, match="killed: why"):
        list(reach_rows(Fake(ToolResult(Status.KILLED, "why")), "landlock"))
