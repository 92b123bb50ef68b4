import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turngym.tools import PythonTool, ToolFailure
from turngym.tools.python import server


def test_no_process_is_started_before_the_first_call():
    code = (
        "import os\n"
        "from turngym.tools import PythonTool\n"
        "tool = PythonTool()\ntool.fork().close()\ntool.reset()\ntool.call({'code': '\\0'})\n"
        "print(open(f'/proc/self/task/{os.getpid()}/children').read())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"\n"


def test_all_sessions_come_from_one_server(python: PythonTool, ok):
    other = PythonTool(timeout=30.0)
    parents = {ok(tool, "import os\nos.getppid()") for tool in (python, python.fork(), other)}
    assert len(parents) == 1
    other.close()


# A program that leaves sessions, a busy one, a twin and a helper process behind, whichever way it ends.
PROGRAM = """
import contextlib, os, signal, threading
from turngym.tools import PythonTool, ToolFailure
def spin(tool):
    with contextlib.suppress(ToolFailure): tool.call({"code": "while True: pass"})
tool = PythonTool(timeout=100.0)
text = tool.call({"code": "import os, subprocess\\nprint(os.getppid(), os.getpid(), subprocess.Popen(['sleep', '1000']).pid, os.getcwd())"}).text
twin = tool.fork()
text = text.strip() + " " + twin.call({"code": "os.getpid()"}).text
threading.Thread(target=spin, args=[twin], daemon=True).start()
print(text, end="", flush=True)
"""  # noqa: E501
ENDINGS = {
    "normal": "",
    "exception": "raise SystemExit(3)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "hard exit": "os._exit(0)",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_everything_ends_with_the_parent(ending: str, gone):
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM + ending], capture_output=True, text=True)
    zygote, session, helper, directory, twin = done.stdout.split()
    for pid in (session, helper, twin, zygote):
        assert gone(pid), pid
    assert not Path(directory).parent.exists()
    assert done.stderr == ""


def _play_in_fork(used: PythonTool, pipe) -> None:
    try:
        used.call({"code": "x"})
    except ToolFailure as failure:
        pipe.send(str(failure))
    used.reset()
    pipe.send(used.call({"code": "import os\nos.getppid()"}).text)


def test_a_forked_process_starts_its_own_server(python: PythonTool, ok):
    parent = ok(python, "x = 1\nimport os\nos.getppid()")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_play_in_fork, args=(python, theirs))
    process.start()
    assert ours.poll(30.0)
    assert ours.recv() == f"the Python session belongs to process {os.getpid()}, not to its fork; reset it"
    assert ours.poll(30.0)
    child = ours.recv()
    assert child.strip().isdigit()
    assert child != parent
    process.join()
    ours.close()
    theirs.close()
    assert ok(python, "x") == "1\n"
    assert ok(python, "os.getppid()") == parent


def test_a_server_that_died_is_a_failure_of_the_tool_and_is_replaced(python: PythonTool, ok, gone):
    zygote, session = ok(python, "import os\nprint(os.getppid(), os.getpid())").split()
    os.kill(int(zygote), signal.SIGKILL)
    assert gone(session)
    with pytest.raises(ToolFailure, match="the Python server died, and all its sessions with it"):
        python.call({"code": "1"})
    assert ok(python, "1 + 1") == "2\n"


def test_a_server_that_died_idle_is_replaced_at_the_next_opening(python: PythonTool, ok, gone):
    zygote = ok(python, "import os\nos.getppid()").strip()
    python.reset()
    os.kill(int(zygote), signal.SIGKILL)
    assert gone(zygote)
    assert ok(python, "1 + 1") == "2\n"


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_server", None)
    monkeypatch.setattr(server, "_BOOT", "raise RuntimeError('no luck with {package}')")
    with pytest.raises(ToolFailure, match="no luck with turngym"):
        PythonTool().call({"code": "1"})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(server, "_server", None)
    with pytest.raises(ToolFailure, match=r"cannot be started.*nowhere"):
        PythonTool().call({"code": "1"})
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ToolFailure, match="needs Linux"):
        PythonTool().call({"code": "1"})
