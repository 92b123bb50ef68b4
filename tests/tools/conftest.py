import time
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status


def _run(tool, code):
    return tool.call({"code": code})


def _ok(tool, code):
    result = _run(tool, code)
    assert result.status is Status.OK, result.text
    return result.text


def _gone(pid, seconds=20.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def python():
    """A Python tool whose time limit no test should meet."""
    tool = PythonTool(timeout=30.0)
    yield tool
    tool.close()


@pytest.fixture
def run():
    """`run(tool, code)` is the result of one call."""
    return _run


@pytest.fixture
def ok():
    """`ok(tool, code)` is the text of a call that must succeed."""
    return _ok


@pytest.fixture
def gone():
    """`gone(pid)` waits until a process has ended (a zombie that an outsider must reap counts) and says whether."""
    return _gone
