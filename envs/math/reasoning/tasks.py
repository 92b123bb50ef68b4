"""Tasks that reasoning-gym makes and scores (extra `tasks`): logic, games, arithmetic and more.

Several answers to one task can be right, so reasoning-gym's own scorers decide, in a child process. Only a full score
is paid, as many of them give parts of it for any answer at all.

No text of an agent is evaluated. Where a scorer would do that, an answer is read by a grammar: `countdown` is computed
here, in exact fractions; integrals are checked by sympy within the boundary of the Python tool; for the others nothing
with a letter of a name or a bracket reaches the scorer. And the child refuses to compile any text but a task's own.
"""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...sources import library
from ...splits import SPLITS, check_split
from ...tasks import Task, check_index, check_known
from ..grading.calculus import Unconfined, find_level

PREFIX = "reasoning-gym:"
_PACKAGE = "reasoning_gym", f"{PREFIX}…"
SIZE = 1_000_000  # tasks of a data set in each split; entry i of a split is drawn with the seed of the split + i
REFUSED: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("refused.toml").read_text("utf-8")
)  # and why
_CONFINED = "simple_integration"  # the data set whose answers are computed within the boundary of the Python tool


class Gold(str):
    """An answer of reasoning-gym, which knows the entry that it answers: (data set, seed, index)."""

    entry: tuple[str, int, int]


class ReasoningTasks:
    """Tasks of one or several data sets of reasoning-gym, in turn.

    Args:
        names: The data sets.
        split: `train`, `valid` or `test`: their entries are drawn with other seeds, though easy tasks may be equal.

    Raises ValueError where reasoning-gym is missing or has no such data set, or its tasks cannot be used.
    """

    def __init__(self, names: Sequence[str], split: str = "train") -> None:
        self.split = check_split(split)
        self.names = tuple(name.strip() for name in names)
        self.name = PREFIX + ",".join(self.names)
        known = offered()
        for name in self.names:
            if name in REFUSED:
                raise ValueError(f"reasoning-gym's {name!r} cannot be used: {REFUSED[name]}")
            check_known(name, known, f"reasoning-gym has no data set {name!r}", "it has")
        if _CONFINED in self.names:
            _check_confinement()

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, i: int, /) -> Task:
        check_index(i, self)
        index, turn = divmod(i, len(self.names))
        name, seed = self.names[turn], SPLITS.index(self.split) * SIZE
        entry = _entries(name, seed)[index]
        gold = Gold(entry["answer"])
        gold.entry = (name, seed, index)
        return Task(f"{name}-{self.split}-{index}", entry["question"], gold, category=name)


def offered() -> tuple[str, ...]:
    """Return the data sets whose tasks can be used; raise ValueError where reasoning-gym is missing."""
    return tuple(sorted(set(library(*_PACKAGE).factory.DATASETS) - set(REFUSED)))


def _check_confinement() -> None:
    """Raise ValueError where this machine can confine nothing in which an answer would be computed."""
    try:
        find_level()
    except Unconfined as error:
        fix = "allow user namespaces or Landlock, as docs/python-tool.md says, or leave it out"
        raise ValueError(f"reasoning-gym's {_CONFINED!r} cannot be used: {error}; {fix}") from error


@functools.lru_cache(maxsize=64)
def _entries(name: str, seed: int) -> Any:
    return library(*_PACKAGE).create_dataset(name, seed=seed, size=SIZE)
