"""Arithmetic, geometric and other sequences."""

from fractions import Fraction

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem
from .writing import signed_term

SEQUENCES = ProblemFamily("sequences")


@SEQUENCES.kind(level=1)
def ask_term_after_step(rng: KeyedRandom) -> Problem:
    """Ask for the next term of a sequence with a constant difference."""
    term = rng.integer(10, 99)
    difference = rng.integer(2, 40)
    comparison, sign = rng.choice((("less", "-"), ("more", "+")))
    question = (
        f"Each term is {difference} {comparison} than the one before. Which term follows {term}?"
    )
    next_term = term + difference if sign == "+" else term - difference
    return make_problem(question, gold=next_term, solution=f"{term}{sign}{difference}")


@SEQUENCES.kind(level=1)
def ask_term_after_multiplication(rng: KeyedRandom) -> Problem:
    """Ask for the next term of a sequence with a constant ratio."""
    term = rng.integer(2, 99)
    ratio = rng.integer(2, 9)
    question = f"Each term is {ratio} times the one before. Which term follows {term}?"
    return make_problem(question, gold=term * ratio, solution=f"{term}*{ratio}")


@SEQUENCES.kind(level=2)
def ask_next_of_arithmetic_sequence(rng: KeyedRandom) -> Problem:
    """Ask for the term that follows three terms with a constant difference; none is negative."""
    while True:
        first = rng.integer(1, 60)
        difference = rng.nonzero(15)
        second = first + difference
        third = second + difference
        if third >= 0:
            break
    question = rng.choice(
        (
            f"Which number comes next: {first}, {second}, {third}?",
            f"What is the next term of {first}, {second}, {third}?",
        )
    )
    return make_problem(question, gold=third + difference, solution=f"{third}+{second}-{first}")


@SEQUENCES.kind(level=2)
def ask_next_of_geometric_sequence(rng: KeyedRandom) -> Problem:
    """Ask for the term that follows three terms with a constant ratio."""
    first = rng.integer(1, 40)
    ratio = rng.integer(2, 6)
    second = first * ratio
    third = second * ratio
    question = (
        f"Each term is {ratio} times the one before: {first}, {second}, {third}. What comes next?"
    )
    return make_problem(question, gold=third * ratio, solution=f"{third}*{ratio}")


@SEQUENCES.kind(level=2)
def ask_term_of_arithmetic_sequence(rng: KeyedRandom) -> Problem:
    """Ask for term n of a sequence with a constant difference."""
    first = rng.integer(1, 60)
    difference = rng.integer(2, 20)
    n = rng.integer(5, 60)
    question = (
        f"The first term is {first} and each term is {difference} more than the one before. "
        f"What is term {n}?"
    )
    terms = range(first, first + n * difference, difference)
    return make_problem(question, gold=terms[-1], solution=f"{first}+({n}-1)*{difference}")


@SEQUENCES.kind(level=3)
def ask_sum_of_arithmetic_sequence(rng: KeyedRandom) -> Problem:
    """Ask for the sum of the first n terms of a sequence with a constant difference."""
    first = rng.integer(1, 60)
    difference = rng.integer(2, 20)
    n = rng.integer(6, 60)
    question = (
        f"A sequence starts at {first} and each term is {difference} more than the one before. "
        f"What is the sum of its first {n} terms?"
    )
    return make_problem(
        question,
        gold=n * first + difference * n * (n - 1) // 2,
        solution=f"sum({first}+{difference}*k for k in range({n}))",
    )


@SEQUENCES.kind(level=4)
def ask_term_of_affine_recursion(rng: KeyedRandom) -> Problem:
    """Ask for term n if each term is a multiple of the one before plus or minus a number."""
    first = rng.integer(1, 20)
    factor = rng.integer(2, 4)
    addend = rng.nonzero(20)
    n = rng.integer(4, 8)
    plus_or_minus = "plus" if addend > 0 else "minus"
    question = (
        f"A sequence starts at {first}. Each next term is {factor} times the one before "
        f"{plus_or_minus} {abs(addend)}. What is term {n}?"
    )
    growth = factor ** (n - 1)
    solution = (
        f"x = {first}\nfor _ in range({n} - 1):\n    x = {factor}*x{signed_term(addend)}\nprint(x)"
    )
    return make_problem(
        question,
        gold=first * growth + addend * (growth - 1) // (factor - 1),
        solution=solution,
    )


@SEQUENCES.kind(level=5)
def ask_term_of_second_order_recursion(rng: KeyedRandom) -> Problem:
    """Ask for term n if each term is a weighted sum of the two before it."""
    first = rng.integer(1, 9)
    second = rng.integer(1, 9)
    p = rng.integer(1, 3)  # weight of the term just before
    q = rng.nonzero(3)  # weight of the term two before
    n = rng.integer(6, 12)
    question = (
        f"A sequence starts with {first} and {second}. Each later term is {p} times the one "
        f"before it plus {q} times the one two before it. What is term {n}?"
    )
    solution = (
        f"x, y = {first}, {second}\n"
        f"for _ in range({n} - 2):\n"
        f"    x, y = y, {p}*y + ({q})*x\n"
        "print(y)"
    )
    terms = [first, second]
    while len(terms) < n:
        terms.append(p * terms[-1] + q * terms[-2])
    return make_problem(question, gold=terms[-1], solution=solution)


@SEQUENCES.kind(level=5)
def ask_sum_of_geometric_sequence(rng: KeyedRandom) -> Problem:
    """Ask for the sum of the first n terms of a sequence whose ratio p/q is below 1."""
    first = rng.integer(1, 30)
    q = rng.integer(2, 6)
    n = rng.integer(3, 6)
    p = rng.integer(1, q - 1)
    question = (
        f"The first term of a sequence is {first} and each next term is {p}/{q} of the one "
        f"before. What is the sum of the first {n} terms?"
    )
    ratio = Fraction(p, q)
    return make_problem(
        question,
        gold=first * (1 - ratio**n) / (1 - ratio),
        solution=f"sum({first}*Fraction({p}, {q})**k for k in range({n}))",
    )
