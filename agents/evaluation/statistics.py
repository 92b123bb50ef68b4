"""What seeds can tell: means with intervals, tests of differences, and how many seeds it takes to see one.

Success over seeds is often all or nothing, where a mean with a t-interval says little. Fisher's exact test (Fisher,
Journal of the Royal Statistical Society 85, 1922) asks how likely a split as uneven as the one seen is by chance. Other
differences are taken on the same seeds and tested by Student's t (Student, Biometrika 1908). Several methods against
one reference are several tests: their p are Holm's (Scandinavian Journal of Statistics 6, 1979).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import comb
from statistics import NormalDist, fmean, stdev

import numpy as np

LEVEL = 0.05  # of p, below which a difference counts
POWER = 0.8  # wanted chance to see a difference that is there
MOST = 64  # seeds
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean of `n` values with the half width of its 95 % interval; the width is None where one value has none."""

    value: float
    half: float | None
    n: int


def mean_of(numbers: Iterable[float]) -> Estimate | None:
    """Return the mean of some numbers; None of none."""
    values = list(numbers)
    if not (n := len(values)):
        return None
    half = t_quantile(n - 1) * stdev(values) / math.sqrt(n) if n > 1 else None
    return Estimate(fmean(values), half, n)


def t_test(mean: Estimate | None) -> float | None:
    """Return the two-sided p of a mean difference against 0; None of fewer than two seeds."""
    if mean is None or mean.half is None:
        return None
    if not mean.half:
        return float(mean.value == 0)
    freedom = mean.n - 1
    t = abs(mean.value) / mean.half * t_quantile(freedom)
    return 1 - _within(math.atan(t / math.sqrt(freedom)), freedom)


def holm(chances: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return p, corrected for the number of those that there are; None stays None."""
    known = sorted((p, name) for name, p in chances.items() if p is not None)
    corrected, least = dict[str, float | None](dict.fromkeys(chances)), 0.0
    for place, (p, name) in enumerate(known):
        corrected[name] = least = max(least, min(p * (len(known) - place), 1.0))
    return corrected


def fisher(won: int, seeds: int, other: int, others: int) -> float:
    """Return the two-sided p of `won` of `seeds` solved against `other` of `others`; 1 where there are none.

    All splits of the solved ones that are at most as likely as the one seen count.
    """
    total, solved = seeds + others, won + other
    ways = [
        comb(seeds, k) * comb(others, solved - k) for k in range(solved + 1)
    ]  # 0 where k is impossible
    return sum(way for way in ways if way <= ways[won]) / comb(total, solved)


def power(seeds: int, share: float, other: float) -> float:
    """Return the chance that Fisher's p is at most `LEVEL`, of two methods that solve these shares of the seeds."""

    def chance(won: int, of: float) -> float:
        return comb(seeds, won) * of**won * (1 - of) ** (seeds - won)

    splits = product(range(seeds + 1), repeat=2)
    return sum(
        chance(a, share) * chance(b, other)
        for a, b in splits
        if fisher(a, seeds, b, seeds) <= LEVEL
    )


def paired_power(seeds: int, effect: float, sd: float, level: float = LEVEL) -> float:
    """Return the chance that the p of a mean difference of `effect` is at most `level`; `sd`: of it between seeds.

    The noncentral t-distribution, as the mean of a normal one over what the standard deviation of the seeds may be.
    """
    freedom, shift, normal = seeds - 1, effect / sd * math.sqrt(seeds), NormalDist().cdf
    bound = t_quantile(freedom, 1 - level)
    s = np.linspace(
        1e-6, 1 + 8 / math.sqrt(freedom), 4001
    )  # sample sd over sd, whose square is χ² / freedom
    constant = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    density = np.exp(constant + (freedom - 1) * np.log(s) - freedom * s**2 / 2)
    seen = [normal(shift - bound * x) + normal(-shift - bound * x) for x in s.tolist()]
    return float((density * np.array(seen)).sum() * (s[1] - s[0]))


def fewest(power_of: Callable[[int], float], what: str) -> int:
    """Return the fewest seeds with the power `POWER`; raise ValueError, naming `what`, where `MOST` are too few."""
    for seeds in range(2, MOST + 1):
        if power_of(seeds) >= POWER:
            return seeds
    raise ValueError(
        f"{what} takes more than {MOST} seeds to see; compare something that differs more"
    )


def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return t with P(|T| ≤ t) = `confidence`, T of Student's distribution with `freedom` degrees (at least 1)."""
    low, high = 0.0, math.pi / 2  # of atan(t / sqrt(freedom)), in which the probability is smooth
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """Return P(|T| ≤ t), angle = atan(t / sqrt(freedom)) (Abramowitz & Stegun, 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= k / (k + 1) * math.cos(angle) ** 2
    inside = math.sin(angle) * total
    return 2 / math.pi * (angle + inside) if odd else inside
