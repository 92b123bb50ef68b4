import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import turngym
from turngym.tools import PythonTool, Status
from turngym.tools.python.server import client as server


def _run(tool, code):
    return tool.call({"code": code})


def _ok(tool, code):
    result = _run(tool, code)
    assert result.status is Status.OK, result
    return result.text


def _until(condition, seconds=120.0):
    until = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < until:
        time.sleep(0.005)
    return held


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _gone(pid):
    return _until(lambda: _state(pid) in "ZX")


def _children(pid):
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _descendants(pid):
    found = _children(pid)
    for child in found:
        found += _children(child)
    return set(found)


def _server_pid(level="namespaces"):
    return server._servers[level].child.pid


def _at_rest(level, sessions):
    """Whether the server has its warm interpreters, for each two boundaries of two processes, and those of sessions."""
    top = _children(_server_pid(level))
    warm = [pid for pid in top if _children(pid)]
    stock = [_children(pid) for pid in warm]
    if level == "namespaces":
        shape = (
            len(top) == 3 * len(warm) + sessions
            and sum(map(len, stock)) == 2 * len(warm) + sessions
        )
        shape = shape and not any(_children(worker) for workers in stock for worker in workers)
    else:
        shape = len(top) == len(warm) and all(
            [len(_children(pid)) for pid in keepers] == [1, 1] for keepers in stock
        )
    return (
        bool(warm)
        and shape
        and not any(_state(pid) in "ZX" for pid in _descendants(_server_pid(level)))
    )


def _settled(level="namespaces", wait=120.0, sessions=0):
    if not (held := _until(lambda: _at_rest(level, sessions), wait)):
        print(_tree(_server_pid(level)))
    return held


def _tree(pid, depth=0):
    """The processes below one, with their states, for the report of a failure."""
    below = "".join(_tree(child, depth + 1) for child in _children(pid))
    return f"{'  ' * depth}{pid} {_state(pid)}\n{below}"


def _host_pid(tool):
    fields = dict(
        line.split(":", 1)
        for line in Path(f"/proc/self/fdinfo/{tool._session.worker_pidfd}").read_text().splitlines()
    )
    pid = int(fields["Pid"])
    assert pid > 1
    return pid


# The package without what its root imports, which takes longer than most of these tests.
_BARE = """
import json, sys, types
root = types.ModuleType("turngym")
root.__path__ = [sys.argv[1]]
sys.modules["turngym"] = root
"""


def _bare(script, *, python=(sys.executable,), **options):
    command = [*python, "-W", "error", "-c", _BARE + script, str(Path(turngym.__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    return json.loads(done.stdout)


@pytest.fixture
def bare():
    """`bare(script)` is the JSON that a script prints that runs in an interpreter of its own and may import tools."""
    return _bare


@pytest.fixture
def python():
    """A Python tool whose time limit no test should meet."""
    tool = PythonTool(timeout=30.0)
    yield tool
    tool.close()


@pytest.fixture
def fresh():
    """A Python tool that starts every program afresh."""
    return PythonTool(timeout=30.0, persistent=False)


@pytest.fixture
def run():
    """`run(tool, code)` is the result of one call."""
    return _run


@pytest.fixture
def ok():
    """`ok(tool, code)` is the text of a call that must succeed."""
    return _ok


@pytest.fixture
def until():
    """`until(condition)` waits for up to 20 seconds until it holds and says whether it does."""
    return _until


@pytest.fixture
def gone():
    """`gone(pid)` waits until a process has ended (a zombie that an outsider must reap counts) and says whether."""
    return _gone


@pytest.fixture
def descendants():
    """`descendants(pid)` is the set of all processes below a process, zombies included."""
    return _descendants


@pytest.fixture
def server_pid():
    """`server_pid(level)` is the process of the server that this process uses."""
    return _server_pid


@pytest.fixture
def settled():
    """`settled(level)` waits until a server has only an idle tool's processes, and of `sessions`; says whether."""
    return _settled


@pytest.fixture
def host_pid():
    """`host_pid(tool)` is the number that a session's process has outside of its namespaces."""
    return _host_pid
