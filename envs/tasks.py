"""What a task set is, and task sets read from JSONL files.

A set is a deterministic function from an index to a task: the same arguments and the same index give the same task on
any machine. The gold answer stays between the task set and the grader; a task's `repr` does not show it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

HOLDOUT = "holdout "  # in front of a hashed text: a file written by a generator's split must not fall on one side
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Task:
    """One problem.

    Args:
        id: Names the task in journals and reports.
        prompt: What the agent reads.
        gold: The right answer, for the grader only.
        solution: A Python program that prints the answer, for demonstrations only.
    """

    id: str
    prompt: str
    gold: str = field(repr=False)
    solution: str | None = field(default=None, repr=False)


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


def _after_hashes(answer: str) -> str:
    """Return the answer at the end of a GSM8K rationale, or an answer that is no rationale as it is."""
    _, hashes, final = answer.rpartition("####")
    return final.strip().replace(",", "") if hashes else answer.strip()


# (problem field, answer field) -> how the answer's text becomes the gold; the first pair that a row has is used.
SHAPES: Mapping[tuple[str, str], Callable[[str], str]] = {
    ("problem", "answer"): _after_hashes,
    ("question", "answer"): _after_hashes,
}


def load_jsonl(
    path: str | Path,
    *,
    split: str = "train",
    holdout: float = 0.0,
    check_gold: Callable[[str], None] | None = None,
) -> ListTasks:
    """Read one task per line of a `.jsonl` or `.jsonl.gz` file (UTF-8); blank lines are skipped.

    Args:
        path: The file. Its rows hold `problem, answer` or `question, answer` (GSM8K's `#### 42` is understood) and
            may hold an `id`.
        split: What the tasks are for. The whole file serves any split unless `holdout` is given.
        holdout: The share of problem texts kept away from `train` and given to `valid`; the same text is always on the
            same side.
        check_gold: Raises ValueError for a gold answer that the grader could not use.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file, or a line of it, is not as described; the message names both.
    """
    path = Path(path)
    check_split(split)
    if not 0 <= holdout < 1:
        raise ValueError(f"holdout is {holdout}; it is a share, at least 0 and below 1")
    if holdout and split == "test":
        raise ValueError(f"split is 'test' and holdout is {holdout}; a holdout parts train from valid, so set it to 0")
    tasks = [_task(row, f"{path}:{number}", f"{path.name}-{number}", check_gold) for number, row in _rows(path)]
    if not tasks:
        raise ValueError(f"{path} has no rows; it needs one JSON object per line with {_expected()}")
    if holdout:
        tasks = [task for task in tasks if (text_share(HOLDOUT + task.prompt) < holdout) == (split == "valid")]
        if not tasks:
            raise ValueError(f"holdout is {holdout} and leaves no task of {path} for {split}; try --option holdout=0.2")
    return ListTasks(tasks, path.name, split)


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"task file {path} does not exist; give a .jsonl or .jsonl.gz file")
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    # Numbers stay as they are written: 0.10 and 12345678901234567890.5 lose nothing.
                    yield number, json.loads(line, parse_int=str, parse_float=str)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}:{number} is not JSON in UTF-8: {error}") from None
    except (gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path} is not a complete gzip file: {error}") from None


def _task(row: Any, where: str, name: str, check_gold: Callable[[str], None] | None) -> Task:
    shape = next((shape for shape in SHAPES if isinstance(row, dict) and shape[0] in row and shape[1] in row), None)
    if shape is None:
        found = f"the fields {', '.join(row)}" if isinstance(row, dict) else f"a {type(row).__name__}"
        raise ValueError(f"{where} has {found}; a row needs {_expected()}")
    prompt, answer = (row[key] for key in shape)
    for key, value in zip(shape, (prompt, answer), strict=True):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{where}: field {key!r} is {value!r}; it needs text")
    gold = SHAPES[shape](answer)
    try:
        if check_gold is not None:
            check_gold(gold)
    except ValueError as error:
        raise ValueError(f"{where}: field {shape[1]!r} is {answer!r}: {error}") from None
    return Task(str(row.get("id", name)), prompt, gold)


def _expected() -> str:
    return " or ".join(f"`{problem}, {answer}`" for problem, answer in SHAPES)
