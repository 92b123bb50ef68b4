import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turngym.tools import PythonTool, ToolFailure
from turngym.tools.python.isolation.levels import LEVELS
from turngym.tools.python.server import client as server
from turngym.tools.python.server.client import find_mentioned_libraries
from turngym.tools.python.session import PythonSession


def test_no_process_is_started_before_the_first_call():
    code = (
        "import os\n"
        "from turngym.tools import PythonTool\n"
        "tool = PythonTool()\ntool.fork().close()\ntool.reset()\ntool.call({'code': '\\0'})\n"
        "print(open(f'/proc/self/task/{os.getpid()}/children').read())"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        == b"\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_python_that_was_called_by_a_way_up_has_the_tool(tmp_path: Path, level):
    code = (
        "from turngym.tools import PythonTool\n"
        f"tool = PythonTool(level={level!r}, timeout=30.0)\n"
        "print(tool.call({'code': 'import numpy\\nprint(1)'}).text)\ntool.close()"
    )
    upwards = os.path.relpath(sys.executable, tmp_path)
    out = subprocess.run(
        [upwards, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (out.stdout, out.stderr) == ("1\n\n", "")


def test_all_sessions_of_a_level_come_from_one_server(
    python: PythonTool, ok, host_pid, descendants, server_pid
):
    ok(python, "x = 1")
    pid = server_pid()
    other, twin, elsewhere = (
        PythonTool(timeout=30.0),
        python.fork(),
        PythonTool(timeout=30.0, level="rlimits-only"),
    )
    for tool in (other, twin, elsewhere):
        ok(tool, "1")
    assert {host_pid(tool) for tool in (python, other, twin)} <= descendants(pid)
    assert host_pid(elsewhere) in descendants(server_pid("rlimits-only")) - descendants(pid)
    assert server_pid() == pid != server_pid("rlimits-only")
    for tool in (other, twin, elsewhere):
        tool.close()


# A program that leaves sessions, a busy one, a twin and a helper process behind, whichever way it ends.
PROGRAM = """
import contextlib, os, signal, sys, threading
from turngym.tools import PythonTool, ToolFailure
from turngym.tools.python.server import client as server
def spin(tool):
    with contextlib.suppress(ToolFailure): tool.call({"code": "while True: pass"})
tool = PythonTool(timeout=100.0, level=sys.argv[1])
tool.call({"code": "import os"})
twin = tool.fork()
other = PythonTool(timeout=100.0, level=sys.argv[1])
other.call({"code": "import subprocess\\nhelper = subprocess.Popen(['sleep', '1000'])"})
threading.Thread(target=spin, args=[twin], daemon=True).start()
owner = server._servers[sys.argv[1]]
print(owner.child.pid, owner.folder or "/nowhere", flush=True)
sys.stdin.readline()
"""
ENDINGS = {
    "normal": "",
    "exception": "raise SystemExit(3)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "hard exit": "os._exit(0)",
}


@pytest.mark.parametrize(
    ("level", "ending"),
    [("namespaces", ending) for ending in ENDINGS] + [("landlock", "killed")],
)
def test_everything_ends_with_the_parent(level: str, ending: str, gone, descendants, until):
    command = [sys.executable, "-W", "error", "-c", PROGRAM + ENDINGS[ending], level]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        pid, folder = process.stdout.readline().split()
        pids = {int(pid), *descendants(int(pid))}
        assert len(pids) > 6
        _, errors = process.communicate("\n")
    assert errors == ""
    for pid in pids:
        assert gone(pid), pid
    assert until(lambda: not Path(folder).exists())


def _play_in_fork(used: PythonTool, pipe) -> None:
    try:
        used.call({"code": "x"})
    except ToolFailure as failure:
        pipe.send(str(failure))
    used.reset()
    text = used.call({"code": "print('own')"}).text
    pipe.send((text, server._servers["namespaces"].child.pid))


def test_a_forked_process_starts_its_own_server(python: PythonTool, ok, server_pid, gone):
    ok(python, "x = 1")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_play_in_fork, args=(python, theirs))
    process.start()
    assert ours.poll(30.0)
    assert (
        ours.recv()
        == f"the Python session belongs to process {os.getpid()}, not to its fork; reset it"
    )
    assert ours.poll(30.0)
    text, pid = ours.recv()
    assert text == "own\n"
    assert pid != server_pid()
    process.join()
    ours.close()
    theirs.close()
    assert gone(pid)
    assert ok(python, "x") == "1\n"


@pytest.mark.parametrize("level", LEVELS[:2])
def test_a_server_that_died_is_a_failure_of_the_tool_and_is_replaced(
    level: str, ok, gone, descendants, server_pid
):
    tool = PythonTool(timeout=30.0, level=level)
    ok(tool, "x = 1")
    pid = server_pid(level)
    pids = descendants(pid)
    os.kill(pid, signal.SIGKILL)
    for process in pids:
        assert gone(process)
    with pytest.raises(ToolFailure, match="the Python server died, and all its sessions with it"):
        tool.call({"code": "1"})
    assert ok(tool, "1 + 1") == "2\n"
    assert server_pid(level) != pid
    tool.close()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_server_that_dies_during_a_call_is_a_failure_of_the_tool(
    persistent: bool, monkeypatch: pytest.MonkeyPatch, ok, server_pid
):
    tool = PythonTool(timeout=30.0, persistent=persistent)
    ok(tool, "x = 1")
    wait = PythonSession._collect_output

    def kill_and_wait(*args):
        os.kill(server_pid(), signal.SIGKILL)
        return wait(*args)

    with monkeypatch.context() as patch:
        patch.setattr(PythonSession, "_collect_output", kill_and_wait)
        with pytest.raises(ToolFailure, match="the Python server died"):
            tool.call({"code": "while True: pass"})
    assert ok(tool, "print(1 + 1)") == "2\n"
    tool.close()


def test_a_server_that_died_idle_is_replaced_at_the_next_opening(
    python: PythonTool, ok, gone, server_pid
):
    ok(python, "1")
    pid = server_pid()
    python.reset()
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert ok(python, "1 + 1") == "2\n"


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_servers", {})
    monkeypatch.setattr(server, "_BOOT", "raise RuntimeError('no luck with {package}')")
    with pytest.raises(ToolFailure, match="no luck with turngym"):
        PythonTool().call({"code": "1"})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ToolFailure, match=r"cannot be started.*nowhere"):
        PythonTool().call({"code": "1"})
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ToolFailure, match="needs Linux"):
        PythonTool().call({"code": "1"})


def test_a_program_gets_what_it_speaks_of():
    assert find_mentioned_libraries("print(1)") == ""
    assert find_mentioned_libraries("import numpy as np") == "numpy"
    assert find_mentioned_libraries("from sympy import *") == "sympy"
    assert find_mentioned_libraries("import sympy, numpy") == "numpy+sympy"


_MANY = """
import resource
from turngym.tools import PythonTool, ToolFailure
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
tools = [PythonTool() for _ in range(30)]
opened = 0
for _ in range(3):
    try:
        for opened, tool in enumerate(tools[opened:], opened):
            tool.call({"code": f"x = {opened}"})
    except ToolFailure as failure:
        print(failure)
print(opened, [tool.call({"code": "x"}).text for tool in tools[:2]])
tools[0].close()
print(tools[opened].call({"code": "6 * 7"}).text)
"""


@pytest.mark.slow
def test_too_few_open_files_is_a_failure_of_the_tool_that_names_the_limit():
    out = subprocess.run(
        [sys.executable, "-c", _MANY], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(set(out[:3])) == 1 and "Too many open files" in out[0] and "ulimit -n" in out[0]
    assert int(out[3].split()[0]) >= 10 and "'0\\n', '1\\n'" in out[3] and out[4] == "42"
