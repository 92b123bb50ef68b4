"""Calls on daemon threads: what they return and raise, and what becomes of one that never answers."""

import subprocess
import sys
import threading
import weakref
from contextvars import ContextVar
from queue import Empty

import pytest

from turngym.tools import core as threads
from turngym.tools.core import Overdue, start, within


def test_a_call_returns_and_raises_as_it_would_here():
    assert within(5, lambda: threading.current_thread().name, "the call") == "the call"
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0, "the call")
    with pytest.raises(SystemExit):
        start(sys.exit, "the call").result(5)


def test_a_call_that_never_answers_is_left_behind_in_time():
    never = threading.Event()
    with pytest.raises(Overdue, match=r"the sleeper did not answer within 0\.05 s"):
        within(0.05, never.wait, "the sleeper")
    never.set()


def test_a_timeout_of_the_call_itself_is_its_own():
    def fail() -> None:
        raise TimeoutError("from inside")

    with pytest.raises(TimeoutError, match="from inside"):
        within(5, fail, "the call")


def test_what_begins_cannot_be_cancelled_and_its_result_comes_late():
    go = threading.Event()
    future = start(lambda: go.wait(5), "the call")
    assert not future.cancel()
    go.set()
    assert future.result(5) is True


def test_a_call_left_behind_does_not_keep_the_process_alive():
    program = "import threading; from turngym.tools.core import start; start(threading.Event().wait, 'never')"
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


def test_threads_are_used_again_and_end_when_nothing_comes(monkeypatch):
    monkeypatch.setattr(threads, "IDLE", 0.05)
    used = {within(5, threading.current_thread, f"call {number}") for number in range(100)}
    assert len(used) < 50
    for thread in used:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize(("idle", "kept"), [(0.0, 64), (3600.0, 0), (0.1, 1)])
def test_no_call_is_lost_where_threads_end_or_are_not_kept(monkeypatch, idle, kept):
    monkeypatch.setattr(threads, "IDLE", idle)
    monkeypatch.setattr(threads, "KEPT", kept)
    for _ in range(20):
        futures = [start(lambda n=n: (n, threading.current_thread()), "the call") for n in range(20)]
        numbers, used = zip(*(future.result(30) for future in futures))
        assert numbers == tuple(range(20))
    for thread in used:
        thread.join(30)
        assert not thread.is_alive()


def test_a_call_that_comes_as_its_thread_gives_up_is_made():
    class Taken:
        def get(self, timeout):
            if worker in threads._idle:
                threads._idle.remove(worker)
                raise Empty
            return "the call"

    worker = threads._Worker("a worker")
    worker.inbox = Taken()
    assert worker.next() == "the call"


def test_no_call_waits_for_one_that_hangs():
    never = threading.Event()
    hung = [start(never.wait, "the sleeper") for _ in range(30)]
    assert [within(30, lambda n=n: n, "the call") for n in range(60)] == list(range(60))
    assert not any(future.done() for future in hung)
    never.set()
    assert all(future.result(30) for future in hung)


def test_a_call_leaves_nothing_behind_on_its_thread(monkeypatch):
    class Thing:
        pass

    monkeypatch.setattr(threads, "IDLE", 3600.0)
    seen, gone, thing = ContextVar("seen", default="nothing"), threading.Event(), Thing()
    weakref.finalize(thing, gone.set)
    within(5, lambda thing=thing: seen.set(str(thing)), "the call")
    del thing
    assert gone.wait(30)
    assert {within(5, seen.get, "the call") for _ in range(20)} == {"nothing"}


def test_a_forked_process_starts_threads_of_its_own():
    program = """if True:
        import os, threading
        from turngym.tools.core import _idle, within
        idle = within(5, threading.current_thread, "the call")
        while idle not in _idle:
            pass
        if not (child := os.fork()):
            os._exit(within(5, lambda: 7, "the call"))
        assert not idle.is_alive()
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 7
