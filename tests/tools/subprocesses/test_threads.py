"""Calls on daemon threads: what they return and raise, and what becomes of one that never answers."""

import subprocess
import sys
import threading
import weakref
from contextvars import ContextVar

import pytest

from turngym.tools.subprocesses.deadlines import Overdue, call_within, start_thread


def test_a_call_returns_and_raises_as_it_would_here():
    assert call_within(5, lambda: threading.current_thread().name, "the call") == "the call"
    with pytest.raises(ZeroDivisionError):
        call_within(5, lambda: 1 // 0, "the call")
    with pytest.raises(SystemExit):
        start_thread(sys.exit, "the call").result(5)


def test_a_call_that_never_answers_is_left_behind_in_time():
    never = threading.Event()
    with pytest.raises(Overdue, match=r"the sleeper did not answer within 0\.05 s"):
        call_within(0.05, never.wait, "the sleeper")
    never.set()


def test_a_timeout_of_the_call_itself_is_its_own():
    def fail() -> None:
        raise TimeoutError("from inside")

    with pytest.raises(TimeoutError, match="from inside"):
        call_within(5, fail, "the call")


def test_what_begins_cannot_be_cancelled_and_its_result_comes_late():
    go = threading.Event()
    future = start_thread(lambda: go.wait(5), "the call")
    assert not future.cancel()
    go.set()
    assert future.result(5) is True


def test_a_call_left_behind_does_not_keep_the_process_alive():
    program = "import threading; from turngym.tools.subprocesses.deadlines import start_thread; start_thread(threading.Event().wait, 'never')"
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0


def test_no_call_waits_for_one_that_hangs():
    never = threading.Event()
    hung = [start_thread(never.wait, "the sleeper") for _ in range(30)]
    assert [call_within(30, lambda n=n: n, "the call") for n in range(60)] == list(range(60))
    assert not any(future.done() for future in hung)
    never.set()
    assert all(future.result(30) for future in hung)


def test_a_call_leaves_nothing_behind():
    class Thing:
        pass

    seen, gone, thing = ContextVar("seen", default="nothing"), threading.Event(), Thing()
    weakref.finalize(thing, gone.set)
    call_within(5, lambda thing=thing: seen.set(str(thing)), "the call")
    del thing
    assert gone.wait(30)
    assert {call_within(5, seen.get, "the call") for _ in range(20)} == {"nothing"}
