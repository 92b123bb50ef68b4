"""Short stories about people and things that end with a question."""

from fractions import Fraction

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem
from .vocabulary import CONTAINERS, PEOPLE, THINGS, draw_two_people

WORDS = ProblemFamily("words")


@WORDS.kind(level=1)
def ask_count_after_gain(rng: KeyedRandom) -> Problem:
    """Ask how many things somebody has after getting more."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    count = rng.integer(2, 99)
    gained = rng.integer(2, 99)
    verb = rng.choice(("buys", "finds", "gets"))
    question = (
        f"{person} has {count} {things} and {verb} {gained} more. "
        f"How many {things} does {person} have now?"
    )
    return make_problem(question, gold=count + gained, solution=f"{count}+{gained}")


@WORDS.kind(level=1)
def ask_count_after_loss(rng: KeyedRandom) -> Problem:
    """Ask how many things somebody has left after losing some."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    lost = rng.integer(2, 60)
    count = rng.integer(lost + 1, lost + 39)
    verb = rng.choice(("sells", "loses", "gives away"))
    question = f"{person} has {count} {things} and {verb} {lost}. How many {things} are left?"
    return make_problem(question, gold=count - lost, solution=f"{count}-{lost}")


@WORDS.kind(level=1)
def ask_count_in_containers(rng: KeyedRandom) -> Problem:
    """Ask how many things there are in equally full boxes."""
    things = rng.choice(THINGS)
    containers = rng.choice(CONTAINERS)
    container_count = rng.integer(2, 40)
    per_container = rng.integer(2, 20)
    question = (
        f"There are {container_count} {containers} of {per_container} {things}. "
        f"How many {things} are there?"
    )
    return make_problem(
        question,
        gold=container_count * per_container,
        solution=f"{container_count}*{per_container}",
    )


