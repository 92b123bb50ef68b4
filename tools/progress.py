"""How far long work is. Who does it says so here; a command shows it, and otherwise nobody does.

with Work("reading", total=len(files)) as work:
    for file in files:
        …
        work.advance()
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_open: list[Work] = []


class Work:
    """Something that may take more than two seconds: `done` of `total` parts (0: not known), `tokens` drawn so far.

    `text` is what else there is to say of it, in one line.
    """

    def __init__(self, what: str, total: int = 0, text: str = "") -> None:
        self.what, self.total, self.text = what, total, text
        self.done = self.tokens = 0
        self._began = time.monotonic()
        self._first: tuple[float, int] | None = (
            None  # when a part was first counted, and how many were done then
        )

    def __enter__(self) -> Work:
        _open.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _open.remove(self)

    def advance(self, parts: int = 1, tokens: int = 0) -> None:
        """Count more parts and tokens."""
        self.reach(self.done + parts)
        self.tokens += tokens

    def reach(self, done: int) -> None:
        """Set how many parts are done."""
        self.done = done
        self._first = self._first or (time.monotonic(), done)

    @property
    def seconds(self) -> float:
        """Return how long it has taken so far."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float | None:
        """Return the seconds that it will still take, if it goes on as since the first part; None where unknown."""
        since, before = self._first or (0.0, 0)
        if not self.total or self.done <= before:
            return None
        return max(self.total - self.done, 0) * (time.monotonic() - since) / (self.done - before)


def track(items: Iterable[T], what: str, total: int = 0) -> Iterator[T]:
    """Yield each of `items`, of which there are `total` (0: not known), and count it when the next is asked for."""
    with Work(what, total) as work:
        for item in items:
            yield item
            work.advance()


def going_on() -> tuple[Work, ...]:
    """Return the work that has begun and has not ended, the outermost first."""
    return tuple(_open)
