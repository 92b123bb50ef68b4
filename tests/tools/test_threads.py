"""Calls on daemon threads: what they return and raise, and what becomes of one that never answers."""

import subprocess
import sys
import threading
import time

import pytest

from turngym.tools.threads import Overdue, start, within


def test_a_call_returns_and_raises_as_it_would_here():
    assert within(5, lambda: threading.current_thread().name, "the call") == "the call"
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0, "the call")
    with pytest.raises(SystemExit):
        start(sys.exit, "the call").result(5)


def test_a_call_that_never_answers_is_left_behind_in_time():
    never = threading.Event()
    began = time.monotonic()
    with pytest.raises(Overdue, match=r"the sleeper did not answer within 0\.05 s"):
        within(0.05, never.wait, "the sleeper")
    assert time.monotonic() - began < 2
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
    program = "import threading; from turngym.tools.threads import start; start(threading.Event().wait, 'never')"
    assert subprocess.run([sys.executable, "-c", program], timeout=30).returncode == 0
