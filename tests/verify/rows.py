"""What turngym promises, counted: `turngym verify AREA` runs an area and fails where a row falls short.

An area is a frozen dataclass whose fields are its options; its docstring says what it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Row:
    """One promise: how many of how many cases hold it.

    `need` is the share that must hold, `note` says what else was measured, or which cases fell short first.
    """

    what: str
    held: int
    of: int
    note: str = ""
    need: float = 1.0

    @property
    def good(self) -> bool:
        """Return whether enough cases hold; a row without a case does not."""
        return self.of > 0 and self.held >= self.need * self.of


class Area(Protocol):
    """What `turngym verify` can run."""

    @property
    def seed(self) -> int:
        """Keys all randomness."""

    def rows(self) -> Iterator[Row]:
        """Yield each row as soon as it is counted; raise ValueError or OSError for bad input."""


def run(area: Area, show: Callable[[Row, float], None]) -> bool:
    """Count all rows of `area`, showing each with the seconds it took; return whether all are good."""
    good, began = True, time.monotonic()
    for row in area.rows():
        now = time.monotonic()
        show(row, now - began)
        good, began = good and row.good, now
    return good


def first(names: list[str], most: int = 5) -> str:
    """Return the first of `names` for a row's note; empty when there are none."""
    more = f" (+{len(names) - most} more)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@dataclass
class Tally:
    """The cases of one promise so far."""

    what: str
    of: int = 0
    short: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, case: str, fault: object, times: int = 1) -> None:
        """Count a case `times` times; a `fault` that is not empty says why it falls short."""
        self.of += times
        if fault:
            self.short += times
            self.faults.append(case if fault is True else f"{case}: {fault}")

    def row(self, note: str = "") -> Row:
        """Return the row."""
        return Row(
            self.what,
            self.of - self.short,
            self.of,
            "; ".join(filter(None, (note, first(self.faults)))),
        )
