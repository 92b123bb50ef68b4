"""A loop that waits for descriptors to become readable."""

import math
import select
import time
from collections.abc import Callable


class Loop:
    """What is to be done once which descriptor is readable."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._then: dict[int, Callable[[], None]] = {}

    def on(self, fd: int, then: Callable[[], None]) -> None:
        """Call `then` whenever `fd` is readable or at its end."""
        self._then[fd] = then
        self._poll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Wait for `fd`, which is still open, no more; harmless if nobody did."""
        if self._then.pop(fd, None):
            self._poll.unregister(fd)

    def turn(self, until: float) -> None:
        """Wait for one descriptor until a time of `time.monotonic`, and do what is to be done.

        One only, since that may close other descriptors that are readable by now, and give their numbers to new ones.
        """
        left = None if until == math.inf else max(0.0, until - time.monotonic())
        for fd, _ in self._poll.poll(left, maxevents=1):
            self._then[fd]()
