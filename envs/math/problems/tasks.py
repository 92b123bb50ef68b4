"""Sets of generated problems: an index becomes a task of a family and a difficulty.

A task is fixed by its index and the arguments of its set. The text of a problem decides its split:
a tenth of all texts is `valid`, a tenth `test`, the others `train`. So no two splits ever share a
problem, whatever their seeds, families and difficulties.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...keyed_random import KeyedRandom
from ...splits import check_split, in_split
from ...tasks import Task, check_choices, check_index, check_known
from ..grading.grader import restates
from .families import FAMILIES, MIXED
from .problem import Problem
from .sums import SUMS

DIFFICULTIES = (1, 2, 3, 4, 5)
_MOST_DRAWS = 10_000  # of one problem, until it belongs to the split


@dataclass(frozen=True)
class MathTask(Task):
    """A generated problem.

    Args:
        quotients: Dividend and divisor, without signs, of the quotients that can be read off the
            problem. As an answer they earn nothing, unless the gold itself is written so: `84/2`
            is no work if 2 friends share 84 apples.
    """

    quotients: frozenset[tuple[int, int]] = field(default=frozenset(), repr=False)

    def restates(self, answer: str) -> bool:
        """Return whether an answer only repeats one of the problem's quotients.

        Any spelling of a quotient counts, except the gold's own form.
        """
        return restates(answer, self.gold, self.quotients)


class MathTasks:
    """Generated math problems.

    Args:
        split: `train`, `valid` or `test`.
        difficulty: 1 (one operation) to 5 (several steps, fractions), one level or several mixed
            evenly.
        families: Names from `FAMILIES`, mixed evenly; by default all but `sums`.
        seed: Chooses which problems there are, and their order.
        size: How many there are.

    Raises:
        ValueError: If an argument is none of these.
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
        # In the order of the registry, so that the order of the argument changes no task.
        self.families = tuple(name for name in FAMILIES if name in families)
        self.seed = seed
        self.size = size
        self.name = "math"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int, /) -> Task:
        check_index(i, self)
        rng = KeyedRandom(self.seed, i, self.split)
        family = rng.choice(self.families)
        level = rng.choice(self.difficulty)
        problem = self._draw_problem(rng, family, level)
        return MathTask(
            id=f"{family}-{level}-{self.split}-{self.seed}-{i}",
            prompt=problem.text,
            gold=problem.gold,
            solution=problem.solution,
            category=family,
            quotients=read_off(problem.text, problem.solution),
        )

    def _draw_problem(self, rng: KeyedRandom, family: str, level: int) -> Problem:
        """Draw problems of a family and level until one belongs to this set's split.

        The text of a problem decides its split. For `sums` its solution does, which names the
        numbers only, so that the same sum in two wordings is in one split.
        """
        for _ in range(_MOST_DRAWS):
            draw_problem = rng.choice(FAMILIES[family][level])
            problem = draw_problem(rng)
            decides_split = problem.solution if family == SUMS.name else problem.text
            if in_split(decides_split, self.split):
                return problem
        raise RuntimeError(
            f"{family} at difficulty {level} has no problem for split {self.split}; "
            "add variety to it"
        )


_INTEGER = re.compile(r"\d+")
_PROGRAM_QUOTIENT = re.compile(
    r"""
    (?<! [\w)*] )(\d+) [ ]? //? [ ]? (\d+)  # 84/2 and 84 // 2, but not the end of (1+3)*5/2
    | Fraction\( (\d+), [ ] (\d+) \)        # Fraction(84, 2)
    """,
    re.VERBOSE,
)


def read_off(text: str, program: str) -> frozenset[tuple[int, int]]:
    """Return the quotients that can be read off a problem, each as (dividend, divisor).

    They are the quotients of any two numbers in the problem's text, and those that its program
    computes from two numbers, such as the 60 seconds of a minute.

    Args:
        text: The text of the problem.
        program: The program that prints its answer.
    """
    numbers = {int(digits) for digits in _INTEGER.findall(text)}
    quotients = set[tuple[int, int]]()
    for dividend in numbers:
        for divisor in numbers:
            if divisor != 0:
                quotients.add((dividend, divisor))
    for match in _PROGRAM_QUOTIENT.finditer(program):
        # Only one of the two alternatives has groups that matched.
        dividend, divisor = (int(digits) for digits in match.groups() if digits is not None)
        quotients.add((dividend, divisor))
    return frozenset(quotients)
