"""All families of generated problems, in the order in which they are listed and mixed."""

from collections.abc import Mapping, Sequence

from .arithmetic import ARITHMETIC
from .fractions import FRACTIONS
from .linear import LINEAR
from .number_theory import NUMBER_THEORY
from .percent import PERCENT
from .problem import ProblemKind
from .sequences import SEQUENCES
from .sums import SUMS
from .systems import SYSTEMS
from .units import UNITS
from .words import WORDS

MIXED_FAMILIES = (
    ARITHMETIC,
    WORDS,
    FRACTIONS,
    PERCENT,
    UNITS,
    LINEAR,
    SYSTEMS,
    NUMBER_THEORY,
    SEQUENCES,
)

FAMILIES: Mapping[str, Mapping[int, Sequence[ProblemKind]]] = {
    family.name: family.kinds_by_level for family in (*MIXED_FAMILIES, SUMS)
}
"""The kinds of problem of each family, by its name and their difficulty.

A problem's seed draws a family, a level and a kind by their places, so the order matters.
"""

MIXED = tuple(family.name for family in MIXED_FAMILIES)
"""The names of the families that a set mixes by default: all but `sums`."""
