"""Families about parts of a whole: fractions and percentages."""

from __future__ import annotations

from fractions import Fraction

from ..dice import Dice
from .problem import FRACTION, PEOPLE, THINGS, Family, Problem, asked, decimal, problem

# --- fractions

SHORT = (2, 4, 5, 8, 10, 20)


def _one_part(dice: Dice) -> Problem:
    q = dice.roll(2, 12)
    n = q * dice.roll(2, 40)
    return problem(f"What is 1/{q} of {n}?", n // q, f"{n}//{q}")


def _one_part_things(dice: Dice) -> Problem:
    q, who, what = dice.roll(2, 9), dice.pick(PEOPLE), dice.pick(THINGS)
    n = q * dice.roll(2, 20)
    return problem(f"{who} gives away 1/{q} of {n} {what}. How many {what} is that?", n // q, f"{n}//{q}")


def _as_decimal(dice: Dice) -> Problem:
    q = dice.pick(SHORT)
    p = q * dice.roll(0, 99 // q - 1) + dice.roll(1, q - 1)
    text = dice.pick((f"What is {p}/{q} as a decimal?", f"How do you write {p}/{q} as a decimal?"))
    return problem(text, decimal(Fraction(p, q)), f"{p}/{q}")


def _part_of(dice: Dice) -> Problem:
    q = dice.roll(3, 12)
    p, n = dice.roll(2, q - 1), q * dice.roll(2, 40)
    return problem(f"What is {p}/{q} of {n}?", n // q * p, f"{n}*{p}//{q}")


def _part_left(dice: Dice) -> Problem:
    q, who, what = dice.roll(2, 12), dice.pick(PEOPLE), dice.pick(THINGS)
    n = q * dice.roll(2, 30)
    text = f"{who} has {n} {what} and gives away 1/{q} of them. How many {what} are left?"
    return problem(text, n // q * (q - 1), f"{n}-{n}//{q}")


def _sum_as_decimal(dice: Dice) -> Problem:
    q = dice.pick(SHORT)
    a, b = dice.roll(1, 60), dice.roll(1, 60)
    b += (a + b) % q == 0
    return problem(f"What is {a}/{q} + {b}/{q} as a decimal?", decimal(Fraction(a + b, q)), f"({a}+{b})/{q}")


def _ratio(dice: Dice, high: int) -> tuple[int, int]:
    q = dice.roll(3, high)
    return dice.roll(1, q - 1), q


def _sum_of_ratios(dice: Dice) -> Problem:
    (a, b), (c, d) = _ratio(dice, 15), _ratio(dice, 15)
    gold, code = Fraction(a * d + b * c, b * d), f"Fraction({a}, {b}) + Fraction({c}, {d})"
    return asked(dice, f"{a}/{b} + {c}/{d}", gold, code, FRACTION)


def _ratio_chain(dice: Dice) -> Problem:
    (a, b), (c, d), (e, f) = _ratio(dice, 15), _ratio(dice, 15), _ratio(dice, 20)
    gold, code = Fraction(a * c, b * d) - Fraction(e, f), f"Fraction({a * c}, {b * d}) - Fraction({e}, {f})"
    return asked(dice, f"{a}/{b} * {c}/{d} - {e}/{f}", gold, code, FRACTION)


def _ratio_of_sums(dice: Dice) -> Problem:
    (a, b), (c, d), (e, f) = _ratio(dice, 15), _ratio(dice, 15), _ratio(dice, 20)
    gold = Fraction((a * d + b * c) * f, b * d * e)
    code = f"(Fraction({a}, {b}) + Fraction({c}, {d})) / Fraction({e}, {f})"
    return asked(dice, f"({a}/{b} + {c}/{d}) / ({e}/{f})", gold, code, FRACTION)


# --- percent


def _percent_of(dice: Dice) -> Problem:
    p, n = dice.pick((5, 10, 20, 25, 30, 40, 50, 60, 75)), 20 * dice.roll(1, 45)
    text = dice.pick((f"What is {p}% of {n}?", f"How much is {p}% of {n}?"))
    return problem(text, n // 20 * p // 5, f"{n}*{p}//100") if n * p % 100 == 0 else _percent_of(dice)


def _which_percent(dice: Dice) -> Problem:
    n, p = dice.pick((20, 25, 50, 200, 400, 500)), dice.roll(1, 100)
    k = Fraction(n * p, 100)
    if k.denominator != 1:
        return _which_percent(dice)
    return problem(f"What percent of {n} is {k}?", p, f"{k}*100//{n}")


def _price_change(dice: Dice) -> Problem:
    p, n, up = dice.pick((5, 10, 15, 20, 25, 30, 40, 50)), 20 * dice.roll(1, 45), dice.roll(0, 1)
    if n * p % 100:
        return _price_change(dice)
    verb, sign = ("rises", "+") if up else ("falls", "-")
    text = f"A price of {n} dollars {verb} by {p}%. What is the new price in dollars?"
    return problem(text, n * (100 + p if up else 100 - p) // 100, f"{n}{sign}{n}*{p}//100")


def _percent_left(dice: Dice) -> Problem:
    who, what, p, n = dice.pick(PEOPLE), dice.pick(THINGS), 10 * dice.roll(1, 9), 10 * dice.roll(2, 60)
    text = f"{who} has {n} {what} and sells {p}% of them. How many {what} are left?"
    return problem(text, n // 10 * (10 - p // 10), f"{n}-{n}*{p}//100")


def _two_changes(dice: Dice) -> Problem:
    n, p, q = 10 * dice.roll(5, 90), dice.roll(2, 40), dice.roll(2, 40)
    text = f"A price of {n} dollars rises by {p}% and then falls by {q}%. What is the price in dollars at the end?"
    gold = decimal(n * Fraction(100 + p, 100) * Fraction(100 - q, 100))
    return problem(text, gold, f"{n}*(100+{p})*(100-{q})/10000")


def _before_change(dice: Dice) -> Problem:
    p, q, old = dice.roll(5, 60), dice.roll(5, 60), 100 * dice.roll(1, 90)
    first = old * (100 - p) // 100
    now = decimal(first * Fraction(100 + q, 100))
    text = f"A price falls by {p}% and then rises by {q}%. Now it is {now} dollars. What was it in dollars at first?"
    return problem(text, old, f'Fraction("{now}")*10000/(100-{p})/(100+{q})', FRACTION)


def _interest(dice: Dice) -> Problem:
    n, p, years = 100 * dice.roll(1, 90), dice.roll(2, 12), dice.roll(2, 3)
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
