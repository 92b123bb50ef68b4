"""Families about numbers: expressions and divisibility."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

from ..tasks import KeyedRandom
from .problem import FRACTION, Family, Problem, asked, problem

# --- arithmetic


def _add(rng: KeyedRandom) -> Problem:
    a, b = rng.integer(2, 99), rng.integer(2, 99)
    return asked(rng, f"{a} + {b}", a + b)


def _subtract(rng: KeyedRandom) -> Problem:
    a, b = rng.integer(2, 99), rng.integer(2, 99)
    return asked(rng, f"{a} - {b}", a - b)


def _multiply(rng: KeyedRandom) -> Problem:
    a, b = rng.integer(2, 99), rng.integer(2, 12)
    return asked(rng, f"{a} * {b}", a * b)


def _divide(rng: KeyedRandom) -> Problem:
    b = rng.integer(2, 9)
    a = rng.integer(2, 99 // b)
    return asked(rng, f"{a * b} / {b}", a, f"{a * b}//{b}")


def _large(rng: KeyedRandom) -> Problem:
    a, b = rng.integer(100, 999), rng.integer(11, 999)
    return asked(rng, f"{a} + {b}", a + b) if rng.integer(0, 1) else asked(rng, f"{a} - {b}", a - b)


def _large_product(rng: KeyedRandom) -> Problem:
    a, b = rng.integer(100, 999), rng.integer(3, 99)
    return asked(rng, f"{a} * {b}", a * b)


def _product_and(rng: KeyedRandom) -> Problem:
    a, b, c = rng.integer(2, 99), rng.integer(2, 99), rng.integer(2, 99)
    return asked(rng, f"{a} * {b} + {c}", a * b + c) if rng.integer(0, 1) else asked(rng, f"{a} * {b} - {c}", a * b - c)


def _bracket(rng: KeyedRandom) -> Problem:
    a, b, c, sign = rng.integer(2, 99), rng.integer(2, 99), rng.integer(2, 20), rng.choice((1, -1))
    return asked(rng, f"({a} {'+' if sign > 0 else '-'} {b}) * {c}", (a + sign * b) * c)


def _tree(rng: KeyedRandom, leaves: int, high: int) -> tuple[str, int, bool]:
    """Return an expression of `leaves` numbers, its value, and whether it needs brackets inside a product."""
    if leaves == 1:
        number = rng.integer(2, high)
        return str(number), number, False
    left = rng.integer(1, leaves - 1)
    (a, x, wide_a), (b, y, wide_b) = _tree(rng, left, high), _tree(rng, leaves - left, high)
    sign = rng.choice("+-*")
    if sign == "*":
        return f"{_closed(a, wide_a)} * {_closed(b, wide_b)}", x * y, False
    return f"{a} {sign} {_closed(b, wide_b)}", x + y if sign == "+" else x - y, True


def _closed(text: str, wide: bool) -> str:
    return f"({text})" if wide else text


def _four_numbers(rng: KeyedRandom) -> Problem:
    text, value, _ = _tree(rng, 4, 40)
    return asked(rng, text, value)


def _five_numbers(rng: KeyedRandom) -> Problem:
    text, value, _ = _tree(rng, 5, 60)
    base = rng.integer(3, 15)
    return asked(rng, f"{text} + {base}^3", value + base**3, f"{text}+{base}**3")


def _quotient(rng: KeyedRandom) -> Problem:
    (top, x, wide), (bottom, y, _) = _tree(rng, 3, 60), _tree(rng, 3, 30)
    if y == 0:
        bottom, y = f"{bottom} + 7", 7
    return asked(rng, f"{_closed(top, wide)} / ({bottom})", Fraction(x, y), f"Fraction({top}, {bottom})", FRACTION)


# --- number theory


def _remainder(rng: KeyedRandom) -> Problem:
    a, b = rng.integer(10, 99), rng.integer(3, 12)
    text = rng.choice(("What is the remainder of {} divided by {}?", "What remains when {} is divided by {}?"))
    return problem(text.format(a, b), a % b, f"{a}%{b}")


def _multiples(rng: KeyedRandom) -> Problem:
    k, n = rng.integer(2, 15), rng.integer(20, 99)
    return problem(f"How many multiples of {k} are there from 1 to {n}?", len(range(k, n + 1, k)), f"{n}//{k}")


def _last_digit(rng: KeyedRandom) -> Problem:
    a, b = rng.integer(11, 99), rng.integer(3, 99)
    return problem(f"What is the last digit of {a} * {b}?", int(str(a * b)[-1]), f"{a}*{b}%10")


def _remainder_of(rng: KeyedRandom) -> Problem:
    a, b, c = rng.integer(10, 99), rng.integer(10, 99), rng.integer(3, 15)
    if rng.integer(0, 1):
        return problem(f"What is the remainder of {a} + {b} divided by {c}?", (a % c + b % c) % c, f"({a}+{b})%{c}")
    return problem(f"What is the remainder of {a} * {b} divided by {c}?", (a % c) * (b % c) % c, f"{a}*{b}%{c}")


def _largest_multiple(rng: KeyedRandom) -> Problem:
    k, n = rng.integer(3, 30), rng.integer(50, 999)
    return problem(f"What is the largest multiple of {k} up to {n}?", n - n % k, f"{n}//{k}*{k}")


def _common(rng: KeyedRandom) -> Problem:
    k = rng.integer(2, 15)
    a, b = k * rng.integer(2, 30), k * rng.integer(2, 30)
    name, gold, call = rng.choice(
        (("greatest common divisor", gcd(a, b), "gcd"), ("least common multiple", lcm(a, b), "lcm"))
    )
    return problem(f"What is the {name} of {a} and {b}?", gold, f"{call}({a}, {b})", f"from math import {call}\n")


def _divisors(rng: KeyedRandom) -> Problem:
    n = rng.integer(2, 20) * rng.integer(2, 20) * rng.integer(1, 6)
    pairs = {d for k in range(1, int(n**0.5) + 1) if n % k == 0 for d in (k, n // k)}
    if rng.integer(0, 1):
        return problem(
            f"How many positive divisors does {n} have?", len(pairs), f"sum({n}%d==0 for d in range(1,{n}+1))"
        )
    code = f"sum(d for d in range(1,{n}+1) if {n}%d==0)"
    return problem(f"What is the sum of all positive divisors of {n}?", sum(pairs), code)


def _power(rng: KeyedRandom) -> Problem:
    a, b, m = rng.integer(2, 60), rng.integer(10, 400), rng.integer(5, 97)
    return problem(f"What is the remainder of {a}^{b} divided by {m}?", pow(a, b, m), f"{a}**{b}%{m}")


def _two_remainders(rng: KeyedRandom) -> Problem:
    m, n = rng.integer(5, 30), rng.integer(7, 40)
    if gcd(m, n) > 1:
        return _two_remainders(rng)
    r, s = rng.integer(0, m - 1), rng.integer(1, n - 1)
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
