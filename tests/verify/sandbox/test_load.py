"""Calls under load: cases know how they end, and what is wrong, left or lost is counted."""

import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from turngym.tests.verify.sandbox import idle, load, proc
from turngym.tests.verify.sandbox.load import load_rows
from turngym.tools import Status, ToolResult

ENDINGS = (  # what a program says of itself, and how a good tool ends its call
    (r"'\ud800", Status.REJECTED, "not run"),
    (r"while True", Status.TIMEOUT, "{0}\n[timed out]"),
    (r"os\.kill", Status.KILLED, "{0}\n[killed]"),
    (r"bytearray", Status.MEMORY, "{0}\nMemoryError"),
    (r"sys\.exit\(0\)", Status.OK, "{0}\n"),
    (r"sys\.exit\(3\)", Status.ERROR, "{0}\nSystemExit: 3"),
    (r"raise", Status.ERROR, "{0}\nTraceback\nValueError: no {0}\n"),
    (r"x = ", Status.ERROR, "SyntaxError: '(' was never closed"),
    (r"open", Status.OK, "{0}\n"),
)


class Good:
    """A tool that ends each case as it should."""

    def call(self, arguments):
        code = arguments["code"]
        number = (re.findall(r"\d+", code) or [""])[0]
        for pattern, status, text in ENDINGS:
            if re.search(pattern, code):
                number = re.findall(r"write\('(\d+)'\)|print\((\d+)|x = (\d+)", code)
                return ToolResult(status, text.format("".join(number[0]) if number else ""))
        return ToolResult(Status.OK, f"{6 * 7 if '6*7' in code else int(number) ** 2}\n")

    def close(self):
        pass


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(idle, "SETTLE", 0.1)
    monkeypatch.setattr(idle, "STEADY", 0.0)
    monkeypatch.setattr(load, "QUIET", 0.0)
    monkeypatch.setattr(load, "ends_row", lambda seed: None)


@pytest.mark.parametrize(
    "wrong",
    [
        ToolResult(Status.OK, "41\n"),
        ToolResult(Status.TIMEOUT, ""),
        ValueError("raised"),
        SystemExit(1),
    ],
)
def test_a_wrong_call_is_counted(quick, wrong):
    class Once(Good):
        done = threading.Lock()

        def call(self, arguments):
            if "6*7" not in arguments["code"] and Once.done.acquire(blocking=False):
                if isinstance(wrong, BaseException):
                    raise wrong
                return wrong
            return super().call(arguments)

    first, _, _ = load_rows(lambda timeout: Once(), 0, 60, 4)
    assert (first.held, first.of) == (59, 60) and first.note


def test_what_is_left_is_counted(quick):
    made, once = [], threading.Lock()

    class Leaving(Good):
        def call(self, arguments):
            if "6*7" not in arguments["code"] and once.acquire(blocking=False):
                made.append(subprocess.Popen(["sleep", "60"]))
            return super().call(arguments)

    _, left, _ = load_rows(lambda timeout: Leaving(), 0, 20, 2)
    assert (left.held, left.of) == (2, 3) and "processes" in left.note
    made[0].kill()
    made[0].wait()


def test_files_that_are_left_are_counted(quick):
    class Littering(Good):
        def call(self, arguments):
            if "6*7" not in arguments["code"]:
                Path(os.environ["TMPDIR"], f"left-{threading.get_ident()}").touch()
            return super().call(arguments)

    _, left, _ = load_rows(lambda timeout: Littering(), 0, 20, 2)
    assert (left.held, left.of) == (2, 3) and "temporary files" in left.note


def test_a_process_that_outlives_its_maker_is_counted(monkeypatch):
    end = "import subprocess; subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    monkeypatch.setattr(load, "ENDS", {"ends": end})
    monkeypatch.setattr(load, "SETTLE", 0.1)
    before = proc.descendants().keys()
    row = load.ends_row(0)
    for pid in proc.descendants().keys() - before:  # adopted by this process
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert (row.held, row.of) == (0, 2) and "processes" in row.note
