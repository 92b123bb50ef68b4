"""Calls on threads of their own, so that one that never answers can be left behind.

A thread cannot be killed. A daemon thread at least delays neither the caller nor the end of the process, as those of a
`ThreadPoolExecutor` do. A thread whose call is over waits a while for another one, as starting a thread costs more than
most calls. Invariant: no call waits for another; where no thread is idle, one is started.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Call = Callable[[], None]

IDLE = 10.0  # seconds that a thread waits for its next call
KEPT = 64  # the most threads that wait


class Overdue(RuntimeError):
    """A call did not answer in time and was left behind."""


class _Worker(threading.Thread):
    """Makes the calls that come to its inbox, until None or nothing does."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[Call | None] = SimpleQueue()

    def run(self) -> None:
        call = self.inbox.get()
        while call is not None:
            call()
            del call  # and with it all that it holds, while this waits
            call = self.next() if len(_idle) < KEPT else None

    def next(self) -> Call | None:
        """Return the next call that comes; None where there has been none for a while."""
        _idle.append(self)
        while True:
            try:
                return self.inbox.get(timeout=IDLE)
            except Empty:
                with suppress(ValueError):  # somebody has taken it and is about to put a call there
                    _idle.remove(self)
                    return None


_idle: list[_Worker] = []


def start(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin `work` on a daemon thread called `name` and return its future, which may be forgotten."""
    future: Future[T] = Future()

    def call() -> None:
        threading.current_thread().name = name
        try:
            future.set_result(Context().run(work))  # context variables are as on a new thread
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()  # so that nobody can cancel what cannot be stopped
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker(name)
        worker.start()
    worker.inbox.put(call)
    return future


def within(seconds: float, work: Callable[[], T], name: str) -> T:
    """Return what `work` returns, or raise what it raises; `Overdue` where it takes longer than `seconds`."""
    future = start(work, name)
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # its own
            raise
        raise Overdue(f"{name} did not answer within {seconds:g} s") from None


def _retire() -> None:
    """End the threads that wait, since a forked process would know of them and not have them."""
    with suppress(IndexError):
        while True:
            worker = _idle.pop()
            worker.inbox.put(None)
            worker.join()


os.register_at_fork(before=_retire, after_in_child=_idle.clear)
