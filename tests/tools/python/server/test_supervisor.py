import contextlib
import math
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from turngym.tools import PythonTool, Status, ToolFailure, ToolResult
from turngym.tools.python.server import supervisor
from turngym.tools.python.server.boundary import SPARE, TRIES, Stock
from turngym.tools.python.server.supervisor import Poller
from turngym.tools.python.server.worker_factory import Zygote
from turngym.tools.subprocesses import messages

HOLD = "import time\nb = bytearray(b'x') * (40 * 2**20)\ntime.sleep(1000)\n"


def _forks(count: int) -> str:
    body = HOLD.replace("\n", "\n        ").rstrip()
    return f"import os\nfor _ in range({count}):\n    if not os.fork():\n        {body}\n"


def test_processes_together_hold_no_more_than_one_may(run, settled):
    for persistent in (True, False):
        tool = PythonTool(timeout=30.0, memory_mb=100, persistent=persistent)
        result = run(tool, f"print('begun')\n{_forks(8)}{HOLD}")
        restarted = "; the session was restarted" if persistent else ""
        assert result == ToolResult(Status.MEMORY, f"begun\n[out of memory{restarted}]")
        assert settled()


def test_memory_that_is_shared_counts_once(python: PythonTool, ok):
    """A pool of workers that read what their parent made is no fork bomb."""
    code = """
import os, time
block = bytearray(b"x") * (200 * 2**20)
pids = []
for _ in range(8):
    pid = os.fork()
    if not pid:
        total = block[::4096].count(b"x")
        time.sleep(0.3)
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
print("done")
"""
    assert ok(python, code) == "done\n"


def test_memory_of_orphans_counts(run, settled):
    tool = PythonTool(timeout=30.0, memory_mb=100)
    code = "import os, time\nif not os.fork():\n    os.setsid()\n" + "\n".join(
        f"    {line}" for line in _forks(6).split("\n")
    )
    assert (
        run(tool, code + "\n    os._exit(0)\nos.wait()\ntime.sleep(1000)").status is Status.MEMORY
    )
    tool.close()
    assert settled()


def test_a_bomb_of_forks_is_contained(run, ok, settled):
    tool = PythonTool(timeout=1.0, persistent=False)
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    other = PythonTool(timeout=30.0)
    assert run(tool, bomb).status in (Status.TIMEOUT, Status.MEMORY)
    assert ok(other, "6 * 7") == "42\n"
    other.close()
    assert settled()


def test_the_stock_is_filled_up_again(fresh: PythonTool, ok, settled, descendants, server_pid):
    ok(fresh, "1")
    assert settled()
    before = descendants(server_pid())
    for _ in range(3):
        ok(fresh, "1")
    assert settled()
    assert len(descendants(server_pid()) - before) >= 4


