"""Families about parts of a whole: fractions and percentages."""

from __future__ import annotations

from fractions import Fraction

from ..tasks import KeyedRandom
from .problem import FRACTION, PEOPLE, THINGS, Family, Problem, asked, decimal, problem

# --- fractions

SHORT = (2, 4, 5, 8, 10, 20)


def _one_part(rng: KeyedRandom) -> Problem:
    q = rng.integer(2, 12)
    n = q * rng.integer(2, 40)
    return problem(f"What is 1/{q} of {n}?", n // q, f"{n}//{q}")


def _one_part_things(rng: KeyedRandom) -> Problem:
    q, who, what = rng.integer(2, 9), rng.choice(PEOPLE), rng.choice(THINGS)
    n = q * rng.integer(2, 20)
    return problem(f"{who} gives away 1/{q} of {n} {what}. How many {what} is that?", n // q, f"{n}//{q}")


def _as_decimal(rng: KeyedRandom) -> Problem:
    q = rng.choice(SHORT)
    p = q * rng.integer(0, 99 // q - 1) + rng.integer(1, q - 1)
    text = rng.choice((f"What is {p}/{q} as a decimal?", f"How do you write {p}/{q} as a decimal?"))
    return problem(text, decimal(Fraction(p, q)), f"{p}/{q}")


def _part_of(rng: KeyedRandom) -> Problem:
    q = rng.integer(3, 12)
    p, n = rng.integer(2, q - 1), q * rng.integer(2, 40)
    return problem(f"What is {p}/{q} of {n}?", n // q * p, f"{n}*{p}//{q}")


def _part_left(rng: KeyedRandom) -> Problem:
    q, who, what = rng.integer(2, 12), rng.choice(PEOPLE), rng.choice(THINGS)
    n = q * rng.integer(2, 30)
    text = f"{who} has {n} {what} and gives away 1/{q} of them. How many {what} are left?"
    return problem(text, n // q * (q - 1), f"{n}-{n}//{q}")


def _sum_as_decimal(rng: KeyedRandom) -> Problem:
    q = rng.choice(SHORT)
    a, b = rng.integer(1, 60), rng.integer(1, 60)
    b += (a + b) % q == 0
    return problem(f"What is {a}/{q} + {b}/{q} as a decimal?", decimal(Fraction(a + b, q)), f"({a}+{b})/{q}")


def _ratio(rng: KeyedRandom, high: int) -> tuple[int, int]:
    q = rng.integer(3, high)
    return rng.integer(1, q - 1), q


def _sum_of_ratios(rng: KeyedRandom) -> Problem:
    (a, b), (c, d) = _ratio(rng, 15), _ratio(rng, 15)
    gold, code = Fraction(a * d + b * c, b * d), f"Fraction({a}, {b}) + Fraction({c}, {d})"
    return asked(rng, f"{a}/{b} + {c}/{d}", gold, code, FRACTION)


def _ratio_chain(rng: KeyedRandom) -> Problem:
    (a, b), (c, d), (e, f) = _ratio(rng, 15), _ratio(rng, 15), _ratio(rng, 20)
    gold, code = Fraction(a * c, b * d) - Fraction(e, f), f"Fraction({a * c}, {b * d}) - Fraction({e}, {f})"
    return asked(rng, f"{a}/{b} * {c}/{d} - {e}/{f}", gold, code, FRACTION)


def _ratio_of_sums(rng: KeyedRandom) -> Problem:
    (a, b), (c, d), (e, f) = _ratio(rng, 15), _ratio(rng, 15), _ratio(rng, 20)
    gold = Fraction((a * d + b * c) * f, b * d * e)
    code = f"(Fraction({a}, {b}) + Fraction({c}, {d})) / Fraction({e}, {f})"
    return asked(rng, f"({a}/{b} + {c}/{d}) / ({e}/{f})", gold, code, FRACTION)


# --- percent


def _percent_of(rng: KeyedRandom) -> Problem:
    p, n = rng.choice((5, 10, 20, 25, 30, 40, 50, 60, 75)), 20 * rng.integer(1, 45)
    text = rng.choice((f"What is {p}% of {n}?", f"How much is {p}% of {n}?"))
    return problem(text, n // 20 * p // 5, f"{n}*{p}//100") if n * p % 100 == 0 else _percent_of(rng)


def _which_percent(rng: KeyedRandom) -> Problem:
    n, p = rng.choice((20, 25, 50, 200, 400, 500)), rng.integer(1, 100)
    k = Fraction(n * p, 100)
    if k.denominator != 1:
        return _which_percent(rng)
    return problem(f"What percent of {n} is {k}?", p, f"{k}*100//{n}")


def _price_change(rng: KeyedRandom) -> Problem:
    p, n, up = rng.choice((5, 10, 15, 20, 25, 30, 40, 50)), 20 * rng.integer(1, 45), rng.integer(0, 1)
    if n * p % 100:
        return _price_change(rng)
    verb, sign = ("rises", "+") if up else ("falls", "-")
    text = f"A price of {n} dollars {verb} by {p}%. What is the new price in dollars?"
    return problem(text, n * (100 + p if up else 100 - p) // 100, f"{n}{sign}{n}*{p}//100")


def _percent_left(rng: KeyedRandom) -> Problem:
    who, what, p, n = rng.choice(PEOPLE), rng.choice(THINGS), 10 * rng.integer(1, 9), 10 * rng.integer(2, 60)
    text = f"{who} has {n} {what} and sells {p}% of them. How many {what} are left?"
    return problem(text, n // 10 * (10 - p // 10), f"{n}-{n}*{p}//100")


def _two_changes(rng: KeyedRandom) -> Problem:
    n, p, q = 10 * rng.integer(5, 90), rng.integer(2, 40), rng.integer(2, 40)
    text = f"A price of {n} dollars rises by {p}% and then falls by {q}%. What is the price in dollars at the end?"
    gold = decimal(n * Fraction(100 + p, 100) * Fraction(100 - q, 100))
    return problem(text, gold, f"{n}*(100+{p})*(100-{q})/10000")


def _before_change(rng: KeyedRandom) -> Problem:
    p, q, old = rng.integer(5, 60), rng.integer(5, 60), 100 * rng.integer(1, 90)
    first = old * (100 - p) // 100
    now = decimal(first * Fraction(100 + q, 100))
    text = f"A price falls by {p}% and then rises by {q}%. Now it is {now} dollars. What was it in dollars at first?"
    return problem(text, old, f'Fraction("{now}")*10000/(100-{p})/(100+{q})', FRACTION)


def _interest(rng: KeyedRandom) -> Problem:
    n, p, years = 100 * rng.integer(1, 90), rng.integer(2, 12), rng.integer(2, 3)
    text = f"An account holds {n} dollars and earns {p}% interest each year, paid into the account. "
    text += f"How many dollars of interest has it earned after {years} years?"
    gold = n * (Fraction(100 + p, 100) ** years - 1)
    return problem(text, decimal(gold), f"{n}*((100+{p})**{years}-100**{years})/100**{years}")


FRACTIONS: Family = {
    1: (_one_part, _one_part_things, _as_decimal),
    2: (_part_of, _part_left, _sum_as_decimal),
    3: (_sum_of_ratios,),
    4: (_ratio_chain,),
    5: (_ratio_of_sums,),
}
PERCENT: Family = {
    1: (_percent_of, _which_percent),
    2: (_price_change, _percent_left),
    3: (_two_changes,),
    4: (_before_change,),
    5: (_interest,),
}
