import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest

import turngym
from turngym.tools.subprocesses import process
from turngym.tools.subprocesses.messages import MAX_FRAME
from turngym.tools.subprocesses.process import Child, Deadline, Died

# Answers what it is told to: an echo by default. The package itself is not imported, which would take longer.
WORKER = """
import os, subprocess, sys, time, types
for name, folder in (("turngym", "{root}"), ("turngym.tools", "{root}/tools")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from turngym.tools.subprocesses.messages import serve
def handle(request):
    match request:
        case {"sleep": seconds}: time.sleep(seconds)
        case {"exit": code}: os._exit(code)
        case {"raise": text}: raise RuntimeError(text)
        case {"huge": size}: os.write(int(sys.argv[-1]), size.to_bytes(4, "big"))
        case {"raw": text}: os.write(int(sys.argv[-1]), len(text).to_bytes(4, "big") + text.encode())
        case {"look": _}:
            numbers = [int(fd) for fd in os.listdir("/proc/self/fd")]
            return {"env": dict(os.environ), "fds": [fd for fd in numbers if os.path.exists(f"/proc/self/fd/{fd}")],
                    "cwd": os.getcwd(), "sid": os.getsid(0), "pid": os.getpid(), "stdin": sys.stdin.read(),
                    "socket": int(sys.argv[-1])}
        case {"limits": _}:
            import resource
            kinds = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE)
            return [resource.getrlimit(kind) for kind in kinds]
        case {"take_mb": size}:
            try: return len(bytearray(size * 2**20))
            except MemoryError: return "refused"
        case {"burn": _}:
            while True: pass
        case {"spawn": _}: return subprocess.Popen(["sleep", "1000"]).pid
    return request
serve(handle)
""".replace("{root}", str(Path(turngym.__file__).parent))


@pytest.fixture
def child():
    made = Child([sys.executable, "-I", "-c", WORKER])
    yield made
    made.close()


def test_requests_are_answered_in_order_and_carry_any_json(child: Child):
    for payload in (1, None, "\ud800 π", {"a": [1.5, True]}, "x" * 3_000_000):
        assert child.request(payload, 30.0) == payload
    assert child.alive


def test_a_child_inherits_nothing_but_its_socket(child: Child, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CANARY", "secret")
    with socket.socket() as leaked:
        leaked.set_inheritable(True)
        other = Child([sys.executable, "-I", "-c", WORKER], cwd="/usr", env={"EXTRA": "1"})
        seen = other.request({"look": 1}, 30.0)
        other.close()
    assert set(seen["env"]) <= {"PATH", "LANG", "EXTRA", "LC_CTYPE"}
    assert set(seen["fds"]) == {0, 1, 2, seen["socket"]}
    assert (seen["cwd"], seen["sid"], seen["stdin"]) == ("/usr", seen["pid"], "")


def test_a_late_answer_is_a_deadline_and_ends_the_child(child: Child):
    child.request("warm", 30.0)
    with pytest.raises(Deadline, match=r"did not answer within 0\.1 s"):
        child.request({"sleep": 1000}, 0.1)
    assert not child.alive
    with pytest.raises(Died, match="already ended"):
        child.request(1, 1.0)


def test_a_late_child_can_be_left_to_die_by_itself(child: Child):
    pid = child.request({"look": 1}, 30.0)["pid"]
    with pytest.raises(Deadline):
        child.request({"sleep": 1000}, 0.1, reap=False)
    assert not child.alive
    os.waitid(
        os.P_PID, pid, os.WEXITED | os.WNOWAIT
    )  # it has been sent its end, and nobody has reaped it
    with pytest.raises(Died, match="already ended"):
        child.request(1, 1.0)
    child.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_child_that_ended_by_itself_is_not_alive_and_its_group_can_still_be_killed(
    child: Child, gone
):
    sleeper, pid = child.request({"spawn": 1}, 30.0), child.pid
    assert child.alive
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert not child.alive
    with pytest.raises(Died):
        child.request(1, 30.0)
    assert gone(sleeper) and gone(pid)


def test_limits_hold_from_the_first_request_on():
    child = Child([sys.executable, "-I", "-c", WORKER], memory_mb=500, cpu_seconds=1)
    assert child.request({"limits": 1}, 30.0) == [[500 * 2**20] * 2, [1] * 2, [0] * 2]
    assert child.request({"take_mb": 100}, 30.0) == 100 * 2**20
    assert child.request({"take_mb": 600}, 30.0) == "refused"
    with pytest.raises(Died, match="exit code -9"):
        child.request({"burn": 1}, 60.0)
    child.close()


def test_without_limits_a_child_has_those_of_its_parent_but_leaves_no_core(child: Child):
    kinds = (process.resource.RLIMIT_AS, process.resource.RLIMIT_CPU)
    mine = [list(process.resource.getrlimit(kind)) for kind in kinds]
    assert child.request({"limits": 1}, 30.0) == [*mine, [0, 0]]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"exit": 3}, "the stream has ended"),
        ({"raise": "no luck today"}, "no luck today"),
        ({"huge": MAX_FRAME + 1}, f"the frame claims {MAX_FRAME + 1} bytes"),
        ({"raw": "{not json"}, "Expecting property name"),
    ],
)
def test_a_death_or_a_bad_frame_is_reported_with_its_reason(
    child: Child, payload: dict, reason: str
):
    with pytest.raises(Died, match=reason):
        child.request(payload, 30.0)
    assert not child.alive


