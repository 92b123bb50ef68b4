"""Generated math problems, fixed by an index, from families of problems.

A problem's text decides its split: a tenth of all texts is `valid`, a tenth `test`, the others `train`, so no two
splits ever share a problem, whatever their seeds, families and difficulties. A new family is a table of kinds and one
line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..tasks import KeyedRandom, Task, check_choices, check_index, check_split, did_you_mean, in_split
from .algebra import LINEAR, SYSTEMS
from .arithmetic import ARITHMETIC, NUMBER_THEORY, SEQUENCES
from .problem import Family, Problem
from .ratios import FRACTIONS, PERCENT
from .stories import UNITS_FAMILY, WORDS

FAMILIES: dict[str, Family] = {
    "arithmetic": ARITHMETIC,
    "words": WORDS,
    "fractions": FRACTIONS,
    "percent": PERCENT,
    "units": UNITS_FAMILY,
    "linear": LINEAR,
    "systems": SYSTEMS,
    "number-theory": NUMBER_THEORY,
    "sequences": SEQUENCES,
}
DIFFICULTIES = (1, 2, 3, 4, 5)
ATTEMPTS = 10_000


def make_problem(family: str, difficulty: int, rng: KeyedRandom) -> Problem:
    """Return a problem of `family` (a name in `FAMILIES`) at `difficulty` 1 to 5."""
    return rng.choice(FAMILIES[family][difficulty])(rng)


class MathTasks:
    """Generated math problems.

    Args:
        split: `train`, `valid` or `test`.
        difficulty: 1 (one operation) to 5 (several steps, fractions), one level or several mixed evenly.
        families: Names from `FAMILIES`, mixed evenly.
        seed: Chooses which problems there are, and their order.
        size: How many there are.

    Raises:
        ValueError: An argument is none of these.
    """

    def __init__(
        self,
        split: str = "train",
        difficulty: int | Sequence[int] = (1, 2),
        families: tuple[str, ...] = tuple(FAMILIES),
        seed: int = 0,
        size: int = 1_000_000,
    ) -> None:
        self.difficulty = check_choices("difficulty", difficulty, DIFFICULTIES)
        for family in families:
            if family not in FAMILIES:
                hint = did_you_mean(family, FAMILIES, cutoff=0.4)
                raise ValueError(f"unknown family {family!r}; {hint}the families are {', '.join(FAMILIES)}")
        if not families:
            raise ValueError(f"families is empty; choose one or several of {', '.join(FAMILIES)}")
        if size < 1:
            raise ValueError(f"size is {size}; a task set needs at least one task")
        self.split = check_split(split)
        self.families = tuple(name for name in FAMILIES if name in families)
        self.seed = seed
        self.size = size
        self.name = "math"

    def __len__(self) -> int:
        """Return the number of tasks."""
        return self.size

    def __getitem__(self, i: int, /) -> Task:
        """Return task `i`; raise IndexError out of range."""
        check_index(i, self)
        rng = KeyedRandom(self.seed, i, self.split)
        family, level = rng.choice(self.families), rng.choice(self.difficulty)
        for _ in range(ATTEMPTS):
            text, gold, solution = make_problem(family, level, rng)
            if in_split(text, self.split):
                return Task(f"{family}-{level}-{self.split}-{self.seed}-{i}", text, gold, solution)
        raise RuntimeError(f"{family} at difficulty {level} has no problem for split {self.split}; add variety to it")
