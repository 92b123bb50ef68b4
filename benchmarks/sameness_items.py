"""What `sameness.py` compares: items of text, their records in a file, and the difference of two records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LONGEST_TEXT = (
    3000  # characters; the record of a longer item has a digest of each line instead of its text
)
MOST_LINES = 400  # whose digests a record keeps
EXCERPT = 200  # characters that a difference shows of a line


@dataclass(frozen=True)
class Item:
    """One thing that must not change, as text. `name` is unique in its area and the same on every machine."""

    name: str
    text: str


@dataclass(frozen=True)
class LeftOut:
    """An item that cannot be made on this machine, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Scope:
    """How much is compared, and where the recorded data are.

    Args:
        quick: Whether each area makes only a part of its items. Their names are those of the full net.
        shared: The folder with recorded completions, graded answers and games.
    """

    quick: bool
    shared: Path

    def part(self, full: int, quick: int) -> int:
        """Return how many items of a kind there are."""
        return quick if self.quick else full


Area = Callable[[Scope], Iterator[Item | LeftOut]]


@dataclass(frozen=True)
class Record:
    """What a file keeps of an item: its digest, and enough to show what changed."""

    sha256: str
    text: str | None = None  # of a short item
    lines: tuple[str, ...] = ()  # short digests of the first lines of a longer one

    @classmethod
    def of(cls, item: Item) -> Record:
        """Return the record of an item."""
        digest = hashlib.sha256(item.text.encode("utf-8", "surrogatepass")).hexdigest()
        if len(item.text) <= LONGEST_TEXT:
            return cls(digest, text=item.text)
        return cls(digest, lines=tuple(map(short_digest, item.text.split("\n")[:MOST_LINES])))

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Record:
        """Return the record that `to_json` made this row of."""
        return cls(row["sha256"], row.get("text"), tuple(row.get("lines", ())))

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON data, without what it does not have."""
        return {
            name: value for name, value in asdict(self).items() if value is not None and value != ()
        }

    def difference(self, item: Item) -> list[str]:
        """Return lines that show where an item with another digest differs from the one recorded."""
        now = item.text.split("\n")
        if self.text is not None:
            before = self.text.split("\n")
            at = first_difference(before, now)
            return [f"line {at + 1}", f"  was {excerpt(before, at)}", f"  now {excerpt(now, at)}"]
        at = first_difference(self.lines, [short_digest(line) for line in now[: len(self.lines)]])
        if at < len(self.lines):
            return [f"line {at + 1}", f"  now {excerpt(now, at)}"]
        return [f"behind line {len(self.lines)}"]


def first_difference(before: Any, now: Any) -> int:
    """Return the index of the first element that differs: the length of the shorter sequence if only that does."""
    shorter = min(len(before), len(now))
    return next((at for at in range(shorter) if before[at] != now[at]), shorter)


def short_digest(line: str) -> str:
    """Return eight digits of a line's digest."""
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def excerpt(lines: list[str], at: int) -> str:
    """Return the beginning of a line as a literal."""
    if at >= len(lines):
        return "(no such line)"
    line = lines[at]
    return repr(line) if len(line) <= EXCERPT else f"{line[:EXCERPT]!r}..."


def to_text(value: Any) -> str:
    """Return JSON data as one line of text, with keys in their own order, which a policy sees too."""
    return json.dumps(value, ensure_ascii=False, default=repr)
