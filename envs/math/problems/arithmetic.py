"""Expressions of whole numbers whose value is asked."""

from fractions import Fraction
from typing import NamedTuple

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem, phrase_value_question

ARITHMETIC = ProblemFamily("arithmetic")


@ARITHMETIC.kind(level=1)
def ask_small_sum(rng: KeyedRandom) -> Problem:
    """Ask for a + b, both below 100."""
    a = rng.integer(2, 99)
    b = rng.integer(2, 99)
    question = phrase_value_question(rng, f"{a} + {b}")
    return make_problem(question, gold=a + b, solution=f"{a}+{b}")


@ARITHMETIC.kind(level=1)
def ask_small_difference(rng: KeyedRandom) -> Problem:
    """Ask for a - b, both below 100; the answer can be negative."""
    a = rng.integer(2, 99)
    b = rng.integer(2, 99)
    question = phrase_value_question(rng, f"{a} - {b}")
    return make_problem(question, gold=a - b, solution=f"{a}-{b}")


@ARITHMETIC.kind(level=1)
def ask_small_product(rng: KeyedRandom) -> Problem:
    """Ask for a * b, where b is at most 12."""
    a = rng.integer(2, 99)
    b = rng.integer(2, 12)
    question = phrase_value_question(rng, f"{a} * {b}")
    return make_problem(question, gold=a * b, solution=f"{a}*{b}")


@ARITHMETIC.kind(level=1)
def ask_whole_quotient(rng: KeyedRandom) -> Problem:
    """Ask for a quotient that is a whole number, of a dividend below 100."""
    divisor = rng.integer(2, 9)
    quotient = rng.integer(2, 99 // divisor)
    dividend = quotient * divisor
    question = phrase_value_question(rng, f"{dividend} / {divisor}")
    return make_problem(question, gold=quotient, solution=f"{dividend}//{divisor}")


@ARITHMETIC.kind(level=2)
def ask_sum_or_difference(rng: KeyedRandom) -> Problem:
    """Ask for a + b or a - b, both of up to three digits."""
    a = rng.integer(100, 999)
    b = rng.integer(11, 999)
    sign = rng.choice("-+")
    question = phrase_value_question(rng, f"{a} {sign} {b}")
    value = a + b if sign == "+" else a - b
    return make_problem(question, gold=value, solution=f"{a}{sign}{b}")


@ARITHMETIC.kind(level=2)
def ask_product(rng: KeyedRandom) -> Problem:
    """Ask for a * b, where a has three digits."""
    a = rng.integer(100, 999)
    b = rng.integer(3, 99)
    question = phrase_value_question(rng, f"{a} * {b}")
    return make_problem(question, gold=a * b, solution=f"{a}*{b}")


@ARITHMETIC.kind(level=2)
def ask_product_and_term(rng: KeyedRandom) -> Problem:
    """Ask for a * b + c or a * b - c."""
    a = rng.integer(2, 99)
    b = rng.integer(2, 99)
    c = rng.integer(2, 99)
    sign = rng.choice("-+")
    question = phrase_value_question(rng, f"{a} * {b} {sign} {c}")
    value = a * b + c if sign == "+" else a * b - c
    return make_problem(question, gold=value, solution=f"{a}*{b}{sign}{c}")


@ARITHMETIC.kind(level=2)
def ask_product_with_brackets(rng: KeyedRandom) -> Problem:
    """Ask for (a + b) * c or (a - b) * c."""
    a = rng.integer(2, 99)
    b = rng.integer(2, 99)
    c = rng.integer(2, 20)
    sign = rng.choice("+-")
    question = phrase_value_question(rng, f"({a} {sign} {b}) * {c}")
    value = (a + b) * c if sign == "+" else (a - b) * c
    return make_problem(question, gold=value, solution=f"({a}{sign}{b})*{c}")


@ARITHMETIC.kind(level=3)
def ask_nested_expression(rng: KeyedRandom) -> Problem:
    """Ask for the value of a random expression of four numbers."""
    expression = draw_expression(rng, numbers=4, largest=40)
    question = phrase_value_question(rng, expression.text)
    return make_problem(question, gold=expression.value, solution=expression.text.replace(" ", ""))


@ARITHMETIC.kind(level=4)
def ask_nested_expression_and_cube(rng: KeyedRandom) -> Problem:
    """Ask for the value of a random expression of five numbers plus a cube."""
    expression = draw_expression(rng, numbers=5, largest=60)
    base = rng.integer(3, 15)
    question = phrase_value_question(rng, f"{expression.text} + {base}^3")
    return make_problem(
        question, gold=expression.value + base**3, solution=f"{expression.text}+{base}**3"
    )


@ARITHMETIC.kind(level=5)
def ask_quotient_of_expressions(rng: KeyedRandom) -> Problem:
    """Ask for the quotient of two random expressions of three numbers each, as a fraction."""
    dividend = draw_expression(rng, numbers=3, largest=60)
    divisor = draw_expression(rng, numbers=3, largest=30)
    if divisor.value == 0:
        divisor = DrawnExpression(f"{divisor.text} + 7", value=7, is_sum=True)
    question = phrase_value_question(rng, f"{bracket_if_sum(dividend)} / ({divisor.text})")
    return make_problem(
        question,
        gold=Fraction(dividend.value, divisor.value),
        solution=f"Fraction({dividend.text}, {divisor.text})",
    )


class DrawnExpression(NamedTuple):
    """A random expression of whole numbers.

    Args:
        text: As it is written, such as `"(3 + 4) * 5"`.
        value: What it evaluates to.
        is_sum: Whether its last operation is + or -, so that it needs brackets inside a product.
    """

    text: str
    value: int
    is_sum: bool


def draw_expression(rng: KeyedRandom, numbers: int, largest: int) -> DrawnExpression:
    """Draw an expression with the operations +, - and *.

    Args:
        rng: Where the numbers and operations are drawn.
        numbers: How many numbers the expression has.
        largest: The largest of them; the smallest is 2.
    """
    if numbers == 1:
        number = rng.integer(2, largest)
        return DrawnExpression(str(number), number, is_sum=False)
    numbers_on_left = rng.integer(1, numbers - 1)
    left = draw_expression(rng, numbers_on_left, largest)
    right = draw_expression(rng, numbers - numbers_on_left, largest)
    operator = rng.choice("+-*")
    if operator == "*":
        text = f"{bracket_if_sum(left)} * {bracket_if_sum(right)}"
        return DrawnExpression(text, left.value * right.value, is_sum=False)
    # Without brackets `a - (b + c)` would lose a sign; those of `a + (b + c)` do no harm.
    text = f"{left.text} {operator} {bracket_if_sum(right)}"
    value = left.value + right.value if operator == "+" else left.value - right.value
    return DrawnExpression(text, value, is_sum=True)


def bracket_if_sum(expression: DrawnExpression) -> str:
    """Write an expression as an operand: a sum or difference in brackets, a product without."""
    return f"({expression.text})" if expression.is_sum else expression.text
