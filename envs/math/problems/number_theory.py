"""Remainders, divisors and multiples."""

from math import gcd, lcm

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem

NUMBER_THEORY = ProblemFamily("number-theory")


@NUMBER_THEORY.kind(level=1)
def ask_remainder(rng: KeyedRandom) -> Problem:
    """Ask for the remainder of a division."""
    dividend = rng.integer(10, 99)
    divisor = rng.integer(3, 12)
    question = rng.choice(
        (
            f"What is the remainder of {dividend} divided by {divisor}?",
            f"What remains when {dividend} is divided by {divisor}?",
        )
    )
    return make_problem(question, gold=dividend % divisor, solution=f"{dividend}%{divisor}")


@NUMBER_THEORY.kind(level=1)
def ask_number_of_multiples(rng: KeyedRandom) -> Problem:
    """Ask how many multiples of a number there are up to a limit."""
    number = rng.integer(2, 15)
    limit = rng.integer(20, 99)
    question = f"How many multiples of {number} are there from 1 to {limit}?"
    multiples = range(number, limit + 1, number)
    return make_problem(question, gold=len(multiples), solution=f"{limit}//{number}")


@NUMBER_THEORY.kind(level=2)
def ask_last_digit_of_product(rng: KeyedRandom) -> Problem:
    """Ask for the last digit of a product."""
    a = rng.integer(11, 99)
    b = rng.integer(3, 99)
    question = f"What is the last digit of {a} * {b}?"
    return make_problem(question, gold=int(str(a * b)[-1]), solution=f"{a}*{b}%10")


@NUMBER_THEORY.kind(level=2)
def ask_remainder_of_sum_or_product(rng: KeyedRandom) -> Problem:
    """Ask for the remainder of a sum or of a product."""
    a = rng.integer(10, 99)
    b = rng.integer(10, 99)
    divisor = rng.integer(3, 15)
    operator = rng.choice("*+")
    question = f"What is the remainder of {a} {operator} {b} divided by {divisor}?"
    if operator == "+":
        remainder = (a % divisor + b % divisor) % divisor
        solution = f"({a}+{b})%{divisor}"
    else:
        remainder = (a % divisor) * (b % divisor) % divisor
        solution = f"{a}*{b}%{divisor}"
    return make_problem(question, gold=remainder, solution=solution)


@NUMBER_THEORY.kind(level=2)
def ask_largest_multiple(rng: KeyedRandom) -> Problem:
    """Ask for the largest multiple of a number up to a limit."""
    number = rng.integer(3, 30)
    limit = rng.integer(50, 999)
    question = f"What is the largest multiple of {number} up to {limit}?"
    return make_problem(
        question, gold=limit - limit % number, solution=f"{limit}//{number}*{number}"
    )


@NUMBER_THEORY.kind(level=3)
def ask_common_divisor_or_multiple(rng: KeyedRandom) -> Problem:
    """Ask for the greatest common divisor or the least common multiple of two numbers."""
    common_factor = rng.integer(2, 15)
    first_cofactor = rng.integer(2, 30)
    second_cofactor = rng.integer(2, 30)
    name, function = rng.choice(
        (("greatest common divisor", "gcd"), ("least common multiple", "lcm"))
    )
    first = common_factor * first_cofactor
    second = common_factor * second_cofactor
    question = f"What is the {name} of {first} and {second}?"
    compute = gcd if function == "gcd" else lcm
    return make_problem(
        question,
        gold=common_factor * compute(first_cofactor, second_cofactor),
        solution=f"{function}({first}, {second})",
    )


@NUMBER_THEORY.kind(level=4)
def ask_number_or_sum_of_divisors(rng: KeyedRandom) -> Problem:
    """Ask how many divisors a number has, or for their sum."""
    number = rng.integer(2, 20) * rng.integer(2, 20) * rng.integer(1, 6)
    asks_number_of_divisors = rng.integer(0, 1) == 1
    divisors = find_divisors(number)
    if asks_number_of_divisors:
        return make_problem(
            f"How many positive divisors does {number} have?",
            gold=len(divisors),
            solution=f"sum({number}%d==0 for d in range(1,{number}+1))",
        )
    return make_problem(
        f"What is the sum of all positive divisors of {number}?",
        gold=sum(divisors),
        solution=f"sum(d for d in range(1,{number}+1) if {number}%d==0)",
    )


@NUMBER_THEORY.kind(level=4)
def ask_remainder_of_power(rng: KeyedRandom) -> Problem:
    """Ask for the remainder of a large power."""
    base = rng.integer(2, 60)
    exponent = rng.integer(10, 400)
    divisor = rng.integer(5, 97)
    question = f"What is the remainder of {base}^{exponent} divided by {divisor}?"
    return make_problem(
        question, gold=pow(base, exponent, divisor), solution=f"{base}**{exponent}%{divisor}"
    )


@NUMBER_THEORY.kind(level=5)
def ask_number_from_two_remainders(rng: KeyedRandom) -> Problem:
    """Ask for the smallest number with given remainders for two coprime divisors."""
    while True:
        m = rng.integer(5, 30)
        n = rng.integer(7, 40)
        if gcd(m, n) == 1:
            break
    remainder_of_m = rng.integer(0, m - 1)
    remainder_of_n = rng.integer(1, n - 1)
    question = (
        f"What is the smallest positive integer that leaves remainder {remainder_of_m} "
        f"when divided by {m} and remainder {remainder_of_n} when divided by {n}?"
    )
    # Chinese remainder theorem: the number is remainder_of_m + m * steps, and modulo n that must
    # be remainder_of_n. The remainder of n is not 0, so neither is the number.
    inverse_of_m = pow(m, -1, n)
    steps = (remainder_of_n - remainder_of_m) * inverse_of_m % n
    return make_problem(
        question,
        gold=remainder_of_m + m * steps,
        solution=(
            f"next(k for k in range(1,{m}*{n}+1) "
            f"if k%{m}=={remainder_of_m} and k%{n}=={remainder_of_n})"
        ),
    )


def find_divisors(number: int) -> set[int]:
    """Return the positive divisors of a number."""
    divisors = set()
    for candidate in range(1, int(number**0.5) + 1):
        if number % candidate == 0:
            divisors |= {candidate, number // candidate}
    return divisors
