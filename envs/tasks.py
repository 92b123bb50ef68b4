"""What a task set is, and task sets read from JSONL files.

A set is a deterministic function from an index to a task: the same arguments and the same index give the same task on
any machine. The gold answer stays between the task set and the grader; a task's `repr` does not show it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .rows import SHAPES, Fields, expected, read_row

HOLDOUT = "holdout "  # in front of a hashed text: a file written by a generator's split must not fall on one side
SPLITS = ("train", "valid", "test")
SPLIT_SHARES = {"valid": (0.0, 0.1), "test": (0.1, 0.2), "train": (0.2, 1.0)}  # of made-up problems, by `text_share`


@dataclass(frozen=True)
class Task:
    """One problem.

    Args:
        id: Names the task in journals and reports.
        prompt: What the agent reads.
        gold: The right answer, for the grader only.
        solution: A Python program that prints the answer, for demonstrations only.
        aliases: Other answers that are as right, for the grader only.
    """

    id: str
    prompt: str
    gold: str = field(repr=False)
    solution: str | None = field(default=None, repr=False)
    aliases: tuple[str, ...] = field(default=(), repr=False)

    @property
    def golds(self) -> tuple[str, ...]:
        """All answers that are right."""
        return (self.gold, *self.aliases)


class Tasks(Protocol):
    """A sequence of tasks that depends on nothing but its own arguments."""

    @property
    def name(self) -> str:
        """Where the tasks come from."""

    @property
    def split(self) -> str:
        """`train`, `valid` or `test`."""

    def __len__(self) -> int:
        """Return the number of tasks."""

    def __getitem__(self, i: int, /) -> Task:
        """Return task `i`; raise IndexError out of range."""


class ListTasks:
    """Tasks held in memory."""

    def __init__(self, tasks: Sequence[Task], name: str = "tasks", split: str = "train") -> None:
        if not tasks:
            raise ValueError(f"{name} has no tasks; a task set needs at least one")
        self.name = name
        self.split = check_split(split)
        self._tasks = tuple(tasks)

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._tasks)

    def __getitem__(self, i: int, /) -> Task:
        """Return task `i`; raise IndexError out of range."""
        if not 0 <= i < len(self):
            raise IndexError(f"task {i} of {self.name}: there are tasks 0 to {len(self) - 1}")
        return self._tasks[i]


def check_split(split: str) -> str:
    """Return `split` if it is one of `SPLITS`; raise ValueError otherwise."""
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; the splits are {', '.join(SPLITS)}")
    return split


def text_share(text: str) -> float:
    """Return a number in [0, 1) that depends on `text` alone: below 0.1 lies a tenth of all texts."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def check_holdout(split: str, holdout: float) -> None:
    """Raise ValueError unless `holdout` is a share that can part train from valid."""
    if not 0 <= holdout < 1:
        raise ValueError(f"holdout is {holdout}; it is a share, at least 0 and below 1")
    if holdout and split == "test":
        raise ValueError(f"split is 'test' and holdout is {holdout}; a holdout parts train from valid, so set it to 0")


def kept(tasks: list[Task], what: str, split: str, holdout: float) -> list[Task]:
    """Return the tasks on the side of `split` where `holdout` parts train from valid by the problems' texts."""
    if holdout:
        tasks = [task for task in tasks if (text_share(HOLDOUT + task.prompt) < holdout) == (split == "valid")]
        if not tasks:
            raise ValueError(f"holdout is {holdout} and leaves no task of {what} for {split}; try --option holdout=0.2")
    return tasks


Make = Callable[[str, str, tuple[str, ...], Mapping[str, Any]], Task]
"""Makes a task of its id, its prompt, its right answers and the row that they come from."""


def plain_task(name: str, prompt: str, golds: tuple[str, ...], row: Mapping[str, Any]) -> Task:
    """Return the task of a row that holds nothing but a problem and its answers."""
    return Task(name, prompt, golds[0], aliases=golds[1:])


def tasks_of(
    rows: Iterable[tuple[str, str, Any]],
    what: str,
    shapes: Sequence[Fields] = SHAPES,
    *,
    check_gold: Callable[[str], None] | None = None,
    bad_rows: int = 0,
    make: Make = plain_task,
) -> list[Task]:
    """Return the tasks of rows that come as (where the row is, a name for its task, the row).

    Args:
        rows: A row may hold an `id`, which then names the task.
        what: Where the rows are from.
        shapes: The fields that a row may hold; the first pair that it has is used.
        check_gold: Raises ValueError for a gold answer that the grader could not use.
        bad_rows: How many rows without a usable problem and gold may be left out.
        make: Makes the task; raises ValueError, with the end of a sentence, where the row holds something else wrong.

    Raises:
        ValueError: More rows than that cannot be used; the message names the first.
    """
    tasks, faults = [], []
    for where, name, row in rows:
        try:
            prompt, golds = read_row(row, shapes, check_gold)
            tasks.append(make(str(row.get("id", name)), prompt, golds, row))
        except ValueError as fault:
            faults.append(f"{where}{fault}")
    if len(faults) > bad_rows:
        more = f" ({len(faults)} rows cannot be used; --option bad_rows={len(faults)} leaves them out)" if tasks else ""
        raise ValueError(faults[0] + more)
    if not tasks:
        raise ValueError(f"{what} has no rows; it needs rows with {expected(shapes)}")
    return tasks


def load_jsonl(
    path: str | Path,
    *,
    split: str = "train",
    holdout: float = 0.0,
    shapes: Sequence[Fields] = SHAPES,
    check_gold: Callable[[str], None] | None = None,
    bad_rows: int = 0,
    make: Make = plain_task,
) -> ListTasks:
    """Read one task per line of a `.jsonl` or `.jsonl.gz` file (UTF-8); blank lines are skipped.

    Args:
        path: The file. Its rows hold `problem, answer` or `question, answer` (GSM8K's `#### 42` is understood) unless
            `shapes` says otherwise, and may hold an `id`.
        split: What the tasks are for. The whole file serves any split unless `holdout` is given.
        holdout: The share of problem texts kept away from `train` and given to `valid`; the same text is always on the
            same side.
        shapes: The fields that a row may hold.
        check_gold: Raises ValueError for a gold answer that the grader could not use.
        bad_rows: How many rows without a usable problem and gold may be left out.
        make: Makes the task; raises ValueError, with the end of a sentence, where the row holds something else wrong.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file, or a line of it, is not as described; the message names both.
    """
    path = Path(path)
    check_split(split)
    check_holdout(split, holdout)
    tasks = tasks_of(_lines(path), str(path), shapes, check_gold=check_gold, bad_rows=bad_rows, make=make)
    return ListTasks(kept(tasks, str(path), split, holdout), path.name, split)


def _lines(path: Path) -> Iterator[tuple[str, str, Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"task file {path} does not exist; give a .jsonl or .jsonl.gz file")
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    # Numbers stay as they are written: 0.10 and 12345678901234567890.5 lose nothing.
                    row = json.loads(line, parse_int=str, parse_float=str)
                    yield f"{path}:{number}", f"{path.name}-{number}", row
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}:{number} is not JSON in UTF-8: {error}") from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path} is not a complete gzip file: {error}") from None
