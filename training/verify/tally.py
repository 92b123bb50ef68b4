"""Counting the cases of a row as they come."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import Row, first


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
        return Row(self.what, self.of - self.short, self.of, "; ".join(filter(None, (note, first(self.faults)))))
