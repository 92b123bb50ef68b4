"""Parts of whole numbers, decimals, and expressions of fractions."""

from fractions import Fraction

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem, phrase_value_question
from .vocabulary import PEOPLE, THINGS
from .writing import write_decimal

FRACTIONS = ProblemFamily("fractions")

SHORT_DENOMINATORS = (2, 4, 5, 8, 10, 20)
"""Denominators of fractions whose decimals are finite and short."""


@FRACTIONS.kind(level=1)
def ask_unit_fraction_of_number(rng: KeyedRandom) -> Problem:
    """Ask for 1/q of a number that q divides."""
    denominator = rng.integer(2, 12)
    whole = denominator * rng.integer(2, 40)
    question = f"What is 1/{denominator} of {whole}?"
    return make_problem(question, gold=whole // denominator, solution=f"{whole}//{denominator}")


@FRACTIONS.kind(level=1)
def ask_unit_fraction_of_things(rng: KeyedRandom) -> Problem:
    """Ask how many things somebody gives away who gives away 1/q of them."""
    denominator = rng.integer(2, 9)
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    count = denominator * rng.integer(2, 20)
    question = (
        f"{person} gives away 1/{denominator} of {count} {things}. How many {things} is that?"
    )
    return make_problem(question, gold=count // denominator, solution=f"{count}//{denominator}")


@FRACTIONS.kind(level=1)
def ask_fraction_as_decimal(rng: KeyedRandom) -> Problem:
    """Ask for a fraction as a decimal; it is no whole number."""
    denominator = rng.choice(SHORT_DENOMINATORS)
    whole_part = rng.integer(0, 99 // denominator - 1)
    numerator = denominator * whole_part + rng.integer(1, denominator - 1)
    question = rng.choice(
        (
            f"What is {numerator}/{denominator} as a decimal?",
            f"How do you write {numerator}/{denominator} as a decimal?",
        )
    )
    return make_problem(
        question,
        gold=write_decimal(Fraction(numerator, denominator)),
        solution=f"{numerator}/{denominator}",
    )


@FRACTIONS.kind(level=2)
def ask_fraction_of_number(rng: KeyedRandom) -> Problem:
    """Ask for p/q of a number that q divides."""
    denominator = rng.integer(3, 12)
    numerator = rng.integer(2, denominator - 1)
    whole = denominator * rng.integer(2, 40)
    question = f"What is {numerator}/{denominator} of {whole}?"
    return make_problem(
        question,
        gold=whole // denominator * numerator,
        solution=f"{whole}*{numerator}//{denominator}",
    )


@FRACTIONS.kind(level=2)
def ask_things_left_after_fraction(rng: KeyedRandom) -> Problem:
    """Ask how many things are left after somebody gave away 1/q of them."""
    denominator = rng.integer(2, 12)
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    count = denominator * rng.integer(2, 30)
    question = (
        f"{person} has {count} {things} and gives away 1/{denominator} of them. "
        f"How many {things} are left?"
    )
    return make_problem(
        question,
        gold=count // denominator * (denominator - 1),
        solution=f"{count}-{count}//{denominator}",
    )


@FRACTIONS.kind(level=2)
def ask_sum_as_decimal(rng: KeyedRandom) -> Problem:
    """Ask for the sum of two fractions of one denominator as a decimal; it is no whole number."""
    denominator = rng.choice(SHORT_DENOMINATORS)
    first = rng.integer(1, 60)
    second = rng.integer(1, 60)
    if (first + second) % denominator == 0:
        second += 1
    question = f"What is {first}/{denominator} + {second}/{denominator} as a decimal?"
    return make_problem(
        question,
        gold=write_decimal(Fraction(first + second, denominator)),
        solution=f"({first}+{second})/{denominator}",
    )


@FRACTIONS.kind(level=3)
def ask_sum_of_fractions(rng: KeyedRandom) -> Problem:
    """Ask for a/b + c/d."""
    a, b = draw_proper_fraction(rng, largest_denominator=15)
    c, d = draw_proper_fraction(rng, largest_denominator=15)
    question = phrase_value_question(rng, f"{a}/{b} + {c}/{d}")
    return make_problem(
        question,
        gold=Fraction(a * d + b * c, b * d),
        solution=f"Fraction({a}, {b}) + Fraction({c}, {d})",
    )


@FRACTIONS.kind(level=4)
def ask_product_minus_fraction(rng: KeyedRandom) -> Problem:
    """Ask for a/b * c/d - e/f."""
    a, b = draw_proper_fraction(rng, largest_denominator=15)
    c, d = draw_proper_fraction(rng, largest_denominator=15)
    e, f = draw_proper_fraction(rng, largest_denominator=20)
    question = phrase_value_question(rng, f"{a}/{b} * {c}/{d} - {e}/{f}")
    return make_problem(
        question,
        gold=Fraction(a * c, b * d) - Fraction(e, f),
        solution=f"Fraction({a * c}, {b * d}) - Fraction({e}, {f})",
    )


@FRACTIONS.kind(level=5)
def ask_sum_divided_by_fraction(rng: KeyedRandom) -> Problem:
    """Ask for (a/b + c/d) / (e/f)."""
    a, b = draw_proper_fraction(rng, largest_denominator=15)
    c, d = draw_proper_fraction(rng, largest_denominator=15)
    e, f = draw_proper_fraction(rng, largest_denominator=20)
    question = phrase_value_question(rng, f"({a}/{b} + {c}/{d}) / ({e}/{f})")
    return make_problem(
        question,
        gold=Fraction((a * d + b * c) * f, b * d * e),
        solution=f"(Fraction({a}, {b}) + Fraction({c}, {d})) / Fraction({e}, {f})",
    )


def draw_proper_fraction(rng: KeyedRandom, *, largest_denominator: int) -> tuple[int, int]:
    """Draw the numerator and denominator of a fraction between 0 and 1, not always reduced.

    The denominator is from 3 to `largest_denominator`.
    """
    denominator = rng.integer(3, largest_denominator)
    numerator = rng.integer(1, denominator - 1)
    return numerator, denominator