def test_requests_that_cannot_be_sent_leave_the_child_alone(child: Child):
    with pytest.raises(ValueError, match=f"at most {MAX_FRAME} are allowed"):
        child.request("x" * MAX_FRAME, 30.0)
    with pytest.raises(TypeError):
        child.request(object(), 30.0)
    assert child.request(1, 30.0) == 1


def test_kill_from_another_thread_ends_a_request_and_the_whole_group(child: Child, gone):
    sleeper = child.request({"spawn": 1}, 30.0)
    timer = threading.Timer(0.2, child.kill)
    timer.start()
    with pytest.raises(Died):
        child.request({"sleep": 1000}, 60.0)
    timer.join()
    assert gone(sleeper)
    child.kill()


def test_several_threads_may_ask(child: Child):
    answers: dict[int, int] = {}

    def ask(number: int) -> None:
        answers[number] = child.request(number, 30.0)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: number for number in range(16)}


def test_a_dropped_child_ends():
    child = Child([sys.executable, "-I", "-c", WORKER])
    pid = child.request({"look": 1}, 30.0)["pid"]
    del child
    gc.collect()
    assert not Path(f"/proc/{pid}").exists()


def _in_fork(child: Child, pipe) -> None:
    try:
        child.request(1, 1.0)
    except Died:
        pipe.send("died")
    child.close()


def test_a_fork_of_the_parent_neither_uses_nor_ends_the_child(child: Child):
    child.request(1, 30.0)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_fork, args=(child, theirs))
    process.start()
    assert ours.poll(30.0)
    assert ours.recv() == "died"
    process.join()
    ours.close()
    theirs.close()
    assert child.request(2, 30.0) == 2


def test_a_program_that_cannot_be_started_is_an_os_error():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        Child(["/nowhere/python"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_interrupted_request_ends_the_child_so_that_its_late_reply_answers_nothing(
    child: Child, monkeypatch
):
    assert child.request({"n": 1}, 30.0) == {"n": 1}

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process.messages, "read_frame", interrupt)
    with pytest.raises(KeyboardInterrupt):
        child.request({"n": 2}, 30.0)
    assert not child.alive


def test_a_child_that_ended_before_the_first_request_says_why():
    child = Child([sys.executable, "-c", "raise RuntimeError('no luck')"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Died, match="no luck"):
        child.request(1, 60.0)
    child.close()
