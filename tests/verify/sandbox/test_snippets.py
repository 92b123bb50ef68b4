"""Code of real completions: which is found, what CPython gives for it, and where a tool gives something else."""

import json

import pytest

from turngym.tests.verify.sandbox import snippets as snippets_module
from turngym.tests.verify.sandbox.corpus import Program
from turngym.tests.verify.sandbox.snippets import Ended, benign_row, ended, reference, snippet_row
from turngym.tools import Status, ToolFailure, ToolResult

TEXT = """So <execute> print(1) </execute> and <execute>print(</execute> then ```python
x = 2
x + 1
``` <python>1/0</python>"""


class Answers:
    """A tool that gives the same answers over and over."""

    def __init__(self, *answers):
        self.answers, self.calls = answers, 0

    def call(self, arguments):
        self.calls += 1
        answer = self.answers[(self.calls - 1) % len(self.answers)]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def calls(tmp_path):
    (tmp_path / "calls.jsonl").write_text(
        json.dumps({"text": TEXT}) + "\n" + json.dumps({"text": TEXT}) + "\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("x = 2\nx + 1", Ended(True, "3\n")),
        ("print(5)\nNone", Ended(True, "5\n")),
        ("'a'", Ended(True, "'a'\n")),
        ("for i in range(2):\n    i", Ended(True, "")),
        (
            "print('said', flush=True)\n1 / 0",
            Ended(False, "said\n", "ZeroDivisionError: division by zero"),
        ),
        ("import sys\nsys.exit(3)", Ended(False, "", "error")),
        (
            "open('f', 'w').write('é')\nprint(open('f').read(), input if 0 else '')",
            Ended(True, "é \n"),
        ),
    ],
)
def test_the_reference_is_plain_python_that_echoes_a_last_expression(code, want):
    assert reference(code) == want


def test_a_reference_that_does_not_end_is_a_timeout(monkeypatch):
    monkeypatch.setattr(snippets_module, "TIMEOUT", 0.5)
    assert reference("while True: pass") == Ended(False, "", "timeout")


def test_of_an_error_the_last_line_is_compared():
    trace = 'Traceback (most recent call last):\n  File "<python>", line 2\nValueError: no\n'
    assert ended(ToolResult(Status.ERROR, f"said\n{trace}")) == Ended(
        False, "said\n", "ValueError: no"
    )
    assert ended(ToolResult(Status.TIMEOUT, "said\n")) == Ended(False, "said\n", "timeout")


def test_another_answer_than_that_of_python_is_counted(calls):
    right = (
        ToolResult(Status.OK, "1\n"),
        ToolResult(Status.ERROR, "Traceback (most recent call last):\nZero"),
        ToolFailure("x"),
    )
    row = snippet_row(calls, Answers(*right))
    assert (
        (row.held, row.of) == (1, 3)
        and "calls.jsonl:0/1" in row.note
        and "ZeroDivisionError" in row.note
    )


def test_controls_print_the_same_each_time():
    programs = [Program("a", "ok", "print(1)", ()), Program("b", "cpu", "", ())]
    good, other = ToolResult(Status.OK, "1\n"), ToolResult(Status.OK, "2\n")
    tool = Answers(good)
    assert benign_row(programs, tool, 7).good and tool.calls == 7
    row = benign_row(programs, Answers(good, good, other), 7)
    assert (row.held, row.of) == (0, 1) and "2 different" in row.note
    assert not benign_row(programs, Answers(ToolResult(Status.ERROR, "no")), 2).good
