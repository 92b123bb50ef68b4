"""How many seeds were solved, compared exactly: Fisher's test, and how many seeds it takes to see a difference.

Success over seeds is often all or nothing, where a mean with a t-interval says little. Fisher's exact test (Fisher,
Journal of the Royal Statistical Society 85, 1922) asks how likely a split as uneven as the one seen is by chance.
"""

from __future__ import annotations

from itertools import product
from math import comb

LEVEL = 0.05  # of p, below which a difference counts
POWER = 0.8  # wanted chance to see a difference that is there
MOST = 64  # seeds


def fisher(won: int, seeds: int, other: int, others: int) -> float:
    """Return the two-sided p of `won` of `seeds` solved against `other` of `others`; 1 where there are none.

    All splits of the solved ones that are at most as likely as the one seen count.
    """
    total, solved = seeds + others, won + other
    ways = [comb(seeds, k) * comb(others, solved - k) for k in range(solved + 1)]  # 0 where k is impossible
    return sum(way for way in ways if way <= ways[won]) / comb(total, solved)


def power(seeds: int, share: float, other: float, level: float = LEVEL) -> float:
    """Return the chance that p is at most `level`, of two methods that solve these shares of the seeds."""

    def chance(won: int, of: float) -> float:
        return comb(seeds, won) * of**won * (1 - of) ** (seeds - won)

    splits = product(range(seeds + 1), repeat=2)
    return sum(chance(a, share) * chance(b, other) for a, b in splits if fisher(a, seeds, b, seeds) <= level)


def seeds_for(share: float, other: float, level: float = LEVEL, wanted: float = POWER) -> int:
    """Return the fewest seeds with the wanted power; raise ValueError where `MOST` are too few."""
    for seeds in range(2, MOST + 1):
        if power(seeds, share, other, level) >= wanted:
            return seeds
    raise ValueError(
        f"{share} against {other} takes more than {MOST} seeds to see; compare something that differs more"
    )
