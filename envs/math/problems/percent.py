"""Percentages of numbers, prices that rise and fall, and interest."""

from fractions import Fraction

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem
from .vocabulary import PEOPLE, THINGS
from .writing import write_decimal

PERCENT = ProblemFamily("percent")


@PERCENT.kind(level=1)
def ask_percentage_of_number(rng: KeyedRandom) -> Problem:
    """Ask for a percentage of a number; the answer is a whole number."""
    while True:
        percent = rng.choice((5, 10, 20, 25, 30, 40, 50, 60, 75))
        whole = 20 * rng.integer(1, 45)
        opening = rng.choice(("What is", "How much is"))
        if whole * percent % 100 == 0:
            break
    question = f"{opening} {percent}% of {whole}?"
    return make_problem(
        question, gold=whole // 20 * percent // 5, solution=f"{whole}*{percent}//100"
    )


@PERCENT.kind(level=1)
def ask_which_percentage(rng: KeyedRandom) -> Problem:
    """Ask which percentage of a number another number is."""
    while True:
        whole = rng.choice((20, 25, 50, 200, 400, 500))
        percent = rng.integer(1, 100)
        if whole * percent % 100 == 0:
            break
    part = whole * percent // 100
    question = f"What percent of {whole} is {part}?"
    return make_problem(question, gold=percent, solution=f"{part}*100//{whole}")


@PERCENT.kind(level=2)
def ask_price_after_change(rng: KeyedRandom) -> Problem:
    """Ask for a price after it fell or rose by a percentage; the answer is a whole number."""
    while True:
        percent = rng.choice((5, 10, 15, 20, 25, 30, 40, 50))
        price = 20 * rng.integer(1, 45)
        verb, sign = rng.choice((("falls", "-"), ("rises", "+")))
        if price * percent % 100 == 0:
            break
    question = f"A price of {price} dollars {verb} by {percent}%. What is the new price in dollars?"
    new_percentage = 100 + percent if sign == "+" else 100 - percent
    return make_problem(
        question,
        gold=price * new_percentage // 100,
        solution=f"{price}{sign}{price}*{percent}//100",
    )


@PERCENT.kind(level=2)
def ask_things_left_after_sale(rng: KeyedRandom) -> Problem:
    """Ask how many things are left after somebody sold a percentage of them."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    percent = 10 * rng.integer(1, 9)
    count = 10 * rng.integer(2, 60)
    question = (
        f"{person} has {count} {things} and sells {percent}% of them. How many {things} are left?"
    )
    return make_problem(
        question,
        gold=count // 10 * (10 - percent // 10),
        solution=f"{count}-{count}*{percent}//100",
    )


@PERCENT.kind(level=3)
def ask_price_after_rise_and_fall(rng: KeyedRandom) -> Problem:
    """Ask for a price after it rose by one percentage and fell by another, as a decimal."""
    price = 10 * rng.integer(5, 90)
    rise = rng.integer(2, 40)  # in percent
    fall = rng.integer(2, 40)  # in percent
    question = (
        f"A price of {price} dollars rises by {rise}% and then falls by {fall}%. "
        "What is the price in dollars at the end?"
    )
    new_price = price * Fraction(100 + rise, 100) * Fraction(100 - fall, 100)
    return make_problem(
        question,
        gold=write_decimal(new_price),
        solution=f"{price}*(100+{rise})*(100-{fall})/10000",
    )


@PERCENT.kind(level=4)
def ask_price_before_fall_and_rise(rng: KeyedRandom) -> Problem:
    """Ask for the price from which a fall and then a rise led to the price of today."""
    fall = rng.integer(5, 60)  # in percent
    rise = rng.integer(5, 60)  # in percent
    old_price = 100 * rng.integer(1, 90)
    price_after_fall = old_price // 100 * (100 - fall)
    new_price = write_decimal(price_after_fall * Fraction(100 + rise, 100))
    question = (
        f"A price falls by {fall}% and then rises by {rise}%. Now it is {new_price} dollars. "
        "What was it in dollars at first?"
    )
    return make_problem(
        question,
        gold=old_price,
        solution=f'Fraction("{new_price}")*10000/(100-{fall})/(100+{rise})',
    )


@PERCENT.kind(level=5)
def ask_compound_interest(rng: KeyedRandom) -> Problem:
    """Ask for the interest that an account has earned after two or three years, as a decimal."""
    deposit = 100 * rng.integer(1, 90)
    percent = rng.integer(2, 12)
    years = rng.integer(2, 3)
    question = (
        f"An account holds {deposit} dollars and earns {percent}% interest each year, "
        "paid into the account. "
        f"How many dollars of interest has it earned after {years} years?"
    )
    growth = Fraction(100 + percent, 100) ** years
    return make_problem(
        question,
        gold=write_decimal(deposit * (growth - 1)),
        solution=f"{deposit}*((100+{percent})**{years}-100**{years})/100**{years}",
    )
