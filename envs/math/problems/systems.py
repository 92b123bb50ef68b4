"""Systems of linear equations in x, y and z."""

from fractions import Fraction
from typing import NamedTuple

from ...keyed_random import KeyedRandom
from .problem import Problem, ProblemFamily, make_problem
from .writing import linear_expression, signed_term

SYSTEMS = ProblemFamily("systems")


@SYSTEMS.kind(level=1)
def ask_x_of_sum(rng: KeyedRandom) -> Problem:
    """Ask for x, given x + y and y."""
    x = rng.integer(1, 60)
    y = rng.integer(1, 39)
    question = f"x + y = {x + y} and y = {y}. What is x?"
    return make_problem(question, gold=x, solution=f"{x + y}-{y}")


@SYSTEMS.kind(level=1)
def ask_x_of_difference(rng: KeyedRandom) -> Problem:
    """Ask for x, given x - y and y."""
    x = rng.integer(1, 60)
    y = rng.integer(1, 39)
    question = f"x - y = {x - y} and y = {y}. What is x?"
    return make_problem(question, gold=x, solution=f"{x - y}+{y}")


@SYSTEMS.kind(level=1)
def ask_x_of_multiple(rng: KeyedRandom) -> Problem:
    """Ask for x, given x = ay and y."""
    a = rng.integer(2, 9)
    y = rng.integer(2, 60)
    question = f"x = {a}y and y = {y}. What is x?"
    return make_problem(question, gold=a * y, solution=f"{a}*{y}")


@SYSTEMS.kind(level=2)
def ask_unknown_of_sum_and_difference(rng: KeyedRandom) -> Problem:
    """Ask for x or y, given x + y and x - y."""
    first = rng.integer(1, 60)
    second = rng.integer(1, 60)
    x = max(first, second)
    y = min(first, second)
    # Half of the sum plus the difference is x, half of the sum minus the difference is y.
    unknown, sign = rng.choice((("y", "-"), ("x", "+")))
    question = f"x + y = {x + y} and x - y = {x - y}. What is {unknown}?"
    return make_problem(
        question, gold=x if unknown == "x" else y, solution=f"({x + y}{sign}{x - y})//2"
    )


@SYSTEMS.kind(level=2)
def ask_y_of_multiple_and_sum(rng: KeyedRandom) -> Problem:
    """Ask for y, given x = ay and x + y."""
    a = rng.integer(2, 9)
    y = rng.integer(2, 60)
    total = a * y + y
    question = f"x = {a}y and x + y = {total}. What is y?"
    return make_problem(question, gold=y, solution=f"{total}//({a}+1)")


@SYSTEMS.kind(level=2)
def ask_x_of_weighted_sum(rng: KeyedRandom) -> Problem:
    """Ask for x, given ax + y and y."""
    a = rng.integer(2, 12)
    x = rng.integer(1, 30)
    y = rng.integer(1, 30)
    total = a * x + y
    question = f"{a}x + y = {total} and y = {y}. What is x?"
    return make_problem(question, gold=x, solution=f"({total}-{y})//{a}")


@SYSTEMS.kind(level=3)
def ask_whole_crossing_of_lines(rng: KeyedRandom) -> Problem:
    """Ask for the x of two equations in x and y whose solution is whole."""
    x = rng.nonzero(20)
    y = rng.nonzero(20)
    return ask_crossing_of_lines(rng, Fraction(x), Fraction(y))


@SYSTEMS.kind(level=4)
def ask_fractional_crossing_of_lines(rng: KeyedRandom) -> Problem:
    """Ask for the x of two equations in x and y whose solution is halves, thirds or quarters."""
    denominator = rng.integer(2, 4)
    x = rng.nonzero(20)
    y = rng.nonzero(20)
    return ask_crossing_of_lines(rng, Fraction(x, denominator), Fraction(y, denominator))


def ask_crossing_of_lines(rng: KeyedRandom, x: Fraction, y: Fraction) -> Problem:
    """Ask for x, given two lines through the point (x, y)."""
    a, b, c, d, e, f = draw_two_lines(rng, x, y)
    question = f"{a}x{signed_term(b, 'y')} = {c} and {d}x{signed_term(e, 'y')} = {f}. What is x?"
    # Cramer's rule
    return make_problem(
        question, gold=x, solution=f"Fraction({c}*({e})-({b})*({f}), {a}*({e})-({b})*{d})"
    )


class TwoLines(NamedTuple):
    """The whole coefficients of two equations, ax + by = c and dx + ey = f."""

    a: int
    b: int
    c: int
    d: int
    e: int
    f: int


def draw_two_lines(rng: KeyedRandom, x: Fraction, y: Fraction) -> TwoLines:
    """Draw two lines that cross at (x, y) and nowhere else."""
    while True:
        a = rng.integer(2, 12)
        b = rng.nonzero(12)
        d = rng.integer(2, 12)
        e = rng.nonzero(12)
        c = a * x + b * y
        f = d * x + e * y
        are_parallel = a * e == b * d
        if not are_parallel and c.denominator == 1 and f.denominator == 1:
            return TwoLines(a=a, b=b, c=int(c), d=d, e=e, f=int(f))


class Plane(NamedTuple):
    """The plane ax + by + cz = d."""

    a: int
    b: int
    c: int
    d: int

    def __str__(self) -> str:
        left_side = linear_expression(self.a, 0) + signed_term(self.b, "y")
        return f"{left_side}{signed_term(self.c, 'z')} = {self.d}"


@SYSTEMS.kind(level=5)
def ask_crossing_of_planes(rng: KeyedRandom) -> Problem:
    """Ask for x + y + z, given three planes that cross at the point (x, y, z) only."""
    while True:
        x = rng.nonzero(12)
        y = rng.nonzero(12)
        z = rng.nonzero(12)
        planes = [draw_plane(rng, x, y, z) for _ in range(3)]
        if determinant(planes) != 0:
            break
    first, second, third = planes
    question = f"{first}, {second} and {third}. What is x + y + z?"
    # Cramer's rule: `det` takes the columns of a matrix by their places in the rows.
    rows = tuple(tuple(plane) for plane in planes)
    solution = f"""a, b, c = {rows}
def det(i, j, k):
    return (a[i]*(b[j]*c[k]-b[k]*c[j]) - a[j]*(b[i]*c[k]-b[k]*c[i]) + a[k]*(b[i]*c[j]-b[j]*c[i]))
print((det(3,1,2)+det(0,3,2)+det(0,1,3))//det(0,1,2))"""
    return make_problem(question, gold=x + y + z, solution=solution)


def draw_plane(rng: KeyedRandom, x: int, y: int, z: int) -> Plane:
    """Draw a plane through the point (x, y, z)."""
    a = rng.integer(1, 6)
    b = rng.nonzero(6)
    c = rng.nonzero(6)
    return Plane(a=a, b=b, c=c, d=a * x + b * y + c * z)


def determinant(planes: list[Plane]) -> int:
    """Return the determinant of the left sides of three planes; 0 if they share no single point."""
    (a, b, c, _), (d, e, f, _), (g, h, i, _) = planes
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
