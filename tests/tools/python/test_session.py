import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status, ToolResult
from turngym.tools.python import CannotFork
from turngym.tools.python.server.interpreter import MEMORY_SIGNAL
from turngym.tools.python.session import ProgramRun, _run_from_exit
from turngym.tools.subprocesses import messages

# How a program finds the descriptors of its session, and the key of the answer that is awaited.
FIND = """
import json, os, socket, stat, sys
def kind(fd):
    try: return stat.S_IFMT(os.fstat(fd).st_mode)
    except OSError: return None
control = [fd for fd in range(3, 4096) if kind(fd) == stat.S_IFSOCK][-1]
frame = sys._getframe()
while frame and "key" not in (frame.f_locals.get("message") or {}):
    frame = frame.f_back
key = frame.f_locals["message"]["key"]
def send(message):
    os.write(control, message if isinstance(message, bytes) else json.dumps(message).encode())
"""


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_threads_use_many_tools_at_once(run):
    results: dict[int, list[str]] = {}

    def play(number: int) -> None:
        tool = PythonTool(timeout=60.0)
        texts = [run(tool, f"x = {number}").text, run(tool, "print(x)").text]
        twin = tool.fork()
        texts += [run(twin, "x += 1; x").text, run(tool, "x").text]
        tool.close()
        twin.close()
        once = PythonTool(timeout=60.0, persistent=False)
        texts += [run(once, f"print({number})").text for _ in range(3)]
        results[number] = texts

    threads = [threading.Thread(target=play, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: ["", f"{n}\n", f"{n + 1}\n", f"{n}\n", *[f"{n}\n"] * 3] for n in range(8)}


def test_many_sessions_live_side_by_side(ok, settled):
    tools = [PythonTool(timeout=60.0) for _ in range(24)]
    for number, tool in enumerate(tools):
        ok(tool, f"x = {number}")
    assert [ok(tool, "x") for tool in tools] == [f"{number}\n" for number in range(24)]
    for tool in tools:
        tool.close()
    assert settled()


HELPER = "import subprocess\nhelper = subprocess.Popen(['sleep', '1000'])"


def test_no_process_is_left_when_a_tool_is_closed(
    python: PythonTool, ok, host_pid, settled, descendants, server_pid
):
    ok(python, HELPER)
    session = host_pid(python)
    assert session in descendants(server_pid())
    assert not settled(wait=0.0)
    python.close()
    assert not Path(f"/proc/{session}").exists()
    assert settled()


def test_a_dropped_tool_leaves_nothing_behind(ok, host_pid, settled, gone):
    tool = PythonTool(timeout=30.0)
    ok(tool, HELPER)
    session = host_pid(tool)
    del tool
    assert gone(session)
    assert settled()


def test_a_session_uses_no_descriptor_after_its_end(ok):
    tool = PythonTool(timeout=30.0)
    ok(tool, "x = 1")
    tool.close()
    before = _descriptors()
    ok(tool, "x = 1")
    twin = tool.fork()
    for one in (twin, tool):
        one.timeout = 0.05
        assert one.call({"code": "while True: pass"}).status is Status.TIMEOUT
    assert _descriptors() == before


def test_a_session_whose_process_died_between_calls_is_told(
    python: PythonTool, run, ok, host_pid, gone
):
    ok(python, "1")
    pid = host_pid(python)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert run(python, "1") == ToolResult(
        Status.KILLED, "[the process died; the session was restarted]"
    )
    assert ok(python, "1") == "1\n"


def test_a_session_that_dies_of_its_fork_says_so(python: PythonTool, run, ok):
    ok(python, "import os\nos.fork = None")
    with pytest.raises(CannotFork, match="the Python session cannot be forked: it does not answer"):
        python.fork()
    assert run(python, "1").status is Status.KILLED
    assert ok(python, "os = 1; os") == "1\n"


@pytest.mark.parametrize("level", ["namespaces", "rlimits-only"])
def test_descriptors_in_flight_keep_no_session_from_starting(level: str, ok):
    """The kernel counts those of all processes of a user, and measures them by the limit of whoever sends one more."""
    tools = [PythonTool(timeout=30.0, level=level) for _ in range(6)]
    ours, theirs = messages.packet_pair()
    with ours, theirs:
        for _ in range(60):
            messages.send_packet(theirs, {}, [0] * 6)
        for tool in tools:
            ok(tool, "x = 1")
        twin = tools[0].fork()
        assert ok(twin, "x") == "1\n"
    for tool in (twin, *tools):
        tool.close()


NOISE = [
    b"\x00",
    b"[]",
    b"[" * 4000,
    b"{" * 4000,
    b"9" * 4000,
    b"x" * 60000,
    {"status": "ok"},
    {"status": "ok", "key": None},
    {"status": "ok", "key": "0" * 16},
    {"status": ["ok"], "key": ["0"]},
    {"failed": "everything", "refused": "everything", "error": "everything"},
]


def test_what_a_program_writes_onto_its_socket_is_no_answer(python: PythonTool, run):
    noise = f"noise = {NOISE!r}\nfor message in noise: send(message)\n"
    result = run(python, FIND + noise + "print('reached')\n1 / 0")
    assert result.status is Status.ERROR
    assert result.text.startswith("reached\nTraceback")
    assert "ZeroDivisionError" in result.text


@pytest.mark.parametrize("persistent", [True, False])
def test_a_program_that_writes_onto_every_descriptor_is_not_believed(persistent: bool, run, ok):
    tool = PythonTool(timeout=10.0, persistent=persistent)
    code = """
import fcntl, os, struct
for fd in range(4096):
    for data in (struct.pack("=Bi", 0, 0), struct.pack("=Bi", 1, 0), b'{"status": "ok"}', b"{}", b"\\n"):
        try: os.write(fd, data)
        except OSError: pass
1 / 0
"""
    result = run(tool, code)
    assert (result.status, "ZeroDivisionError" in result.text) == (Status.ERROR, True)
    assert ok(tool, "print(6 * 7)") == "42\n"
    tool.close()


@pytest.mark.parametrize(
    "status",
    ["timeout", "output", "rejected", "killed", "nonsense", "", None, ["ok"], {"ok": 1}, 0],
)
def test_a_session_that_finds_the_key_can_only_end_as_sessions_do(status, run, ok):
    tool = PythonTool(timeout=10)
    result = run(tool, FIND + f"send({{'key': key, 'status': {status!r}}})\nprint('still here')")
    assert result in (
        ToolResult(Status.OK, "still here\n"),
        ToolResult(Status.KILLED, "still here\n[the process died; the session was restarted]"),
        ToolResult(Status.KILLED, "[the process died; the session was restarted]"),
    )
    tool.close()


def test_a_session_that_answers_too_early_spoils_only_its_own_text(python: PythonTool, run, ok):
    result = run(
        python,
        FIND
        + "send({'key': key, 'status': 'memory'})\nimport time; time.sleep(0.05)\nprint('late')",
    )
    assert result.status is Status.MEMORY
    python.reset()
    assert ok(python, "print(6 * 7)") == "42\n"


@pytest.mark.parametrize(
    "ending",
    [
        "os.close(control)",
        "socket.socket(fileno=control).shutdown(socket.SHUT_RDWR)",
        "_ = socket.socket(fileno=os.dup(control)).send(b'')",
        "_ = os.dup2(os.open('/dev/null', os.O_RDWR), control)",
        "os.closerange(3, 4096)",
    ],
)
def test_a_session_without_its_socket_is_dead(ending: str, run, ok):
    tool = PythonTool(timeout=5.0)
    result = run(tool, FIND + f"print('before')\n{ending}")
    assert result == ToolResult(
        Status.KILLED, "before\n[the process died; the session was restarted]"
    )
    assert ok(tool, "print(6 * 7)") == "42\n"
    tool.close()


def test_a_fresh_program_needs_no_socket(fresh: PythonTool, ok):
    assert ok(fresh, "import os\nos.closerange(3, 4096)\nprint('done')") == "done\n"


def test_descriptors_that_a_program_sends_are_closed(python: PythonTool, ok):
    ok(python, "1")
    before = _descriptors()
    flood = "sock = socket.socket(fileno=os.dup(control))\nfor n in (1, 5, 100): socket.send_fds(sock, [b'{}'], [0] * n)"
    ok(python, FIND + flood)
    assert _descriptors() == before


def test_a_flood_of_packets_is_a_timeout(run):
    tool = PythonTool(timeout=0.3)
    assert run(tool, FIND + "while True: send({'status': 'ok'})").status is Status.TIMEOUT
    tool.close()


def _exit(code: int) -> int:
    return code << 8


@pytest.mark.parametrize(
    ("wait_status", "status", "over"),
    [
        (_exit(0), Status.OK, None),
        (_exit(1), Status.ERROR, None),
        (_exit(2), Status.ERROR, "exit code 2"),
        (_exit(255), Status.ERROR, "exit code 255"),
        (signal.SIGKILL, Status.KILLED, "the process died (SIGKILL)"),
        (signal.SIGSEGV | 0x80, Status.KILLED, "the process died (SIGSEGV)"),
        (40, Status.KILLED, "the process died (signal 40)"),
        (MEMORY_SIGNAL, Status.MEMORY, None),
    ],
)
def test_a_wait_status_tells_how_a_program_ended(
    wait_status: int, status: Status, over: str | None
):
    assert _run_from_exit(wait_status, b"text") == ProgramRun(status, b"text", over)


def test_every_wait_status_that_a_process_can_have_is_known():
    for code in range(256):
        assert _run_from_exit(_exit(code), b"").status in (Status.OK, Status.ERROR)
    for number in range(1, signal.SIGRTMAX + 1):
        assert _run_from_exit(int(number), b"").status in (Status.KILLED, Status.MEMORY)


def test_it_agrees_with_a_real_process():
    process = subprocess.Popen(["sh", "-c", "kill -15 $$"])
    _, status = os.waitpid(process.pid, 0)
    process.returncode = 0
    assert _run_from_exit(status, b"").end_reason == "the process died (SIGTERM)"
