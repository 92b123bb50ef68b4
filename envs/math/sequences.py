"""The family of sequences: what comes next, the n-th term, the sum of the first n."""

from __future__ import annotations

from fractions import Fraction

from ..tasks import KeyedRandom
from .problem import FRACTION, Family, Problem, problem, signed


def _more_each_time(rng: KeyedRandom) -> Problem:
    a, d = rng.integer(10, 99), rng.integer(2, 40)
    if rng.integer(0, 1):
        return problem(f"Each term is {d} more than the one before. Which term follows {a}?", a + d, f"{a}+{d}")
    return problem(f"Each term is {d} less than the one before. Which term follows {a}?", a - d, f"{a}-{d}")


def _times_each_time(rng: KeyedRandom) -> Problem:
    a, r = rng.integer(2, 99), rng.integer(2, 9)
    return problem(f"Each term is {r} times the one before. Which term follows {a}?", a * r, f"{a}*{r}")


def _next_step(rng: KeyedRandom) -> Problem:
    a, d = rng.integer(1, 60), rng.nonzero(15)
    b, c = a + d, a + 2 * d
    if c < 0:
        return _next_step(rng)
    text = rng.choice(("Which number comes next: {}, {}, {}?", "What is the next term of {}, {}, {}?"))
    return problem(text.format(a, b, c), c + d, f"{c}+{b}-{a}")


def _next_power(rng: KeyedRandom) -> Problem:
    a, r = rng.integer(1, 40), rng.integer(2, 6)
    b, c = a * r, a * r * r
    return problem(f"Each term is {r} times the one before: {a}, {b}, {c}. What comes next?", c * r, f"{c}*{r}")


def _nth_term(rng: KeyedRandom) -> Problem:
    a, d, n = rng.integer(1, 60), rng.integer(2, 20), rng.integer(5, 60)
    text = f"The first term is {a} and each term is {d} more than the one before. What is term {n}?"
    return problem(text, range(a, a + n * d, d)[-1], f"{a}+({n}-1)*{d}")


def _sum_of_terms(rng: KeyedRandom) -> Problem:
    a, d, n = rng.integer(1, 60), rng.integer(2, 20), rng.integer(6, 60)
    text = f"A sequence starts at {a} and each term is {d} more than the one before. "
    text += f"What is the sum of its first {n} terms?"
    return problem(text, n * a + d * n * (n - 1) // 2, f"sum({a}+{d}*k for k in range({n}))")


def _recurrence(rng: KeyedRandom) -> Problem:
    a, r, b, n = rng.integer(1, 20), rng.integer(2, 4), rng.nonzero(20), rng.integer(4, 8)
    gold = a * r ** (n - 1) + b * (r ** (n - 1) - 1) // (r - 1)
    more = "plus" if b > 0 else "minus"
    text = f"A sequence starts at {a}. Each next term is {r} times the one before {more} {abs(b)}. What is term {n}?"
    return problem(text, gold, "x", f"x = {a}\nfor _ in range({n} - 1):\n    x = {r}*x{signed(b)}\n")


def _two_back(rng: KeyedRandom) -> Problem:
    x, y, p, q, n = rng.integer(1, 9), rng.integer(1, 9), rng.integer(1, 3), rng.nonzero(3), rng.integer(6, 12)
    terms = [x, y]
    while len(terms) < n:
        terms.append(p * terms[-1] + q * terms[-2])
    text = f"A sequence starts with {x} and {y}. Each later term is {p} times the one before it plus {q} times "
    text += f"the one two before it. What is term {n}?"
    setup = f"x, y = {x}, {y}\nfor _ in range({n} - 2):\n    x, y = y, {p}*y + ({q})*x\n"
    return problem(text, terms[-1], "y", setup)


def _geometric_sum(rng: KeyedRandom) -> Problem:
    a, q, n = rng.integer(1, 30), rng.integer(2, 6), rng.integer(3, 6)
    p = rng.integer(1, q - 1)
    text = f"The first term of a sequence is {a} and each next term is {p}/{q} of the one before. "
    text += f"What is the sum of the first {n} terms?"
    gold = a * (1 - Fraction(p, q) ** n) / (1 - Fraction(p, q))
    return problem(text, gold, f"sum({a}*Fraction({p}, {q})**k for k in range({n}))", FRACTION)


SEQUENCES: Family = {
    1: (_more_each_time, _times_each_time),
    2: (_next_step, _next_power, _nth_term),
    3: (_sum_of_terms,),
    4: (_recurrence,),
    5: (_two_back, _geometric_sum),
}
