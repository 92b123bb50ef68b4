"""Families about numbers: expressions, divisibility and sequences."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

from ..tasks import KeyedRandom
from .problem import FRACTION, Family, Problem, asked, problem, signed

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
