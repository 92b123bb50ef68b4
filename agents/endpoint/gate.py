"""How many requests are under way at a time, as many as the server can take."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..engine import EngineFault


class EndpointRefused(ValueError):
    """The server is none, or refuses what every request asks for."""

    fault = "refused"


class Gate:
    """Lets so many requests through at a time: one until the first is answered, then `most`.

    A server that is full halves the number, once for all that were under way; as many answers as there may be requests
    add one again. A request that waits for its next try keeps its place.
    """

    def __init__(self, most: int) -> None:
        self.limit, self.era = 1, 0  # an era ends where the limit is halved
        self._most, self._out, self._good, self._closed = most, 0, 0, ""
        self._changed = threading.Condition()

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place, and have it inside; raises `EndpointRefused` where the gate is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed != "" or self._out < self.limit)
            if self._closed:
                raise EndpointRefused(self._closed)
            self._out += 1
        try:
            yield
        finally:
            with self._changed:
                self._out -= 1
                self._changed.notify_all()

    def answered(self) -> None:
        with self._changed:
            self._good += 1
            if self.era == 0:
                self.limit, self._good, self.era = self._most, 0, 1
            elif self._good >= self.limit < self._most:
                self.limit, self._good = self.limit + 1, 0
            self._changed.notify_all()

    def failed(self, fault: EngineFault, era: int) -> None:
        """Count a failure of a request that was sent in `era`."""
        with self._changed:
            if fault in (EngineFault.FULL, EngineFault.TIMEOUT) and 0 < era == self.era:
                self.limit, self._good, self.era = max(self.limit // 2, 1), 0, era + 1

    def pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._closed), seconds)

    def close(self, why: str) -> None:
        """Let nobody through any more; all get the reason of the first call."""
        with self._changed:
            self._closed = self._closed or why
            self._changed.notify_all()
