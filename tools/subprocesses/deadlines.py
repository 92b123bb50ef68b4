"""Work on its own thread with a deadline: the caller waits, and abandons it if it is late."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from ..base import T


class Overdue(RuntimeError):
    """A call did not return in time and was abandoned; its thread may still run."""


def start_thread(work: Callable[[], T], name: str) -> "Future[T]":
    """Run a function on a new daemon thread.

    Unlike the threads of an executor, a daemon thread does not keep the process alive.

    Args:
        work: The function.
        name: The thread's name.

    Returns:
        The future of the function's result, which cannot be cancelled and may be dropped.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    # A thread cannot be stopped, so its future must not be cancellable.
    future.set_running_or_notify_cancel()
    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def call_within(seconds: float, work: Callable[[], T], name: str) -> T:
    """Run a function on a new daemon thread and wait for its result, but not longer than `seconds`.

    Args:
        seconds: The timeout.
        work: The function. Its exceptions are raised here.
        name: The subject of the message of `Overdue`, and the thread's name.

    Raises:
        Overdue: It did not return in time; its thread may still run.
    """
    future = start_thread(work, name)
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # the function itself raised the TimeoutError
            raise
        raise Overdue(f"{name} did not answer within {seconds:g} s") from None
