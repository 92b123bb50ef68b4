"""Linear equations of one unknown, x."""

from fractions import Fraction

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem, phrase_solve_question
from .writing import linear_expression, signed_term

LINEAR = ProblemFamily("linear")


@LINEAR.kind(level=1)
def ask_x_of_sum(rng: KeyedRandom) -> Problem:
    """Ask for the x of x + b = c."""
    x = rng.integer(1, 60)
    b = rng.integer(2, 39)
    c = x + b
    question = phrase_solve_question(rng, f"x + {b} = {c}")
    return make_problem(question, gold=x, solution=f"{c}-{b}")


@LINEAR.kind(level=1)
def ask_x_of_difference(rng: KeyedRandom) -> Problem:
    """Ask for the x of x - b = c."""
    x = rng.integer(1, 60)
    b = rng.integer(2, 39)
    c = x - b
    question = phrase_solve_question(rng, f"x - {b} = {c}")
    return make_problem(question, gold=x, solution=f"{c}+{b}")


@LINEAR.kind(level=1)
def ask_x_of_multiple(rng: KeyedRandom) -> Problem:
    """Ask for the x of ax = c."""
    a = rng.integer(2, 9)
    x = rng.integer(2, 99 // a)
    c = a * x
    question = phrase_solve_question(rng, f"{a}x = {c}")
    return make_problem(question, gold=x, solution=f"{c}//{a}")


@LINEAR.kind(level=2)
def ask_x_of_multiple_and_term(rng: KeyedRandom) -> Problem:
    """Ask for the x of ax + b = c or ax - b = c."""
    a = rng.integer(2, 12)
    x = rng.integer(1, 30)
    b = rng.integer(2, 60)
    sign, inverse_sign = rng.choice((("-", "+"), ("+", "-")))
    c = a * x + b if sign == "+" else a * x - b
    question = phrase_solve_question(rng, f"{a}x {sign} {b} = {c}")
    return make_problem(question, gold=x, solution=f"({c}{inverse_sign}{b})//{a}")


@LINEAR.kind(level=2)
def ask_x_of_quotient_and_term(rng: KeyedRandom) -> Problem:
    """Ask for the x of x/a + b = c."""
    a = rng.integer(2, 12)
    quotient = rng.integer(1, 30)
    b = rng.integer(2, 60)
    c = quotient + b
    question = phrase_solve_question(rng, f"x/{a} + {b} = {c}")
    return make_problem(question, gold=a * quotient, solution=f"({c}-{b})*{a}")


@LINEAR.kind(level=2)
def ask_x_inside_brackets(rng: KeyedRandom) -> Problem:
    """Ask for the x of a(x + b) = c."""
    a = rng.integer(2, 12)
    x = rng.integer(1, 30)
    b = rng.integer(2, 20)
    c = a * (x + b)
    question = phrase_solve_question(rng, f"{a}(x + {b}) = {c}")
    return make_problem(question, gold=x, solution=f"{c}//{a}-{b}")


@LINEAR.kind(level=3)
def ask_x_on_both_sides(rng: KeyedRandom) -> Problem:
    """Ask for the x of ax + b = cx + d, which is a whole number."""
    while True:
        a = rng.integer(2, 20)
        c = rng.nonzero(12)
        x = rng.nonzero(30)
        b = rng.nonzero(60)
        if a != c:
            break
    d = (a - c) * x + b
    question = phrase_solve_question(rng, f"{linear_expression(a, b)} = {linear_expression(c, d)}")
    solution = f"({d} - {b})//({a} - {c})".replace("- -", "+ ")
    return make_problem(question, gold=x, solution=solution)


@LINEAR.kind(level=4)
def ask_x_inside_brackets_on_both_sides(rng: KeyedRandom) -> Problem:
    """Ask for the x of a(x + b) = c(x + d) + e, as a fraction."""
    while True:
        a = rng.integer(2, 12)
        b = rng.nonzero(20)
        c = rng.integer(2, 12)
        d = rng.nonzero(20)
        e = rng.nonzero(40)
        if a != c:
            break
    question = phrase_solve_question(
        rng, f"{a}(x{signed_term(b)}) = {c}(x{signed_term(d)}){signed_term(e)}"
    )
    numerator = f"{c}*{d}+{e}-{a}*{b}".replace("+-", "-").replace("--", "+")
    return make_problem(
        question,
        gold=Fraction(c * d + e - a * b, a - c),
        solution=f"Fraction({numerator}, {a}-{c})",
    )


@LINEAR.kind(level=5)
def ask_x_inside_quotients_on_both_sides(rng: KeyedRandom) -> Problem:
    """Ask for the x of (x + b)/a = (x + d)/c + e, as a fraction."""
    while True:
        a = rng.integer(2, 9)
        b = rng.nonzero(20)
        c = rng.integer(2, 9)
        d = rng.nonzero(20)
        e = rng.nonzero(12)
        if a != c:
            break
    left = f"(x{signed_term(b)})"
    right = f"(x{signed_term(d)})"
    question = phrase_solve_question(rng, f"{left}/{a} = {right}/{c}{signed_term(e)}")
    solution = (
        f"# multiply both sides by {a}*{c}: {c}{left} = {a}{right}{signed_term(e * a * c)}\n"
        f"print(Fraction({a}*({d})+({e})*{a}*{c}-{c}*({b}), {c}-{a}))"
    )
    return make_problem(
        question,
        gold=(Fraction(d, c) + e - Fraction(b, a)) / (Fraction(1, a) - Fraction(1, c)),
        solution=solution,
    )
