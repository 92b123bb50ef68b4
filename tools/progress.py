"""Progress of long work. The code that does the work reports it here; a command may display it.

with Progress("reading", total=len(files)) as work:
    for file in files:
        …
        work.advance()
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")

_current_work: list[Progress] = []


class FirstCount(NamedTuple):
    """When parts were first counted (`time.monotonic()`), and how many were done at that moment."""

    time: float
    done: int


class Progress:
    """Work that may take more than two seconds; inside its `with` block `current_work` lists it.

    Args:
        what: The name that is displayed.
        total: The number of parts; 0 if it is not known.
        text: A second line to display; it may be changed at any time.

    Attributes:
        done: How many parts are done.
        tokens: How many tokens have been sampled so far.
    """

    def __init__(self, what: str, total: int = 0, text: str = "") -> None:
        self.what = what
        self.total = total
        self.text = text
        self.done = 0
        self.tokens = 0
        self._start_time = time.monotonic()
        self._first_count: FirstCount | None = None

    def __enter__(self) -> Progress:
        _current_work.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _current_work.remove(self)

    def advance(self, parts: int = 1, tokens: int = 0) -> None:
        """Count more parts as done, and more tokens as sampled."""
        self.reach(self.done + parts)
        self.tokens += tokens

    def reach(self, done: int) -> None:
        """Set how many parts are done, counted from the beginning."""
        self.done = done
        if self._first_count is None:
            self._first_count = FirstCount(time.monotonic(), done)

    @property
    def seconds(self) -> float:
        """The seconds since the work began."""
        return time.monotonic() - self._start_time

    @property
    def seconds_left(self) -> float | None:
        """The estimated seconds until the end; None if they cannot be estimated.

        The pace is measured from the first count. Resumed work counts the parts that an earlier
        process did in its first count, and they took no time in this one.
        """
        if self._first_count is None or not self.total:
            return None
        newly_done = self.done - self._first_count.done
        if newly_done <= 0:
            return None
        seconds_since_first_count = time.monotonic() - self._first_count.time
        parts_left = max(self.total - self.done, 0)
        return parts_left * seconds_since_first_count / newly_done


def track(items: Iterable[T], what: str, total: int = 0) -> Iterator[T]:
    """Yield items and report the progress; an item counts as done when the next is requested.

    Args:
        items: The items.
        what: The name of the work that is displayed.
        total: The number of items; 0 if it is not known.
    """
    with Progress(what, total) as work:
        for item in items:
            yield item
            work.advance()


def current_work() -> tuple[Progress, ...]:
    """Return the work that has begun and has not ended, the outermost first."""
    return tuple(_current_work)
