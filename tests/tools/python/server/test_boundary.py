import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.tools import PythonTool
from turngym.tools.python.isolation import linux, namespaces
from turngym.tools.python.isolation.levels import LEVELS
from turngym.tools.python.server.boundary import SPARE, TRIES, Boundary, Stock
from turngym.tools.subprocesses import messages


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_boundary_has_two_ends_of_everything_and_closes_all():
    before = _descriptors()
    boundary = Boundary("", "folder")
    boundary.close()
    boundary.open_descriptors()
    (control, output, exit_pipe), (theirs, writing) = boundary.caller_fds, boundary.worker_fds
    os.write(theirs, b"answer")
    os.write(writing, b"output")
    messages.write_exit_report(boundary.exit_pipe, messages.EXIT, 7)
    assert (os.read(control, 99), os.read(output, 99)) == (b"answer", b"output")
    assert messages.read_exit_reports(exit_pipe) == [(messages.EXIT, 7)]
    assert not any(
        map(os.get_inheritable, (*boundary.caller_fds, *boundary.worker_fds, boundary.exit_pipe))
    )
    boundary.close()
    assert _descriptors() == before


def test_an_init_is_signalled_and_its_end_is_seen():
    boundary = Boundary("", "folder")
    boundary.signal_init(signal.SIGKILL)
    assert not boundary.has_ended()  # there is none yet
    boundary.init_pid = boundary.worker_pid = pid = os.posix_spawnp("sleep", ["sleep", "1000"], {})
    boundary.init_pidfd = os.pidfd_open(pid)
    assert not boundary.has_ended()
    boundary.memory_limit = 2**30
    assert not boundary.exceeds_process_or_memory_limit(linux.Machine(shared=0, kernel=0))
    boundary.memory_limit = 0
    boundary.signal_init(signal.SIGKILL)
    assert boundary.has_ended(20.0)
    os.waitpid(pid, 0)
    boundary.signal_init(signal.SIGKILL)
    boundary.close()


EVENTS = st.sampled_from(["want"] * 4 + ["ready"] * 4 + ["fail", "die", "lose", "lose unproven"])


class Shop:
    """A stock, and beside it a plain count of what came of each boundary and what callers got."""

    def __init__(self) -> None:
        self.stock = Stock()
        self.wanted = self.served = self.told = self.coming = 0

    def restock(self) -> None:
        while self.stock.missing:
            self.stock.begun += 1
            self.coming += 1

    def want(self) -> None:
        self.stock.requested += 1
        self.wanted += 1

    def ready(self) -> None:
        if self.coming:
            self.coming -= 1
            self.stock.record_delivery()
            self.served += 1

    def drop(self, lost: int, *, known: bool, tell: int) -> None:
        self.coming -= lost
        for _ in range(lost):
            self.stock.begun -= 1
        if self.stock.record_loss(permanent=known):
            for _ in range(min(tell, self.stock.waiting)):
                self.stock.record_failure_report()
                self.told += 1

    def happen(self, event: str) -> None:
        lost = min(1, self.coming)
        match event:
            case "want":
                self.want()
            case "ready":
                self.ready()
            case "fail":
                self.drop(lost, known=True, tell=lost)
            case "die":
                self.drop(lost, known=False, tell=lost)
            case _:
                self.drop(self.coming, known=event != "lose", tell=self.wanted)
        self.restock()


@given(st.lists(EVENTS, max_size=60))
def test_whatever_dies_nobody_waits_for_a_boundary_that_is_not_on_its_way(events: list[str]):
    shop = Shop()
    stock = shop.stock
    for event in events:
        shop.happen(event)
        assert stock.delivered == shop.served + shop.told <= stock.begun
        assert stock.begun - stock.delivered == shop.coming >= stock.waiting
        assert stock.waiting == max(0, shop.wanted - shop.served - shop.told)
        assert stock.missing == 0
    while shop.coming:
        shop.happen("ready")
    assert stock.waiting == 0
    assert stock.losses >= TRIES or stock.delivered == stock.requested + (
        SPARE if shop.wanted else 0
    )


