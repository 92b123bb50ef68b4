"""Units of measure, speeds and rates."""

from fractions import Fraction
from typing import NamedTuple

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem
from .writing import write_decimal

UNITS = ProblemFamily("units")


class UnitPair(NamedTuple):
    """Two units of one quantity: `ratio` of the smaller one are one of the larger one."""

    larger: str
    smaller: str
    ratio: int


UNIT_PAIRS = (
    UnitPair("hours", "minutes", 60),
    UnitPair("minutes", "seconds", 60),
    UnitPair("days", "hours", 24),
    UnitPair("weeks", "days", 7),
    UnitPair("years", "months", 12),
    UnitPair("meters", "centimeters", 100),
    UnitPair("kilograms", "grams", 1000),
)


@UNITS.kind(level=1)
def ask_in_smaller_unit(rng: KeyedRandom) -> Problem:
    """Ask for an amount in a smaller unit."""
    larger, smaller, ratio = rng.choice(UNIT_PAIRS)
    amount = rng.integer(2, 99)
    question = rng.choice(
        (
            f"How many {smaller} are {amount} {larger}?",
            f"What is {amount} {larger} in {smaller}?",
        )
    )
    return make_problem(question, gold=amount * ratio, solution=f"{amount}*{ratio}")


@UNITS.kind(level=1)
def ask_in_larger_unit(rng: KeyedRandom) -> Problem:
    """Ask for an amount in a larger unit."""
    larger, smaller, ratio = rng.choice(UNIT_PAIRS)
    amount = rng.integer(2, 99)
    amount_in_smaller = amount * ratio
    question = rng.choice(
        (
            f"How many {larger} are {amount_in_smaller} {smaller}?",
            f"What is {amount_in_smaller} {smaller} in {larger}?",
        )
    )
    return make_problem(question, gold=amount, solution=f"{amount_in_smaller}//{ratio}")


@UNITS.kind(level=2)
def ask_sum_in_smaller_unit(rng: KeyedRandom) -> Problem:
    """Ask for an amount of a larger and a smaller unit in the smaller one."""
    larger, smaller, ratio = rng.choice(UNIT_PAIRS)
    amount = rng.integer(2, 60)
    more = rng.integer(2, ratio - 1)  # in the smaller unit
    question = f"How many {smaller} are {amount} {larger} and {more} {smaller}?"
    return make_problem(question, gold=amount * ratio + more, solution=f"{amount}*{ratio}+{more}")


@UNITS.kind(level=2)
def ask_remainder_in_smaller_unit(rng: KeyedRandom) -> Problem:
    """Ask how much of an amount remains after some of the smaller unit, in the smaller unit."""
    larger, smaller, ratio = rng.choice(UNIT_PAIRS)
    amount = rng.integer(2, 60)
    used = rng.integer(2, ratio)  # in the smaller unit
    question = f"How many {smaller} remain of {amount} {larger} after {used} {smaller}?"
    return make_problem(question, gold=amount * ratio - used, solution=f"{amount}*{ratio}-{used}")


@UNITS.kind(level=3)
def ask_distance_in_one_hour_more(rng: KeyedRandom) -> Problem:
    """Ask how far a car drives in one hour more than it took for a given distance."""
    speed = 4 * rng.integer(5, 30)  # kilometers per hour
    hours = rng.integer(2, 9)
    distance = speed * hours
    question = (
        f"A car drives {distance} kilometers in {hours} hours. "
        f"How many kilometers does it drive in {hours + 1} hours?"
    )
    return make_problem(
        question, gold=speed * (hours + 1), solution=f"{distance}//{hours}*{hours + 1}"
    )


@UNITS.kind(level=3)
def ask_speed_of_train(rng: KeyedRandom) -> Problem:
    """Ask for the speed of a train in kilometers per hour, given its time in minutes."""
    distance = rng.integer(2, 90)
    minutes = rng.integer(5, 200)
    question = (
        f"A train travels {distance} kilometers in {minutes} minutes. "
        "What is its speed in kilometers per hour?"
    )
    return make_problem(
        question,
        gold=Fraction(60 * distance, minutes),
        solution=f"Fraction({distance})/Fraction({minutes}, 60)",
    )


@UNITS.kind(level=4)
def ask_cost_of_painting_floor(rng: KeyedRandom) -> Problem:
    """Ask what it costs to paint a floor, measured in decimeters, at a price per square meter."""
    length = rng.integer(11, 99)
    width = rng.integer(11, 99)
    price = rng.integer(2, 12)  # dollars per square meter, which has 100 square decimeters
    question = (
        f"A floor is {length} decimeters long and {width} decimeters wide. "
        f"Paint for a square meter costs {price} dollars. "
        "How many dollars does it cost to paint the floor?"
    )
    return make_problem(
        question,
        gold=write_decimal(Fraction(length * width * price, 100)),
        solution=f"{length}*{width}*{price}/100",
    )


@UNITS.kind(level=4)
def ask_time_to_fill_tank(rng: KeyedRandom) -> Problem:
    """Ask when a tank is full from which a drain lets out water after some minutes."""
    while True:
        tank_size = 10 * rng.integer(20, 90)  # liters
        inflow = rng.integer(20, 60)  # liters per minute
        outflow = rng.integer(2, 19)  # liters per minute, always less than the inflow
        minutes_before_drain = rng.integer(2, 8)
        if inflow * minutes_before_drain < tank_size:
            break
    question = (
        f"A pump fills an empty tank of {tank_size} liters at {inflow} liters per minute. "
        f"After {minutes_before_drain} minutes a drain opens and lets out {outflow} liters "
        "per minute. How many minutes after the start is the tank full?"
    )
    empty_liters = tank_size - inflow * minutes_before_drain  # when the drain opens
    return make_problem(
        question,
        gold=minutes_before_drain + Fraction(empty_liters, inflow - outflow),
        solution=(
            f"{minutes_before_drain}"
            f"+Fraction({tank_size}-{inflow}*{minutes_before_drain}, {inflow}-{outflow})"
        ),
    )


@UNITS.kind(level=5)
def ask_average_speed_of_bus(rng: KeyedRandom) -> Problem:
    """Ask for the average speed over two stretches driven at different speeds."""
    first_distance = rng.integer(10, 200)  # kilometers
    second_distance = rng.integer(10, 200)
    first_speed = rng.integer(20, 120)  # kilometers per hour
    second_speed = rng.integer(20, 120)
    question = (
        f"A bus drives {first_distance} kilometers at {first_speed} kilometers per hour "
        f"and then {second_distance} kilometers at {second_speed} kilometers per hour. "
        "What is its average speed in meters per second?"
    )
    kilometers_per_hour = Fraction(
        (first_distance + second_distance) * first_speed * second_speed,
        first_distance * second_speed + second_distance * first_speed,
    )
    hours = (
        f"(Fraction({first_distance}, {first_speed})+Fraction({second_distance}, {second_speed}))"
    )
    return make_problem(
        question,
        gold=kilometers_per_hour * Fraction(5, 18),
        solution=f"Fraction({first_distance}+{second_distance})/{hours}*1000/3600",
    )
