"""How far a mean over seeds may be off: Student's t-interval (Student, Biometrika 1908)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean of `n` values with the half width of its 95 % interval; the width is None where one value has none."""

    value: float
    half: float | None
    n: int

    def to_json(self) -> dict[str, Any]:
        """Return JSON data."""
        return asdict(self)


def mean_of(values: Sequence[float]) -> Mean | None:
    """Return the mean of some values; None of none."""
    if not values:
        return None
    n = len(values)
    half = t_quantile(n - 1) * stdev(values) / math.sqrt(n) if n > 1 else None
    return Mean(fmean(values), half, n)


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
