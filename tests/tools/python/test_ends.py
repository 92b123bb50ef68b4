"""A call ends in time whatever its program does, and at once when its tool is closed or reset."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turngym.envs.registry import make
from turngym.tools import PythonTool, Status, ToolFailure
from turngym.tools.python import CannotFork

LATE = 20.0  # seconds after which a call that has to end within two counts as held open: the machine may be busy

FLOOD = """
import os, socket, stat
def is_socket(fd):
    try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError: return False
fd = next(fd for fd in range(3, 4096) if is_socket(fd))
sock = socket.socket(fileno=os.dup(fd))
def flood():
    while True:
        try: {send}
        except OSError: pass
for _ in range(4):
    if not os.fork(): flood()
"""
SENDS = {
    "junk": "sock.send(b'[' * 1500)",
    "small": "sock.send(b'1')",
    "objects": "sock.send(b'{}')",
    "descriptors": "socket.send_fds(sock, [b'{}'], [0] * 5)",
}


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _in_time(work, limit: float = LATE):
    begun = time.monotonic()
    result = work()
    assert time.monotonic() - begun < limit
    return result


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_flood_of_the_socket_by_many_is_a_timeout(send: str, run, ok):
    tool = PythonTool(timeout=0.5)
    used = time.thread_time()
    result = _in_time(lambda: run(tool, FLOOD.format(send=send) + "print('begun')\nflood()"))
    assert result.status is Status.TIMEOUT and result.text.startswith("begun\n")
    assert time.thread_time() - used < 0.4  # it waits for whoever reads, and reading waits
    assert ok(tool, "6 * 7") == "42\n"
    tool.close()


def test_output_is_read_while_other_packets_come(ok):
    tool = PythonTool(timeout=30.0, max_output=2**20)
    text = ok(
        tool, FLOOD.format(send="0").split("for _ in")[0] + "sock.send(b'{}')\nprint('x' * 500_000)"
    )
    assert len(text) == 500_001
    tool.close()


def test_a_fork_of_a_session_that_floods_its_socket_is_refused_in_time(monkeypatch, ok, run):
    monkeypatch.setattr("turngym.tools.python.session._FORK_SECONDS", 0.5)
    tool = PythonTool(timeout=30.0)
    ok(tool, FLOOD.format(send=SENDS["objects"]) + "os.fork = flood")
    with pytest.raises(
        CannotFork, match=r"it does not answer|it has child processes"
    ):  # where it is heard
        _in_time(tool.fork)
    tool.close()


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_call_ends_when_another_thread_ends_its_tool(
    persistent: bool, end: str, ok, until, settled
):
    tool = PythonTool(timeout=1000.0, persistent=persistent)
    ok(tool, "1")
    tool.reset()
    threads, descriptors = set(threading.enumerate()), _descriptors()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(tool.call, {"code": "import os\nos.fork()\nwhile True: pass"})
        assert until(
            lambda: getattr(tool, end)() or call.done(), LATE
        )  # whether it has begun by then or not
        with pytest.raises(ToolFailure, match="was closed while it ran"):
            _in_time(call.result)
    assert (set(threading.enumerate()) - threads, _descriptors()) == (
        set(),
        descriptors,
    )  # another test's may end
    assert settled()
    assert ok(tool, "6 * 7") == "42\n"
    tool.close()


def test_a_program_that_outlasts_the_environments_patience_is_its_own_timeout():
    env = make("turngym/MathPython-v0", format="tags", timeout=1000)
    env.reset(seed=0)
    env.toolbox.timeout = 0.3
    _, reward, _, _, info = _in_time(lambda: env.step("<python>while True: pass</python>"))
    assert (info["tool_status"], reward) == ("timeout", 0.0)
    env.close()


def test_a_step_ends_when_another_thread_closes_the_environment(until):
    env = make("turngym/MathPython-v0", format="tags", timeout=1000)
    env.reset(seed=0)
    env.step("<python>1</python>")
    python = env.toolbox.tools["python"]
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(env.step, "<python>while True: pass</python>")
        time.sleep(0.05)
        assert until(lambda: env.close() or step.done(), LATE)
        assert step.result()[4]["outcome"] == "tool_error"
    assert python._session is None
