"""Sums of two or three numbers: the easiest problems, with which a small model can be trained."""

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem, phrase_value_question

SUMS = ProblemFamily("sums")


@SUMS.kind(level=1)
def ask_sum_to_40(rng: KeyedRandom) -> Problem:
    """Ask for the sum of two numbers up to 20."""
    return ask_sum(rng, count=2, smallest=1, largest=20)


@SUMS.kind(level=2)
def ask_sum_of_two_digits(rng: KeyedRandom) -> Problem:
    """Ask for the sum of two numbers of two digits."""
    return ask_sum(rng, count=2, smallest=10, largest=99)


@SUMS.kind(level=3)
def ask_triple_sum_of_two_digits(rng: KeyedRandom) -> Problem:
    """Ask for the sum of three numbers of two digits."""
    return ask_sum(rng, count=3, smallest=10, largest=99)


@SUMS.kind(level=4)
def ask_sum_of_three_digits(rng: KeyedRandom) -> Problem:
    """Ask for the sum of two numbers of three digits."""
    return ask_sum(rng, count=2, smallest=100, largest=999)


@SUMS.kind(level=5)
def ask_triple_sum_of_three_digits(rng: KeyedRandom) -> Problem:
    """Ask for the sum of three numbers of three digits."""
    return ask_sum(rng, count=3, smallest=100, largest=999)


def ask_sum(rng: KeyedRandom, *, count: int, smallest: int, largest: int) -> Problem:
    """Ask for the sum of `count` numbers from `smallest` to `largest`."""
    numbers = [rng.integer(smallest, largest) for _ in range(count)]
    terms = [str(number) for number in numbers]
    question = phrase_value_question(rng, " + ".join(terms))
    return make_problem(question, gold=sum(numbers), solution="+".join(terms))
