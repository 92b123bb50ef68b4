"""Families about numbers: expressions and divisibility."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

from ..dice import Dice
from .problem import FRACTION, Family, Problem, asked, problem

# --- arithmetic


def _add(dice: Dice) -> Problem:
    a, b = dice.roll(2, 99), dice.roll(2, 99)
    return asked(dice, f"{a} + {b}", a + b)


def _subtract(dice: Dice) -> Problem:
    a, b = dice.roll(2, 99), dice.roll(2, 99)
    return asked(dice, f"{a} - {b}", a - b)


def _multiply(dice: Dice) -> Problem:
    a, b = dice.roll(2, 99), dice.roll(2, 12)
    return asked(dice, f"{a} * {b}", a * b)


def _divide(dice: Dice) -> Problem:
    b = dice.roll(2, 9)
    a = dice.roll(2, 99 // b)
    return asked(dice, f"{a * b} / {b}", a, f"{a * b}//{b}")


def _large(dice: Dice) -> Problem:
    a, b = dice.roll(100, 999), dice.roll(11, 999)
    return asked(dice, f"{a} + {b}", a + b) if dice.roll(0, 1) else asked(dice, f"{a} - {b}", a - b)


def _large_product(dice: Dice) -> Problem:
    a, b = dice.roll(100, 999), dice.roll(3, 99)
    return asked(dice, f"{a} * {b}", a * b)


def _product_and(dice: Dice) -> Problem:
    a, b, c = dice.roll(2, 99), dice.roll(2, 99), dice.roll(2, 99)
    return asked(dice, f"{a} * {b} + {c}", a * b + c) if dice.roll(0, 1) else asked(dice, f"{a} * {b} - {c}", a * b - c)


def _bracket(dice: Dice) -> Problem:
    a, b, c, sign = dice.roll(2, 99), dice.roll(2, 99), dice.roll(2, 20), dice.pick((1, -1))
    return asked(dice, f"({a} {'+' if sign > 0 else '-'} {b}) * {c}", (a + sign * b) * c)


def _tree(dice: Dice, leaves: int, high: int) -> tuple[str, int, bool]:
    """Return an expression of `leaves` numbers, its value, and whether it needs brackets inside a product."""
    if leaves == 1:
        number = dice.roll(2, high)
        return str(number), number, False
    left = dice.roll(1, leaves - 1)
    (a, x, wide_a), (b, y, wide_b) = _tree(dice, left, high), _tree(dice, leaves - left, high)
    sign = dice.pick("+-*")
    if sign == "*":
        return f"{_closed(a, wide_a)} * {_closed(b, wide_b)}", x * y, False
    return f"{a} {sign} {_closed(b, wide_b)}", x + y if sign == "+" else x - y, True


def _closed(text: str, wide: bool) -> str:
    return f"({text})" if wide else text


def _four_numbers(dice: Dice) -> Problem:
    text, value, _ = _tree(dice, 4, 40)
    return asked(dice, text, value)


def _five_numbers(dice: Dice) -> Problem:
    text, value, _ = _tree(dice, 5, 60)
    base = dice.roll(3, 15)
    return asked(dice, f"{text} + {base}^3", value + base**3, f"{text}+{base}**3")


def _quotient(dice: Dice) -> Problem:
    (top, x, wide), (bottom, y, _) = _tree(dice, 3, 60), _tree(dice, 3, 30)
    if y == 0:
        bottom, y = f"{bottom} + 7", 7
    return asked(dice, f"{_closed(top, wide)} / ({bottom})", Fraction(x, y), f"Fraction({top}, {bottom})", FRACTION)


# --- number theory


def _remainder(dice: Dice) -> Problem:
    a, b = dice.roll(10, 99), dice.roll(3, 12)
    text = dice.pick(("What is the remainder of {} divided by {}?", "What remains when {} is divided by {}?"))
    return problem(text.format(a, b), a % b, f"{a}%{b}")


def _multiples(dice: Dice) -> Problem:
    k, n = dice.roll(2, 15), dice.roll(20, 99)
    return problem(f"How many multiples of {k} are there from 1 to {n}?", len(range(k, n + 1, k)), f"{n}//{k}")


def _last_digit(dice: Dice) -> Problem:
    a, b = dice.roll(11, 99), dice.roll(3, 99)
    return problem(f"What is the last digit of {a} * {b}?", int(str(a * b)[-1]), f"{a}*{b}%10")


def _remainder_of(dice: Dice) -> Problem:
    a, b, c = dice.roll(10, 99), dice.roll(10, 99), dice.roll(3, 15)
    if dice.roll(0, 1):
        return problem(f"What is the remainder of {a} + {b} divided by {c}?", (a % c + b % c) % c, f"({a}+{b})%{c}")
    return problem(f"What is the remainder of {a} * {b} divided by {c}?", (a % c) * (b % c) % c, f"{a}*{b}%{c}")


def _largest_multiple(dice: Dice) -> Problem:
    k, n = dice.roll(3, 30), dice.roll(50, 999)
    return problem(f"What is the largest multiple of {k} up to {n}?", n - n % k, f"{n}//{k}*{k}")


def _common(dice: Dice) -> Problem:
    k = dice.roll(2, 15)
    a, b = k * dice.roll(2, 30), k * dice.roll(2, 30)
    name, gold, call = dice.pick(
        (("greatest common divisor", gcd(a, b), "gcd"), ("least common multiple", lcm(a, b), "lcm"))
    )
    return problem(f"What is the {name} of {a} and {b}?", gold, f"{call}({a}, {b})", f"from math import {call}\n")


def _divisors(dice: Dice) -> Problem:
    n = dice.roll(2, 20) * dice.roll(2, 20) * dice.roll(1, 6)
    pairs = {d for k in range(1, int(n**0.5) + 1) if n % k == 0 for d in (k, n // k)}
    if dice.roll(0, 1):
        return problem(
            f"How many positive divisors does {n} have?", len(pairs), f"sum({n}%d==0 for d in range(1,{n}+1))"
        )
    code = f"sum(d for d in range(1,{n}+1) if {n}%d==0)"
    return problem(f"What is the sum of all positive divisors of {n}?", sum(pairs), code)


def _power(dice: Dice) -> Problem:
    a, b, m = dice.roll(2, 60), dice.roll(10, 400), dice.roll(5, 97)
    return problem(f"What is the remainder of {a}^{b} divided by {m}?", pow(a, b, m), f"{a}**{b}%{m}")


def _two_remainders(dice: Dice) -> Problem:
    m, n = dice.roll(5, 30), dice.roll(7, 40)
    if gcd(m, n) > 1:
        return _two_remainders(dice)
    r, s = dice.roll(0, m - 1), dice.roll(1, n - 1)
    gold = (r + m * ((s - r) * pow(m, -1, n) % n)) % (m * n)
    text = f"What is the smallest positive integer that leaves remainder {r} when divided by {m} "
    text += f"and remainder {s} when divided by {n}?"
    return problem(text, gold, f"next(k for k in range(1,{m}*{n}+1) if k%{m}=={r} and k%{n}=={s})")


ARITHMETIC: Family = {
    1: (_add, _subtract, _multiply, _divide),
    2: (_large, _large_product, _product_and, _bracket),
    3: (_four_numbers,),
    4: (_five_numbers,),
    5: (_quotient,),
}
NUMBER_THEORY: Family = {
    1: (_remainder, _multiples),
    2: (_last_digit, _remainder_of, _largest_multiple),
    3: (_common,),
    4: (_divisors, _power),
    5: (_two_remainders,),
}
