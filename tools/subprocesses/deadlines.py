"""Work on a thread of its own, with a deadline: it is waited for, and left behind if it is late."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from ..base import T


class Overdue(RuntimeError):
    """A call did not answer in time and was left behind."""


def start(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin `work` on a daemon thread called `name` and return its future, which may be forgotten."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()  # so that nobody can cancel what cannot be stopped
    threading.Thread(target=call, name=name, daemon=True).start()
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