def test_more_calls_than_are_in_stock_are_served(ok, settled):
    texts: list[str] = []

    def play() -> None:
        tool = PythonTool(timeout=60.0, persistent=False)
        texts.extend(ok(tool, "import time\ntime.sleep(0.01)\nprint(1)") for _ in range(4))

    threads = [threading.Thread(target=play) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["1\n"] * 48
    assert settled()


def test_the_server_keeps_no_descriptor_of_what_has_ended(
    fresh: PythonTool, ok, settled, until, server_pid
):
    def descriptors() -> int:
        return len(list(Path(f"/proc/{server_pid()}/fd").iterdir()))

    ok(fresh, "1")
    assert settled()
    before = descriptors()
    for _ in range(20):
        ok(fresh, "1")
    assert settled()
    assert until(lambda: descriptors() <= before)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_killed_every_caller_gets_an_answer(
    seed: int, ok, settled, descendants, gone, server_pid
):
    answers: list[str] = []

    def play(number: int) -> None:
        tool = PythonTool(timeout=30.0, persistent=False)
        for turn in range(8):
            try:
                result = tool.call(
                    {"code": f"# {'numpy' if (number + turn) % 3 == 0 else ''}\nprint(6 * 7)"}
                )
                answers.append(result.text if result.status is Status.OK else result.status)
            except ToolFailure as failure:
                answers.append(str(failure))

    ok(PythonTool(timeout=30.0, persistent=False), "1")
    pid, killed = server_pid(), set[int]()
    draw = random.Random(seed)
    threads = [threading.Thread(target=play, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        before = len(answers)  # one is killed for every few answers, however fast those come
        found = sorted(descendants(pid) - killed)
        killed.update(victims := draw.sample(found, min(1, len(found))))
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        while len(answers) < before + 3 and any(thread.is_alive() for thread in threads):
            time.sleep(0.001)
    assert server_pid() == pid
    assert len(answers) == 64
    assert "42\n" in answers
    assert not [text for text in answers if "found no worker" in text]
    for code in ("print(1)", "# numpy\nprint(1)", "# sympy\nprint(1)", "# numpy, sympy\nprint(1)"):
        for _ in range(6):  # what died of late is passed over, or told
            with contextlib.suppress(ToolFailure):
                PythonTool(timeout=30.0, persistent=False).call({"code": code})
        assert ok(PythonTool(timeout=30.0, persistent=False), code) == "1\n"
    assert settled()
    assert all(gone(process) for process in killed)


class Fake:
    """A serving loop without namespaces; its warm interpreters, and their workers, are processes that only sleep."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.life, theirs = messages.packet_pair()
        self.supervisor = supervisor.Supervisor(theirs, "rlimits-only", str(folder))
        self.queue, self.supervisor.queues[""] = messages.packet_pair()
        self.queue.settimeout(0.0)
        self.stock = self.supervisor.stocks[""] = Stock()
        self.requests: list[socket.socket] = []
        self.pids: list[int] = []
        monkeypatch.setattr(supervisor, "start_zygote", self.start_zygote)

    def sleeper(self) -> int:
        self.pids.append(os.posix_spawnp("sleep", ["sleep", "1000"], {}))
        return self.pids[-1]

    def start_zygote(self, level: str, kind: str) -> Zygote:
        ours, theirs = messages.packet_pair()
        self.requests.append(theirs)
        return Zygote(ours)

    def kill(self) -> None:
        """End the warm interpreter; it is noticed at the next turn."""
        self.requests[-1].close()

    def want(self, count: int = 1) -> None:
        self.stock.requested += count
        self.supervisor.begin_missing_boundaries()

    def turn(self) -> None:
        self.supervisor.poller.wait(self.supervisor.restock_at)
        if self.supervisor.restock_at <= time.monotonic():
            self.supervisor.begin_missing_boundaries()

    def answer(self, **reply: object) -> None:
        """Carry out the next request, or reply something else to it."""
        message, fds = messages.receive_packet(self.requests[-1])
        messages.close_descriptors(*fds)
        pidfd = [] if reply else [os.pidfd_open(pid := self.sleeper())]
        messages.send_packet(
            self.requests[-1], {"serial": message["serial"], **(reply or {"pid": pid})}, pidfd
        )
        messages.close_descriptors(*pidfd)
        self.turn()

    def handed(self) -> list[str]:
        """What callers got of late: a boundary's folder, or the reason why there is none."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                message, fds = messages.receive_packet(self.queue)
                messages.close_descriptors(*fds)
                found.append(message.get("error", "a boundary"))
        return found

    def close(self) -> None:
        for serial in list(self.supervisor.boundaries):
            self.supervisor.discard_boundary(serial)
        ours = [warm.requests for warm in self.supervisor.zygotes.values()]
        for sock in (
            self.life,
            self.supervisor.parent,
            self.queue,
            self.supervisor.queues[""],
            *self.requests,
            *ours,
        ):
            sock.close()
        for pid in self.pids:
            with contextlib.suppress(ChildProcessError, ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    made = Fake(tmp_path, monkeypatch)
    yield made
    made.close()


def test_a_failure_is_told_once_and_only_to_who_waits(fake: Fake):
    fake.want()
    assert fake.stock == Stock(requested=1, begun=1 + SPARE)
    fake.answer(error="no luck")
    fake.answer(error="no luck either")
    assert fake.handed() == ["no luck"]
    fake.answer(error="none at all")
    assert fake.handed() == []
    assert fake.stock == Stock(requested=1, begun=1, delivered=1, losses=TRIES)
    assert not fake.supervisor.boundaries
    fake.want()
    fake.answer()
    assert fake.handed() == ["a boundary"]
    fake.turn()  # with that the stock is filled again
    assert fake.stock == Stock(requested=2, begun=2 + SPARE, delivered=2)


def test_a_warm_interpreter_that_never_forked_is_told_to_all_who_wait(fake: Fake):
    fake.want(3)
    fake.kill()
    fake.turn()
    assert fake.handed() == ["the warm interpreter ended: it was killed"] * 3
    assert not fake.supervisor.boundaries
    assert len(fake.requests) == 1
    fake.want()
    fake.answer()
    assert fake.handed() == ["a boundary"]
    assert len(fake.requests) == 2


def test_who_waits_for_a_warm_interpreter_that_died_gets_a_boundary_of_the_next(fake: Fake):
    fake.want(2)
    fake.answer()
    fake.kill()
    fake.want()  # whose request cannot be sent
    assert fake.stock == Stock(requested=3, begun=3 + SPARE, delivered=1)
    fake.turn()
    assert fake.stock == Stock(requested=3, begun=3 + SPARE, delivered=1, losses=1)
    fake.answer()
    fake.answer()
    assert fake.handed() == ["a boundary"] * 3


def test_a_boundary_whose_init_dies_is_begun_anew_a_few_times(fake: Fake):
    fake.want()
    for number in range(TRIES):
        assert fake.handed() == []
        assert fake.stock == Stock(requested=1, begun=1 + SPARE, losses=number)
        fake.supervisor.on_init_exit(min(fake.supervisor.boundaries))
        fake.supervisor.begin_missing_boundaries()
    assert fake.handed() == ["their init processes keep dying"]
    assert len(fake.supervisor.boundaries) == SPARE


def test_a_worker_whose_boundary_has_ended_meanwhile_is_let_go(fake: Fake):
    fake.want()
    fake.supervisor.discard_boundary(1)
    fake.supervisor.begin_missing_boundaries()
    before = len(list(Path("/proc/self/fd").iterdir()))
    message, fds = messages.receive_packet(fake.requests[-1])
    messages.close_descriptors(*fds)
    messages.send_packet(
        fake.requests[-1], {"serial": message["serial"], "pid": 1}, [fake.queue.fileno()]
    )
    fake.turn()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert fake.handed() == []
    for _ in range(3):
        fake.answer()
    assert fake.handed() == ["a boundary"] * 3


def test_each_readable_descriptor_is_served_once_a_turn():
    poller, served = Poller(), []
    pipes = [os.pipe() for _ in range(3)]
    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")
        poller.call_when_readable(reading, lambda number=number: served.append(number))
    for turn in range(1, 3):
        poller.wait(math.inf)
        assert len(served) == 3 * turn
    assert sorted(served) == [0, 0, 1, 1, 2, 2]
    for fd in sum(pipes, ()):
        os.close(fd)


def test_what_is_closed_by_the_one_before_is_not_served_under_its_number():
    poller, served = Poller(), []
    pipes = [os.pipe() for _ in range(2)]

    def serve(mine: int, other: int) -> None:
        served.append(mine)
        poller.forget(mine)
        poller.forget(other)
        os.close(other)
        assert os.dup(quiet) == other  # another descriptor has its number now
        poller.call_when_readable(other, lambda: served.append(-1))

    quiet, end = os.pipe()
    (one, _), (two, _) = pipes
    for _, writing in pipes:
        os.write(writing, b"x")
    poller.call_when_readable(one, lambda: serve(one, two))
    poller.call_when_readable(two, lambda: serve(two, one))
    poller.wait(math.inf)
    poller.wait(time.monotonic() + 0.01)
    assert len(served) == 1
    os.write(end, b"x")
    poller.wait(math.inf)
    assert served[1:] == [-1]
    for fd in (*sum(pipes, ()), quiet, end):
        os.close(fd)


def test_a_wait_ends_at_its_time_and_nobody_has_to_have_waited_to_be_forgotten():
    poller = Poller()
    poller.wait(time.monotonic() - 1)
    poller.forget(0)
    poller.forget(-1)
