"""Families about quantities: fractions and percentages of them, things that people have, and measures."""

from __future__ import annotations

from fractions import Fraction

from ..tasks import KeyedRandom
from .problem import BOXES, FRACTION, PEOPLE, THINGS, Family, Problem, asked, decimal, problem

# --- fractions

SHORT = (2, 4, 5, 8, 10, 20)


def _one_part(rng: KeyedRandom) -> Problem:
    q = rng.integer(2, 12)
    n = q * rng.integer(2, 40)
    return problem(f"What is 1/{q} of {n}?", n // q, f"{n}//{q}")


def _one_part_things(rng: KeyedRandom) -> Problem:
    q, who, what = rng.integer(2, 9), rng.choice(PEOPLE), rng.choice(THINGS)
    n = q * rng.integer(2, 20)
    return problem(f"{who} gives away 1/{q} of {n} {what}. How many {what} is that?", n // q, f"{n}//{q}")


def _as_decimal(rng: KeyedRandom) -> Problem:
    q = rng.choice(SHORT)
    p = q * rng.integer(0, 99 // q - 1) + rng.integer(1, q - 1)
    text = rng.choice((f"What is {p}/{q} as a decimal?", f"How do you write {p}/{q} as a decimal?"))
    return problem(text, decimal(Fraction(p, q)), f"{p}/{q}")


def _part_of(rng: KeyedRandom) -> Problem:
    q = rng.integer(3, 12)
    p, n = rng.integer(2, q - 1), q * rng.integer(2, 40)
    return problem(f"What is {p}/{q} of {n}?", n // q * p, f"{n}*{p}//{q}")


def _part_left(rng: KeyedRandom) -> Problem:
    q, who, what = rng.integer(2, 12), rng.choice(PEOPLE), rng.choice(THINGS)
    n = q * rng.integer(2, 30)
    text = f"{who} has {n} {what} and gives away 1/{q} of them. How many {what} are left?"
    return problem(text, n // q * (q - 1), f"{n}-{n}//{q}")


def _sum_as_decimal(rng: KeyedRandom) -> Problem:
    q = rng.choice(SHORT)
    a, b = rng.integer(1, 60), rng.integer(1, 60)
    b += (a + b) % q == 0
    return problem(f"What is {a}/{q} + {b}/{q} as a decimal?", decimal(Fraction(a + b, q)), f"({a}+{b})/{q}")


def _ratio(rng: KeyedRandom, high: int) -> tuple[int, int]:
    q = rng.integer(3, high)
    return rng.integer(1, q - 1), q


def _sum_of_ratios(rng: KeyedRandom) -> Problem:
    (a, b), (c, d) = _ratio(rng, 15), _ratio(rng, 15)
    gold, code = Fraction(a * d + b * c, b * d), f"Fraction({a}, {b}) + Fraction({c}, {d})"
    return asked(rng, f"{a}/{b} + {c}/{d}", gold, code, FRACTION)


def _ratio_chain(rng: KeyedRandom) -> Problem:
    (a, b), (c, d), (e, f) = _ratio(rng, 15), _ratio(rng, 15), _ratio(rng, 20)
    gold, code = Fraction(a * c, b * d) - Fraction(e, f), f"Fraction({a * c}, {b * d}) - Fraction({e}, {f})"
    return asked(rng, f"{a}/{b} * {c}/{d} - {e}/{f}", gold, code, FRACTION)


def _ratio_of_sums(rng: KeyedRandom) -> Problem:
    (a, b), (c, d), (e, f) = _ratio(rng, 15), _ratio(rng, 15), _ratio(rng, 20)
    gold = Fraction((a * d + b * c) * f, b * d * e)
    code = f"(Fraction({a}, {b}) + Fraction({c}, {d})) / Fraction({e}, {f})"
    return asked(rng, f"({a}/{b} + {c}/{d}) / ({e}/{f})", gold, code, FRACTION)


# --- percent


def _percent_of(rng: KeyedRandom) -> Problem:
    p, n = rng.choice((5, 10, 20, 25, 30, 40, 50, 60, 75)), 20 * rng.integer(1, 45)
    text = rng.choice((f"What is {p}% of {n}?", f"How much is {p}% of {n}?"))
    return problem(text, n // 20 * p // 5, f"{n}*{p}//100") if n * p % 100 == 0 else _percent_of(rng)


def _which_percent(rng: KeyedRandom) -> Problem:
    n, p = rng.choice((20, 25, 50, 200, 400, 500)), rng.integer(1, 100)
    k = Fraction(n * p, 100)
    if k.denominator != 1:
        return _which_percent(rng)
    return problem(f"What percent of {n} is {k}?", p, f"{k}*100//{n}")


def _price_change(rng: KeyedRandom) -> Problem:
    p, n, up = rng.choice((5, 10, 15, 20, 25, 30, 40, 50)), 20 * rng.integer(1, 45), rng.integer(0, 1)
    if n * p % 100:
        return _price_change(rng)
    verb, sign = ("rises", "+") if up else ("falls", "-")
    text = f"A price of {n} dollars {verb} by {p}%. What is the new price in dollars?"
    return problem(text, n * (100 + p if up else 100 - p) // 100, f"{n}{sign}{n}*{p}//100")


def _percent_left(rng: KeyedRandom) -> Problem:
    who, what, p, n = rng.choice(PEOPLE), rng.choice(THINGS), 10 * rng.integer(1, 9), 10 * rng.integer(2, 60)
    text = f"{who} has {n} {what} and sells {p}% of them. How many {what} are left?"
    return problem(text, n // 10 * (10 - p // 10), f"{n}-{n}*{p}//100")


def _two_changes(rng: KeyedRandom) -> Problem:
    n, p, q = 10 * rng.integer(5, 90), rng.integer(2, 40), rng.integer(2, 40)
    text = f"A price of {n} dollars rises by {p}% and then falls by {q}%. What is the price in dollars at the end?"
    gold = decimal(n * Fraction(100 + p, 100) * Fraction(100 - q, 100))
    return problem(text, gold, f"{n}*(100+{p})*(100-{q})/10000")


def _before_change(rng: KeyedRandom) -> Problem:
    p, q, old = rng.integer(5, 60), rng.integer(5, 60), 100 * rng.integer(1, 90)
    first = old * (100 - p) // 100
    now = decimal(first * Fraction(100 + q, 100))
    text = f"A price falls by {p}% and then rises by {q}%. Now it is {now} dollars. What was it in dollars at first?"
    return problem(text, old, f'Fraction("{now}")*10000/(100-{p})/(100+{q})', FRACTION)


def _interest(rng: KeyedRandom) -> Problem:
    n, p, years = 100 * rng.integer(1, 90), rng.integer(2, 12), rng.integer(2, 3)
    text = f"An account holds {n} dollars and earns {p}% interest each year, paid into the account. "
    text += f"How many dollars of interest has it earned after {years} years?"
    gold = n * (Fraction(100 + p, 100) ** years - 1)
    return problem(text, decimal(gold), f"{n}*((100+{p})**{years}-100**{years})/100**{years}")


FRACTIONS: Family = {
    1: (_one_part, _one_part_things, _as_decimal),
    2: (_part_of, _part_left, _sum_as_decimal),
    3: (_sum_of_ratios,),
    4: (_ratio_chain,),
    5: (_ratio_of_sums,),
}
PERCENT: Family = {
    1: (_percent_of, _which_percent),
    2: (_price_change, _percent_left),
    3: (_two_changes,),
    4: (_before_change,),
    5: (_interest,),
}


# --- words


def _gain(rng: KeyedRandom) -> Problem:
    who, what, a, b = rng.choice(PEOPLE), rng.choice(THINGS), rng.integer(2, 99), rng.integer(2, 99)
    verb = rng.choice(("buys", "finds", "gets"))
    text = f"{who} has {a} {what} and {verb} {b} more. How many {what} does {who} have now?"
    return problem(text, a + b, f"{a}+{b}")


def _loss(rng: KeyedRandom) -> Problem:
    who, what, b = rng.choice(PEOPLE), rng.choice(THINGS), rng.integer(2, 60)
    a, verb = b + rng.integer(1, 39), rng.choice(("sells", "loses", "gives away"))
    return problem(f"{who} has {a} {what} and {verb} {b}. How many {what} are left?", a - b, f"{a}-{b}")


def _packed(rng: KeyedRandom) -> Problem:
    what, box, n, k = rng.choice(THINGS), rng.choice(BOXES), rng.integer(2, 40), rng.integer(2, 20)
    return problem(f"There are {n} {box} of {k} {what}. How many {what} are there?", n * k, f"{n}*{k}")


def _shared(rng: KeyedRandom) -> Problem:
    what, n = rng.choice(THINGS), rng.integer(2, 9)
    a = n * rng.integer(2, 99 // n)
    return problem(f"{n} friends share {a} {what} equally. How many {what} does each get?", a // n, f"{a}//{n}")


def _gain_and_loss(rng: KeyedRandom) -> Problem:
    who, what, a, b = rng.choice(PEOPLE), rng.choice(THINGS), rng.integer(2, 200), rng.integer(2, 99)
    c = rng.integer(2, a + b)
    text = f"{who} has {a} {what}, buys {b} more and gives away {c}. How many {what} are left?"
    return problem(text, a + b - c, f"{a}+{b}-{c}")


def _packed_and_more(rng: KeyedRandom) -> Problem:
    who, what, box = rng.choice(PEOPLE), rng.choice(THINGS), rng.choice(BOXES)
    n, k, b = rng.integer(2, 40), rng.integer(2, 20), rng.integer(2, 60)
    text = f"{who} has {n} {box} of {k} {what} and {b} more. How many {what} does {who} have?"
    return problem(text, n * k + b, f"{n}*{k}+{b}")


def _packed_and_less(rng: KeyedRandom) -> Problem:
    who, what, box, n, k = (
        rng.choice(PEOPLE),
        rng.choice(THINGS),
        rng.choice(BOXES),
        rng.integer(2, 40),
        rng.integer(2, 20),
    )
    b = rng.integer(1, n * k - 1)
    text = f"{who} has {n} {box} of {k} {what} and sells {b} {what}. How many {what} are left?"
    return problem(text, n * k - b, f"{n}*{k}-{b}")


def _change(rng: KeyedRandom) -> Problem:
    who, what, n, k, a = (
        rng.choice(PEOPLE),
        rng.choice(THINGS),
        rng.integer(2, 9),
        rng.integer(2, 10),
        rng.integer(100, 300),
    )
    text = f"{who} has {a} dollars and buys {n} {what} at {k} dollars each. How many dollars are left?"
    return problem(text, a - n * k, f"{a}-{n}*{k}")


def _pooled(rng: KeyedRandom) -> Problem:
    what, n, each = rng.choice(THINGS), rng.integer(2, 9), rng.integer(4, 40)
    a = rng.integer(1, n * each - 1)
    text = f"{n} friends put {a} and {n * each - a} {what} together and share them. How many does each get?"
    return problem(text, each, f"({a}+{n * each - a})//{n}")


def _market(rng: KeyedRandom) -> Problem:
    who, what, box = rng.choice(PEOPLE), rng.choice(THINGS), rng.choice(BOXES)
    n, k, cost = rng.integer(3, 40), rng.integer(3, 30), rng.integer(2, 9)
    kept = rng.integer(1, n * k - 1)
    text = (
        f"{who} fills {n} {box} with {k} {what} each, keeps {kept} {what} and sells the others at {cost} dollars each. "
    )
    text += f"How many dollars does {who} earn?"
    return problem(text, n * k * cost - kept * cost, f"({n}*{k}-{kept})*{cost}")


def _savings(rng: KeyedRandom) -> Problem:
    who, weeks, spent, saved = rng.choice(PEOPLE), rng.integer(6, 20), rng.integer(5, 40), rng.integer(20, 60)
    cost, p = 10 * rng.integer(5, 12), 10 * rng.integer(1, 5)
    text = (
        f"{who} earns {spent + saved} dollars and spends {spent} dollars each week. After {weeks} weeks {who} buys a "
    )
    text += f"bike that costs {cost} dollars, with {p}% off. How many dollars does {who} have left?"
    gold = weeks * saved - cost // 10 * (10 - p // 10)
    return problem(text, gold, f"{weeks}*({spent + saved}-{spent})-({cost}-{cost}*{p}//100)")


def _together(rng: KeyedRandom) -> Problem:
    (who, other), a, b = _pair(rng), rng.integer(2, 12), rng.integer(2, 12)
    c = rng.integer(1, min(a, b) * 2)
    text = f"{who} paints a wall in {a} hours and {other} paints it in {b} hours. "
    text += f"They paint {c} such walls together. How many hours do they need?"
    return problem(text, Fraction(a * b * c, a + b), f"{c}/(Fraction(1, {a})+Fraction(1, {b}))", FRACTION)


def _ages(rng: KeyedRandom) -> Problem:
    (who, other), x, gap, later = _pair(rng), rng.integer(4, 40), rng.integer(2, 30), rng.integer(2, 20)
    total = 2 * x + gap + 2 * later
    text = f"{other} is {gap} years older than {who}. In {later} years their ages will add up to {total}. "
    text += f"How old will {who} be {later + 3} years from now?"
    return problem(text, x + later + 3, f"({total}-2*{later}-{gap})//2+{later + 3}")


def _pair(rng: KeyedRandom) -> tuple[str, str]:
    first = rng.integer(0, len(PEOPLE) - 1)
    return PEOPLE[first], PEOPLE[first - rng.integer(1, len(PEOPLE) - 1)]


# --- units

UNITS = (
    ("hours", "minutes", 60),
    ("minutes", "seconds", 60),
    ("days", "hours", 24),
    ("weeks", "days", 7),
    ("years", "months", 12),
    ("meters", "centimeters", 100),
    ("kilograms", "grams", 1000),
)


def _smaller(rng: KeyedRandom) -> Problem:
    (big, small, size), n = rng.choice(UNITS), rng.integer(2, 99)
    text = rng.choice(("How many {1} are {2} {0}?", "What is {2} {0} in {1}?"))
    return problem(text.format(big, small, n), n * size, f"{n}*{size}")


def _bigger(rng: KeyedRandom) -> Problem:
    (big, small, size), n = rng.choice(UNITS), rng.integer(2, 99)
    text = rng.choice(("How many {0} are {2} {1}?", "What is {2} {1} in {0}?"))
    return problem(text.format(big, small, n * size), n, f"{n * size}//{size}")


def _both_units(rng: KeyedRandom) -> Problem:
    (big, small, size), n = rng.choice(UNITS), rng.integer(2, 60)
    k = rng.integer(2, size - 1)
    return problem(f"How many {small} are {n} {big} and {k} {small}?", n * size + k, f"{n}*{size}+{k}")


def _rest_of_unit(rng: KeyedRandom) -> Problem:
    (big, small, size), n = rng.choice(UNITS), rng.integer(2, 60)
    k = rng.integer(2, size)
    return problem(f"How many {small} remain of {n} {big} after {k} {small}?", n * size - k, f"{n}*{size}-{k}")


def _drive(rng: KeyedRandom) -> Problem:
    v, hours = 4 * rng.integer(5, 30), rng.integer(2, 9)
    text = (
        f"A car drives {v * hours} kilometers in {hours} hours. How many kilometers does it drive in {hours + 1} hours?"
    )
    return problem(text, v * (hours + 1), f"{v * hours}//{hours}*{hours + 1}")


def _speed(rng: KeyedRandom) -> Problem:
    d, minutes = rng.integer(2, 90), rng.integer(5, 200)
    text = f"A train travels {d} kilometers in {minutes} minutes. What is its speed in kilometers per hour?"
    return problem(text, Fraction(60 * d, minutes), f"Fraction({d})/Fraction({minutes}, 60)", FRACTION)


def _area(rng: KeyedRandom) -> Problem:
    a, b, n = rng.integer(11, 99), rng.integer(11, 99), rng.integer(2, 12)
    text = f"A floor is {a} decimeters long and {b} decimeters wide. Paint for a square meter costs {n} dollars. "
    text += "How many dollars does it cost to paint the floor?"
    return problem(text, decimal(Fraction(a * b * n, 100)), f"{a}*{b}*{n}/100")


def _tank(rng: KeyedRandom) -> Problem:
    litres, fill, drain, minutes = 10 * rng.integer(20, 90), rng.integer(20, 60), rng.integer(2, 19), rng.integer(2, 8)
    text = (
        f"A pump fills an empty tank of {litres} liters at {fill} liters per minute. After {minutes} minutes a drain "
    )
    text += f"opens and lets out {drain} liters per minute. How many minutes after the start is the tank full?"
    if fill * minutes >= litres:
        return _tank(rng)
    gold = minutes + Fraction(litres - fill * minutes, fill - drain)
    return problem(text, gold, f"{minutes}+Fraction({litres}-{fill}*{minutes}, {fill}-{drain})", FRACTION)


def _two_legs(rng: KeyedRandom) -> Problem:
    a, b, u, v = rng.integer(10, 200), rng.integer(10, 200), rng.integer(20, 120), rng.integer(20, 120)
    text = (
        f"A bus drives {a} kilometers at {u} kilometers per hour and then {b} kilometers at {v} kilometers per hour. "
    )
    text += "What is its average speed in meters per second?"
    gold = Fraction((a + b) * u * v, a * v + b * u) * Fraction(5, 18)
    return problem(text, gold, f"Fraction({a}+{b})/(Fraction({a}, {u})+Fraction({b}, {v}))*1000/3600", FRACTION)


WORDS: Family = {
    1: (_gain, _loss, _packed, _shared),
    2: (_gain_and_loss, _packed_and_more, _packed_and_less, _change, _pooled),
    3: (_market,),
    4: (_savings, _ages),
    5: (_together,),
}
UNITS_FAMILY: Family = {
    1: (_smaller, _bigger),
    2: (_both_units, _rest_of_unit),
    3: (_drive, _speed),
    4: (_area, _tank),
    5: (_two_legs,),
}
