"""Families about unknowns: linear equations and systems of them."""

from __future__ import annotations

from fractions import Fraction

from ..dice import Dice
from .problem import FRACTION, Family, Problem, problem, signed

SOLVE = ("{}. What is x?", "If {}, what is x?", "For which x is {}?")


def _side(a: int, b: int, symbol: str = "x") -> str:
    """Return `ax + b`."""
    return f"{'' if a == 1 else '-' if a == -1 else a}{symbol}{signed(b)}"


# --- linear


def _x_plus(dice: Dice) -> Problem:
    x, b = dice.roll(1, 60), dice.roll(2, 39)
    return problem(dice.pick(SOLVE).format(f"x + {b} = {x + b}"), x, f"{x + b}-{b}")


def _x_minus(dice: Dice) -> Problem:
    x, b = dice.roll(1, 60), dice.roll(2, 39)
    return problem(dice.pick(SOLVE).format(f"x - {b} = {x - b}"), x, f"{x - b}+{b}")


def _times_x(dice: Dice) -> Problem:
    a = dice.roll(2, 9)
    x = dice.roll(2, 99 // a)
    return problem(dice.pick(SOLVE).format(f"{a}x = {a * x}"), x, f"{a * x}//{a}")


def _times_x_plus(dice: Dice) -> Problem:
    a, x, b = dice.roll(2, 12), dice.roll(1, 30), dice.roll(2, 60)
    if dice.roll(0, 1):
        return problem(dice.pick(SOLVE).format(f"{a}x + {b} = {a * x + b}"), x, f"({a * x + b}-{b})//{a}")
    return problem(dice.pick(SOLVE).format(f"{a}x - {b} = {a * x - b}"), x, f"({a * x - b}+{b})//{a}")


def _part_of_x(dice: Dice) -> Problem:
    a, y, b = dice.roll(2, 12), dice.roll(1, 30), dice.roll(2, 60)
    return problem(dice.pick(SOLVE).format(f"x/{a} + {b} = {y + b}"), a * y, f"({y + b}-{b})*{a}")


def _times_bracket(dice: Dice) -> Problem:
    a, x, b = dice.roll(2, 12), dice.roll(1, 30), dice.roll(2, 20)
    return problem(dice.pick(SOLVE).format(f"{a}(x + {b}) = {a * (x + b)}"), x, f"{a * (x + b)}//{a}-{b}")


def _both_sides(dice: Dice) -> Problem:
    a, c, x, b = dice.roll(2, 20), dice.nonzero(12), dice.nonzero(30), dice.nonzero(60)
    if a == c:
        return _both_sides(dice)
    d = (a - c) * x + b
    text = dice.pick(SOLVE).format(f"{_side(a, b)} = {_side(c, d)}")
    return problem(text, x, f"({d} - {b})//({a} - {c})".replace("- -", "+ "))


def _brackets(dice: Dice) -> Problem:
    a, b, c, d, e = dice.roll(2, 12), dice.nonzero(20), dice.roll(2, 12), dice.nonzero(20), dice.nonzero(40)
    if a == c:
        return _brackets(dice)
    text = dice.pick(SOLVE).format(f"{a}(x{signed(b)}) = {c}(x{signed(d)}){signed(e)}")
    gold = Fraction(c * d + e - a * b, a - c)
    return problem(
        text, gold, f"Fraction({c}*{d}+{e}-{a}*{b}, {a}-{c})".replace("+-", "-").replace("--", "+"), FRACTION
    )


def _quotients(dice: Dice) -> Problem:
    a, b, c, d, e = dice.roll(2, 9), dice.nonzero(20), dice.roll(2, 9), dice.nonzero(20), dice.nonzero(12)
    if a == c:
        return _quotients(dice)
    text = dice.pick(SOLVE).format(f"(x{signed(b)})/{a} = (x{signed(d)})/{c}{signed(e)}")
    gold = (Fraction(d, c) + e - Fraction(b, a)) / (Fraction(1, a) - Fraction(1, c))
    setup = f"{FRACTION}# multiply both sides by {a}*{c}: {c}(x{signed(b)}) = {a}(x{signed(d)}){signed(e * a * c)}\n"
    return problem(text, gold, f"Fraction({a}*({d})+({e})*{a}*{c}-{c}*({b}), {c}-{a})", setup)


# --- systems


def _sum_and_y(dice: Dice) -> Problem:
    x, y = dice.roll(1, 60), dice.roll(1, 39)
    return problem(f"x + y = {x + y} and y = {y}. What is x?", x, f"{x + y}-{y}")


def _difference_and_y(dice: Dice) -> Problem:
    x, y = dice.roll(1, 60), dice.roll(1, 39)
    return problem(f"x - y = {x - y} and y = {y}. What is x?", x, f"{x - y}+{y}")


def _multiple_and_y(dice: Dice) -> Problem:
    a, y = dice.roll(2, 9), dice.roll(2, 60)
    return problem(f"x = {a}y and y = {y}. What is x?", a * y, f"{a}*{y}")


def _sum_and_difference(dice: Dice) -> Problem:
    x, y = dice.roll(1, 60), dice.roll(1, 60)
    x, y = max(x, y), min(x, y)
    if dice.roll(0, 1):
        return problem(f"x + y = {x + y} and x - y = {x - y}. What is x?", x, f"({x + y}+{x - y})//2")
    return problem(f"x + y = {x + y} and x - y = {x - y}. What is y?", y, f"({x + y}-{x - y})//2")


def _sum_and_multiple(dice: Dice) -> Problem:
    a, y = dice.roll(2, 9), dice.roll(2, 60)
    return problem(f"x = {a}y and x + y = {a * y + y}. What is y?", y, f"{a * y + y}//({a}+1)")


def _line_and_y(dice: Dice) -> Problem:
    a, x, y = dice.roll(2, 12), dice.roll(1, 30), dice.roll(1, 30)
    return problem(f"{a}x + y = {a * x + y} and y = {y}. What is x?", x, f"({a * x + y}-{y})//{a}")


def _two_lines(dice: Dice, x: Fraction, y: Fraction) -> Problem:
    a, b, d, e = dice.roll(2, 12), dice.nonzero(12), dice.roll(2, 12), dice.nonzero(12)
    c, f = a * x + b * y, d * x + e * y
    if a * e == b * d or c.denominator > 1 or f.denominator > 1:
        return _two_lines(dice, x, y)
    text = f"{a}x{signed(b, 'y')} = {c} and {d}x{signed(e, 'y')} = {f}. What is x?"
    return problem(text, x, f"Fraction({c}*({e})-({b})*({f}), {a}*({e})-({b})*{d})", FRACTION)


def _whole_crossing(dice: Dice) -> Problem:
    return _two_lines(dice, Fraction(dice.nonzero(20)), Fraction(dice.nonzero(20)))


def _crossing(dice: Dice) -> Problem:
    q = dice.roll(2, 4)
    return _two_lines(dice, Fraction(dice.nonzero(20), q), Fraction(dice.nonzero(20), q))


def _three_planes(dice: Dice) -> Problem:
    x, y, z = (dice.nonzero(12) for _ in range(3))
    rows = [(dice.roll(1, 6), dice.nonzero(6), dice.nonzero(6)) for _ in range(3)]
    (a, b, c), (d, e, f), (g, h, i) = rows
    if a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) == 0:
        return _three_planes(dice)
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
