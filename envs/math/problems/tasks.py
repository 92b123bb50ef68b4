"""Sets of generated problems: an index becomes a task of a family and a difficulty, in one of three splits."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...keyed_random import KeyedRandom
from ...splits import check_split, in_split
from ...tasks import Task, check_choices, check_index, check_known
from ..grading.grader import restates
from .families import read

_TABLES = Path(__file__).with_name("families.toml").read_text("utf-8")
FAMILIES = {name: read(table) for name, table in tomllib.loads(_TABLES).items()}
SUMS = "sums"
"""A family that is in a set only where it is named. Its splits are parted by their numbers, whatever the wording."""
MIXED = tuple(name for name in FAMILIES if name != SUMS)
_INTEGER = re.compile(r"\d+")
_PROGRAM_QUOTIENT = re.compile(r"(?<![\w)*])(\d+) ?//? ?(\d+)|Fraction\((\d+), (\d+)\)")


@dataclass(frozen=True)
class MathTask(Task):
    """A generated problem.

    Args:
        quotients: Dividend and divisor, without signs, of the quotients that can be read off the problem. As an answer
            they earn nothing, unless the gold itself is written so: `84/2` is no work where 2 friends share 84 apples.
    """

    quotients: frozenset[tuple[int, int]] = field(default=frozenset(), repr=False)

    def restates(self, answer: str) -> bool:
        """Return whether an answer is one of the problem's quotients in any spelling, and not the gold's own form."""
        return restates(answer, self.gold, self.quotients)


def read_off(text: str, program: str) -> frozenset[tuple[int, int]]:
    """Return the quotients that can be read off a problem.

    They are those of any two numbers in its text, and those that its program works out of two numbers, such as the 60
    seconds of a minute.
    """
    numbers = {int(digits) for digits in _INTEGER.findall(text)}
    quotients = {(top, bottom) for top in numbers for bottom in numbers if bottom}
    for match in _PROGRAM_QUOTIENT.finditer(program):
        top, bottom = (int(digits) for digits in match.groups() if digits)
        quotients.add((top, bottom))
    return frozenset(quotients)


DIFFICULTIES = (1, 2, 3, 4, 5)
ATTEMPTS = 10_000


class MathTasks:
    """Generated math problems.

    Args:
        split: `train`, `valid` or `test`.
        difficulty: 1 (one operation) to 5 (several steps, fractions), one level or several mixed evenly.
        families: Names from `FAMILIES`, mixed evenly; all but `sums` when left out.
        seed: Chooses which problems there are, and their order.
        size: How many there are.

    Raises ValueError where an argument is none of these.
    """

    def __init__(
        self,
        split: str = "train",
        difficulty: int | Sequence[int] = (1, 2),
        families: tuple[str, ...] = MIXED,
        seed: int = 0,
        size: int = 1_000_000,
    ) -> None:
        self.difficulty = check_choices("difficulty", difficulty, DIFFICULTIES)
        for family in families:
            check_known(family, FAMILIES, f"unknown family {family!r}", "the families are")
        if not families:
            raise ValueError(f"families is empty; choose one or several of {', '.join(FAMILIES)}")
        if size < 1:
            raise ValueError(f"size is {size}; a task set needs at least one task")
        self.split = check_split(split)
        self.families = tuple(name for name in FAMILIES if name in families)
        self.seed, self.size = seed, size
        self.name = "math"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int, /) -> Task:
        check_index(i, self)
        rng = KeyedRandom(self.seed, i, self.split)
        family, level = rng.choice(self.families), rng.choice(self.difficulty)
        for _ in range(ATTEMPTS):
            text, gold, solution = rng.choice(FAMILIES[family][level])(rng)
            if in_split(solution if family == SUMS else text, self.split):
                name = f"{family}-{level}-{self.split}-{self.seed}-{i}"
                quotients = read_off(text, solution)
                return MathTask(name, text, gold, solution, category=family, quotients=quotients)
        raise RuntimeError(
            f"{family} at difficulty {level} has no problem for split {self.split}; add variety to it"
        )
