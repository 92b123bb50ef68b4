"""All families of generated problems by name. A new family is a table of kinds and one line here."""

from __future__ import annotations

from ..tasks import KeyedRandom
from .algebra import LINEAR, SYSTEMS
from .arithmetic import ARITHMETIC, NUMBER_THEORY
from .problem import Family, Problem
from .ratios import FRACTIONS, PERCENT
from .sequences import SEQUENCES
from .stories import UNITS_FAMILY, WORDS

TABLE: dict[str, Family] = {
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
FAMILIES = tuple(TABLE)
LEVELS = (1, 2, 3, 4, 5)


def make(family: str, difficulty: int, rng: KeyedRandom) -> Problem:
    """Return a problem of `family` (a name in `FAMILIES`) at `difficulty` 1 to 5."""
    return rng.choice(TABLE[family][difficulty])(rng)