def test_nothing_is_made_of_a_kind_that_nobody_asked_for():
    assert Stock().missing == 0
    assert Stock(requested=1).missing == 1 + SPARE


def test_what_is_lost_without_a_reason_is_begun_anew_and_told_only_in_the_end():
    stock = Stock(requested=1)
    told = []
    for _ in range(TRIES):
        stock.begun += 1
        stock.begun -= 1
        told.append(stock.record_loss(permanent=False))
    assert told == [False] * (TRIES - 1) + [True]
    stock.record_failure_report()
    assert (stock.waiting, stock.missing) == (0, 0)  # no more is tried until somebody asks again
    stock.requested += 1
    assert stock.missing == 1
    stock.begun += 1
    stock.record_delivery()
    assert stock.missing == SPARE


def test_a_known_reason_is_told_at_once_but_to_nobody_who_does_not_wait():
    stock = Stock(requested=1, begun=3)
    stock.begun -= 1
    assert stock.record_loss(permanent=True)
    stock.record_failure_report()
    stock.begun -= 1
    assert not stock.record_loss(permanent=True)
    assert stock.delivered == stock.requested == 1


# Processes in every relation to their session: a child, a grandchild, an orphan, one in a session of its own, a stopped
# one, one that ignores signals, and one that forks without end.
BROOD = """
import contextlib, os, signal, time
def child(do):
    if not os.fork():
        do()
        time.sleep(1000)
        os._exit(0)
def orphan():
    if os.fork(): os._exit(0)
def daemon():
    os.setsid()
    orphan()
def stopped():
    with contextlib.suppress(PermissionError): signal.raise_signal(signal.SIGSTOP)
def deaf():
    for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
def restless():
    while True:
        try:
            if not os.fork(): os._exit(0)
            os.wait()
        except OSError: pass
for do in (lambda: child(deaf), orphan, daemon, stopped, deaf, restless):
    child(do)
time.sleep(0.05)
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("persistent", [True, False])
def test_no_process_outlives_its_boundary(level: str, persistent: bool, ok, settled):
    tool = PythonTool(timeout=30.0, persistent=persistent, level=level)
    assert ok(tool, BROOD + "print('done')") == "done\n"
    tool.close()
    assert settled(level)


@pytest.mark.parametrize("level", LEVELS)
def test_no_zombie_is_left_within_a_boundary(level: str, ok, until, host_pid, descendants):
    tool = PythonTool(timeout=30.0, level=level)
    child = "    if not os.fork():\n        if not os.fork(): os._exit(0)\n        os._exit(0)"
    ok(tool, f"import os\nfor _ in range(5):\n{child}")
    ok(tool, "for _ in range(5): os.wait()")
    assert until(lambda: not descendants(host_pid(tool)))
    tool.close()


def test_a_program_cannot_end_its_init(python: PythonTool, ok):
    ok(python, "import os, signal")
    kills = "for number in range(1, 65):\n    try: os.kill(1, number)\n    except OSError: pass"
    assert ok(python, f"{kills}\nprint('here')") == "here\n"
    assert ok(python, "6 * 7") == "42\n"


@pytest.mark.parametrize(
    ("text", "root", "expected"),
    [
        ("         0          0 4294967295\n", 0, "0 0 1\n1000 65534 1\n"),
        ("         0       1000          1\n", 0, "0 0 1\n"),
        ("         0     100000      65536\n", 0, "0 0 1\n1000 65534 1\n"),
        ("         0          0 4294967295\n", 1000, "0 1000 1\n"),
    ],
)
def test_a_second_user_is_mapped_where_there_is_one(
    tmp_path, monkeypatch, text: str, root: int, expected: str
):
    (tmp_path / "uid_map").write_text(text)
    monkeypatch.setattr(os, "geteuid", lambda: root)
    assert namespaces._id_map(str(tmp_path / "uid_map"), root) == expected
