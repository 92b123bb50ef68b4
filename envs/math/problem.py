"""A generated problem: a text, its exact answer, and a program that prints the answer.

A family draws numbers, states a problem about them and works out the gold by itself; the program is built from the
numbers of the text, so that the two are independent ways to the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from ..tasks import KeyedRandom


class Problem(NamedTuple):
    """A problem: `text` ends with a question, `gold` is an integer, a finite decimal or a fraction `a/b`."""

    text: str
    gold: str
    solution: str


Kind = Callable[[KeyedRandom], Problem]
Family = Mapping[int, Sequence[Kind]]
"""The kinds of problem at each difficulty from 1 to 5."""


def problem(text: str, gold: int | Fraction | str, expression: str, setup: str = "") -> Problem:
    """Return the problem whose solution prints `expression` after running `setup` (lines, each ended)."""
    return Problem(text, str(gold), f"{setup}print({expression})")


def asked(rng: KeyedRandom, text: str, gold: int | Fraction, expression: str = "", setup: str = "") -> Problem:
    """Ask for the value of the expression `text`, which is its own program where no other is given."""
    return problem(rng.choice(ASK).format(text), gold, expression or text.replace(" ", ""), setup)


def signed(number: int, symbol: str = "") -> str:
    """Write a term behind another: ` + 3y` or ` - 3y`; nothing for 0 and no 1 in front of a symbol."""
    size = "" if abs(number) == 1 and symbol else str(abs(number))
    return f" {'-' if number < 0 else '+'} {size}{symbol}" if number else ""


def decimal(value: Fraction) -> str:
    """Write a value whose decimal is finite: 3/4 as 0.75, 8/4 as 2.0, the way Python prints a quotient."""
    return repr(value.numerator / value.denominator)


ASK = ("What is {}?", "How much is {}?", "What is the value of {}?", "What do you get for {}?")
FRACTION = "from fractions import Fraction\n"
PEOPLE = ("Anna", "Ben", "Cara", "Dan", "Ella", "Finn", "Gina", "Hugo")
THINGS = ("apples", "books", "coins", "cards", "eggs", "pens", "shells", "stamps")
BOXES = ("bags", "boxes", "rows", "jars")
