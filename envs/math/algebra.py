"""Families about unknowns: linear equations and systems of them."""

from __future__ import annotations

from fractions import Fraction

from ..tasks import KeyedRandom
from .problem import FRACTION, Family, Problem, problem, signed

SOLVE = ("{}. What is x?", "If {}, what is x?", "For which x is {}?")


def _side(a: int, b: int, symbol: str = "x") -> str:
    """Return `ax + b`."""
    return f"{'' if a == 1 else '-' if a == -1 else a}{symbol}{signed(b)}"


# --- linear


def _x_plus(rng: KeyedRandom) -> Problem:
    x, b = rng.integer(1, 60), rng.integer(2, 39)
    return problem(rng.choice(SOLVE).format(f"x + {b} = {x + b}"), x, f"{x + b}-{b}")


def _x_minus(rng: KeyedRandom) -> Problem:
    x, b = rng.integer(1, 60), rng.integer(2, 39)
    return problem(rng.choice(SOLVE).format(f"x - {b} = {x - b}"), x, f"{x - b}+{b}")


def _times_x(rng: KeyedRandom) -> Problem:
    a = rng.integer(2, 9)
    x = rng.integer(2, 99 // a)
    return problem(rng.choice(SOLVE).format(f"{a}x = {a * x}"), x, f"{a * x}//{a}")


def _times_x_plus(rng: KeyedRandom) -> Problem:
    a, x, b = rng.integer(2, 12), rng.integer(1, 30), rng.integer(2, 60)
    if rng.integer(0, 1):
        return problem(rng.choice(SOLVE).format(f"{a}x + {b} = {a * x + b}"), x, f"({a * x + b}-{b})//{a}")
    return problem(rng.choice(SOLVE).format(f"{a}x - {b} = {a * x - b}"), x, f"({a * x - b}+{b})//{a}")


def _part_of_x(rng: KeyedRandom) -> Problem:
    a, y, b = rng.integer(2, 12), rng.integer(1, 30), rng.integer(2, 60)
    return problem(rng.choice(SOLVE).format(f"x/{a} + {b} = {y + b}"), a * y, f"({y + b}-{b})*{a}")


def _times_bracket(rng: KeyedRandom) -> Problem:
    a, x, b = rng.integer(2, 12), rng.integer(1, 30), rng.integer(2, 20)
    return problem(rng.choice(SOLVE).format(f"{a}(x + {b}) = {a * (x + b)}"), x, f"{a * (x + b)}//{a}-{b}")


def _both_sides(rng: KeyedRandom) -> Problem:
    a, c, x, b = rng.integer(2, 20), rng.nonzero(12), rng.nonzero(30), rng.nonzero(60)
    if a == c:
        return _both_sides(rng)
    d = (a - c) * x + b
    text = rng.choice(SOLVE).format(f"{_side(a, b)} = {_side(c, d)}")
    return problem(text, x, f"({d} - {b})//({a} - {c})".replace("- -", "+ "))


def _brackets(rng: KeyedRandom) -> Problem:
    a, b, c, d, e = rng.integer(2, 12), rng.nonzero(20), rng.integer(2, 12), rng.nonzero(20), rng.nonzero(40)
    if a == c:
        return _brackets(rng)
    text = rng.choice(SOLVE).format(f"{a}(x{signed(b)}) = {c}(x{signed(d)}){signed(e)}")
    gold = Fraction(c * d + e - a * b, a - c)
    return problem(
        text, gold, f"Fraction({c}*{d}+{e}-{a}*{b}, {a}-{c})".replace("+-", "-").replace("--", "+"), FRACTION
    )


def _quotients(rng: KeyedRandom) -> Problem:
    a, b, c, d, e = rng.integer(2, 9), rng.nonzero(20), rng.integer(2, 9), rng.nonzero(20), rng.nonzero(12)
    if a == c:
        return _quotients(rng)
    text = rng.choice(SOLVE).format(f"(x{signed(b)})/{a} = (x{signed(d)})/{c}{signed(e)}")
    gold = (Fraction(d, c) + e - Fraction(b, a)) / (Fraction(1, a) - Fraction(1, c))
    setup = f"{FRACTION}# multiply both sides by {a}*{c}: {c}(x{signed(b)}) = {a}(x{signed(d)}){signed(e * a * c)}\n"
    return problem(text, gold, f"Fraction({a}*({d})+({e})*{a}*{c}-{c}*({b}), {c}-{a})", setup)


# --- systems


def _sum_and_y(rng: KeyedRandom) -> Problem:
    x, y = rng.integer(1, 60), rng.integer(1, 39)
    return problem(f"x + y = {x + y} and y = {y}. What is x?", x, f"{x + y}-{y}")


def _difference_and_y(rng: KeyedRandom) -> Problem:
    x, y = rng.integer(1, 60), rng.integer(1, 39)
    return problem(f"x - y = {x - y} and y = {y}. What is x?", x, f"{x - y}+{y}")


def _multiple_and_y(rng: KeyedRandom) -> Problem:
    a, y = rng.integer(2, 9), rng.integer(2, 60)
    return problem(f"x = {a}y and y = {y}. What is x?", a * y, f"{a}*{y}")


def _sum_and_difference(rng: KeyedRandom) -> Problem:
    x, y = rng.integer(1, 60), rng.integer(1, 60)
    x, y = max(x, y), min(x, y)
    if rng.integer(0, 1):
        return problem(f"x + y = {x + y} and x - y = {x - y}. What is x?", x, f"({x + y}+{x - y})//2")
    return problem(f"x + y = {x + y} and x - y = {x - y}. What is y?", y, f"({x + y}-{x - y})//2")


def _sum_and_multiple(rng: KeyedRandom) -> Problem:
    a, y = rng.integer(2, 9), rng.integer(2, 60)
    return problem(f"x = {a}y and x + y = {a * y + y}. What is y?", y, f"{a * y + y}//({a}+1)")


def _line_and_y(rng: KeyedRandom) -> Problem:
    a, x, y = rng.integer(2, 12), rng.integer(1, 30), rng.integer(1, 30)
    return problem(f"{a}x + y = {a * x + y} and y = {y}. What is x?", x, f"({a * x + y}-{y})//{a}")


def _two_lines(rng: KeyedRandom, x: Fraction, y: Fraction) -> Problem:
    a, b, d, e = rng.integer(2, 12), rng.nonzero(12), rng.integer(2, 12), rng.nonzero(12)
    c, f = a * x + b * y, d * x + e * y
    if a * e == b * d or c.denominator > 1 or f.denominator > 1:
        return _two_lines(rng, x, y)
    text = f"{a}x{signed(b, 'y')} = {c} and {d}x{signed(e, 'y')} = {f}. What is x?"
    return problem(text, x, f"Fraction({c}*({e})-({b})*({f}), {a}*({e})-({b})*{d})", FRACTION)


def _whole_crossing(rng: KeyedRandom) -> Problem:
    return _two_lines(rng, Fraction(rng.nonzero(20)), Fraction(rng.nonzero(20)))


def _crossing(rng: KeyedRandom) -> Problem:
    q = rng.integer(2, 4)
    return _two_lines(rng, Fraction(rng.nonzero(20), q), Fraction(rng.nonzero(20), q))


def _three_planes(rng: KeyedRandom) -> Problem:
    x, y, z = (rng.nonzero(12) for _ in range(3))
    rows = [(rng.integer(1, 6), rng.nonzero(6), rng.nonzero(6)) for _ in range(3)]
    (a, b, c), (d, e, f), (g, h, i) = rows
    if a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) == 0:
        return _three_planes(rng)
    sums = [p * x + q * y + r * z for p, q, r in rows]
    lines = [f"{_side(p, 0)}{signed(q, 'y')}{signed(r, 'z')} = {s}" for (p, q, r), s in zip(rows, sums, strict=True)]
    text = f"{lines[0]}, {lines[1]} and {lines[2]}. What is x + y + z?"
    setup = f"""a, b, c = {tuple((*row, s) for row, s in zip(rows, sums, strict=True))}
def det(i, j, k):
    return (a[i]*(b[j]*c[k]-b[k]*c[j]) - a[j]*(b[i]*c[k]-b[k]*c[i]) + a[k]*(b[i]*c[j]-b[j]*c[i]))
"""
    return problem(text, x + y + z, "(det(3,1,2)+det(0,3,2)+det(0,1,3))//det(0,1,2)", setup)


LINEAR: Family = {
    1: (_x_plus, _x_minus, _times_x),
    2: (_times_x_plus, _part_of_x, _times_bracket),
    3: (_both_sides,),
    4: (_brackets,),
    5: (_quotients,),
}
SYSTEMS: Family = {
    1: (_sum_and_y, _difference_and_y, _multiple_and_y),
    2: (_sum_and_difference, _sum_and_multiple, _line_and_y),
    3: (_whole_crossing,),
    4: (_crossing,),
    5: (_three_planes,),
}
