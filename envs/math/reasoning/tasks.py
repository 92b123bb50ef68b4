"""Tasks that reasoning-gym makes and scores (extra `tasks`): logic, games, arithmetic and more.

A task can have several right answers, so reasoning-gym's own scorers decide, in a child process.
Only a full score counts, as many scorers give a part of it for any answer at all.

No text of an agent is evaluated. If a scorer would do that, the answer is read by a grammar first:
`countdown` is computed here, in exact fractions; integrals are checked by sympy inside the sandbox
of the Python tool; for the other data sets nothing with a letter of a name or a bracket reaches the
scorer. And the child process refuses to compile any text except the task's own.
"""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...sources import library
from ...splits import SPLITS, check_split
from ...tasks import Task, check_index, check_known
from ..grading.calculus import Unconfined, find_level

PREFIX = "reasoning-gym:"
"""What the name of a task source starts with, in front of the names of data sets."""

SIZE = 1_000_000
"""The number of tasks of a data set in each split.

Entry i of a split is drawn with the seed `seed of the split + i`, so the seeds of the splits are
this far apart.
"""

REFUSED: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("refused.toml").read_text("utf-8")
)
"""The data sets that cannot be used, each with the reason."""

INTEGRATION = "simple_integration"
"""The data set whose answers are integrals, which are checked inside the Python tool's sandbox."""


class EntryKey(NamedTuple):
    """Identifies an entry of reasoning-gym, so that a scorer can make it again."""

    data_set: str
    seed: int
    place: int  # of the entry in its data set


class Gold(str):
    """The answer of an entry of reasoning-gym, which knows the entry for its scorer."""

    entry: EntryKey


class ReasoningTasks:
    """Tasks of one or several data sets of reasoning-gym, which take turns.

    Args:
        names: The data sets.
        split: `train`, `valid` or `test`. Their entries are drawn with other seeds, though easy
            tasks may be equal.

    Raises:
        ValueError: If reasoning-gym is not installed or has no such data set, or if its tasks
            cannot be used.
    """

    def __init__(self, names: Sequence[str], split: str = "train") -> None:
        self.split = check_split(split)
        self.names = tuple(name.strip() for name in names)
        self.name = PREFIX + ",".join(self.names)
        usable_names = offered()
        for name in self.names:
            if name in REFUSED:
                raise ValueError(f"reasoning-gym's {name!r} cannot be used: {REFUSED[name]}")
            check_known(name, usable_names, f"reasoning-gym has no data set {name!r}", "it has")
        if INTEGRATION in self.names:
            _check_sandbox()

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, i: int, /) -> Task:
        check_index(i, self)
        # With the data sets A and B the tasks are A 0, B 0, A 1, B 1, and so on.
        place, turn = divmod(i, len(self.names))
        name = self.names[turn]
        seed = SPLITS.index(self.split) * SIZE
        entry = make_data_set(name, seed)[place]
        gold = Gold(entry["answer"])
        gold.entry = EntryKey(name, seed, place)
        return Task(
            id=f"{name}-{self.split}-{place}",
            prompt=entry["question"],
            gold=gold,
            category=name,
        )


def offered() -> tuple[str, ...]:
    """Return the names of the data sets whose tasks can be used.

    Raises:
        ValueError: If reasoning-gym is not installed.
    """
    all_names = _import_reasoning_gym().factory.DATASETS
    return tuple(sorted(set(all_names) - set(REFUSED)))


@functools.lru_cache(maxsize=64)
def make_data_set(name: str, seed: int) -> Any:
    """Return a data set of reasoning-gym, a sequence of `SIZE` entries that are drawn on access.

    An entry is a dict with `question`, `answer` and `metadata`.

    Raises:
        ValueError: If reasoning-gym is not installed.
    """
    return _import_reasoning_gym().create_dataset(name, seed=seed, size=SIZE)


def _import_reasoning_gym() -> Any:
    """Import reasoning-gym late, as it is slow and optional; raise ValueError if it is missing."""
    return library("reasoning_gym", f"{PREFIX}…")


def _check_sandbox() -> None:
    """Raise ValueError if this machine has no sandbox in which integrals can be checked."""
    try:
        find_level()
    except Unconfined as error:
        raise ValueError(
            f"reasoning-gym's {INTEGRATION!r} cannot be used: {error}; allow user namespaces or "
            "Landlock, as docs/python-tool.md says, or leave it out"
        ) from error