@WORDS.kind(level=1)
def ask_equal_share(rng: KeyedRandom) -> Problem:
    """Ask how many things each friend gets if they share them equally."""
    things = rng.choice(THINGS)
    friends = rng.integer(2, 9)
    count = friends * rng.integer(2, 99 // friends)
    question = f"{friends} friends share {count} {things} equally. How many {things} does each get?"
    return make_problem(question, gold=count // friends, solution=f"{count}//{friends}")


@WORDS.kind(level=2)
def ask_count_after_gain_and_loss(rng: KeyedRandom) -> Problem:
    """Ask how many things are left after somebody bought some and gave some away."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    count = rng.integer(2, 200)
    bought = rng.integer(2, 99)
    given_away = rng.integer(2, count + bought)
    question = (
        f"{person} has {count} {things}, buys {bought} more and gives away {given_away}. "
        f"How many {things} are left?"
    )
    return make_problem(
        question, gold=count + bought - given_away, solution=f"{count}+{bought}-{given_away}"
    )


@WORDS.kind(level=2)
def ask_count_in_containers_and_more(rng: KeyedRandom) -> Problem:
    """Ask how many things somebody has in equally full boxes and outside of them."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    containers = rng.choice(CONTAINERS)
    container_count = rng.integer(2, 40)
    per_container = rng.integer(2, 20)
    more = rng.integer(2, 60)
    question = (
        f"{person} has {container_count} {containers} of {per_container} {things} "
        f"and {more} more. How many {things} does {person} have?"
    )
    return make_problem(
        question,
        gold=container_count * per_container + more,
        solution=f"{container_count}*{per_container}+{more}",
    )


@WORDS.kind(level=2)
def ask_count_in_containers_after_sale(rng: KeyedRandom) -> Problem:
    """Ask how many things are left if some of those in equally full boxes are sold."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    containers = rng.choice(CONTAINERS)
    container_count = rng.integer(2, 40)
    per_container = rng.integer(2, 20)
    sold = rng.integer(1, container_count * per_container - 1)
    question = (
        f"{person} has {container_count} {containers} of {per_container} {things} "
        f"and sells {sold} {things}. How many {things} are left?"
    )
    return make_problem(
        question,
        gold=container_count * per_container - sold,
        solution=f"{container_count}*{per_container}-{sold}",
    )


@WORDS.kind(level=2)
def ask_money_after_purchase(rng: KeyedRandom) -> Problem:
    """Ask how many dollars are left after somebody bought several things at one price."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    bought = rng.integer(2, 9)
    price = rng.integer(2, 10)
    dollars = rng.integer(100, 300)
    question = (
        f"{person} has {dollars} dollars and buys {bought} {things} at {price} dollars each. "
        "How many dollars are left?"
    )
    return make_problem(
        question, gold=dollars - bought * price, solution=f"{dollars}-{bought}*{price}"
    )


@WORDS.kind(level=2)
def ask_equal_share_of_pool(rng: KeyedRandom) -> Problem:
    """Ask how many things each friend gets if they pool two amounts and share them."""
    things = rng.choice(THINGS)
    friends = rng.integer(2, 9)
    share = rng.integer(4, 40)
    first_amount = rng.integer(1, friends * share - 1)
    second_amount = friends * share - first_amount
    question = (
        f"{friends} friends put {first_amount} and {second_amount} {things} together "
        "and share them. How many does each get?"
    )
    return make_problem(
        question, gold=share, solution=f"({first_amount}+{second_amount})//{friends}"
    )


@WORDS.kind(level=3)
def ask_earnings_of_sale(rng: KeyedRandom) -> Problem:
    """Ask how much somebody earns who keeps a part of the things and sells the others."""
    person = rng.choice(PEOPLE)
    things = rng.choice(THINGS)
    containers = rng.choice(CONTAINERS)
    container_count = rng.integer(3, 40)
    per_container = rng.integer(3, 30)
    price = rng.integer(2, 9)
    kept = rng.integer(1, container_count * per_container - 1)
    question = (
        f"{person} fills {container_count} {containers} with {per_container} {things} each, "
        f"keeps {kept} {things} and sells the others at {price} dollars each. "
        f"How many dollars does {person} earn?"
    )
    return make_problem(
        question,
        gold=container_count * per_container * price - kept * price,
        solution=f"({container_count}*{per_container}-{kept})*{price}",
    )


@WORDS.kind(level=4)
def ask_savings_after_discounted_purchase(rng: KeyedRandom) -> Problem:
    """Ask how much somebody has left who saved for some weeks and bought a bike at a discount."""
    person = rng.choice(PEOPLE)
    weeks = rng.integer(6, 20)
    spent_weekly = rng.integer(5, 40)
    saved_weekly = rng.integer(20, 60)
    price = 10 * rng.integer(5, 12)
    discount = 10 * rng.integer(1, 5)  # in percent
    earned_weekly = spent_weekly + saved_weekly
    question = (
        f"{person} earns {earned_weekly} dollars and spends {spent_weekly} dollars each week. "
        f"After {weeks} weeks {person} buys a bike that costs {price} dollars, "
        f"with {discount}% off. How many dollars does {person} have left?"
    )
    paid_for_bike = price // 10 * (10 - discount // 10)
    return make_problem(
        question,
        gold=weeks * saved_weekly - paid_for_bike,
        solution=f"{weeks}*({earned_weekly}-{spent_weekly})-({price}-{price}*{discount}//100)",
    )


@WORDS.kind(level=4)
def ask_age_from_sum_of_ages(rng: KeyedRandom) -> Problem:
    """Ask for a future age, given the difference of two ages and their sum at another time."""
    younger, older = draw_two_people(rng)
    age_of_younger = rng.integer(4, 40)
    age_difference = rng.integer(2, 30)
    years_to_sum = rng.integer(2, 20)
    sum_of_ages = 2 * age_of_younger + age_difference + 2 * years_to_sum
    years_to_question = years_to_sum + 3
    question = (
        f"{older} is {age_difference} years older than {younger}. "
        f"In {years_to_sum} years their ages will add up to {sum_of_ages}. "
        f"How old will {younger} be {years_to_question} years from now?"
    )
    return make_problem(
        question,
        gold=age_of_younger + years_to_question,
        solution=f"({sum_of_ages}-2*{years_to_sum}-{age_difference})//2+{years_to_question}",
    )


@WORDS.kind(level=5)
def ask_time_to_paint_together(rng: KeyedRandom) -> Problem:
    """Ask how long two people with different speeds need to paint walls together."""
    first_person, second_person = draw_two_people(rng)
    hours_of_first = rng.integer(2, 12)
    hours_of_second = rng.integer(2, 12)
    walls = rng.integer(1, min(hours_of_first, hours_of_second) * 2)
    question = (
        f"{first_person} paints a wall in {hours_of_first} hours "
        f"and {second_person} paints it in {hours_of_second} hours. "
        f"They paint {walls} such walls together. How many hours do they need?"
    )
    walls_per_hour = f"(Fraction(1, {hours_of_first})+Fraction(1, {hours_of_second}))"
    return make_problem(
        question,
        gold=Fraction(hours_of_first * hours_of_second * walls, hours_of_first + hours_of_second),
        solution=f"{walls}/{walls_per_hour}",
    )
