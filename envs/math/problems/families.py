"""Generated problems: a text, its exact answer and a program that prints it, by the rows of `families.toml`.

A row says what is drawn, what is asked, and the answer with a program for it:

    1: x in 1..60; b in 2..39; if x != b
       SOLVE x + {b} = {x + b}
       x -> {x + b}-{b}

`in 1..60` draws a number, both ends included, `in ±20` one from -20 to 20 that is not 0, and `in` anything else one of
its items; `c = …` names a value, and where an `if` does not hold all is drawn again. A text may have several wordings,
with ` | ` between them, or be an equation to `SOLVE`, or an expression whose `VALUE` is asked, which then is the
program. A row works out the answer from what was drawn and builds the program from the numbers of the text, so that the
two are independent ways to the same value.

A problem of the set is fixed by its index. Its text decides its split: a tenth of all texts is `valid`, a tenth `test`,
the others `train`, so no two splits ever share a problem, whatever their seeds, families and difficulties.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from math import gcd, lcm
from pathlib import Path
from typing import Any, NamedTuple

from ...keyed_random import KeyedRandom


class Problem(NamedTuple):
    """A problem: `text` ends with a question, `gold` is an integer, a finite decimal or a fraction `a/b`."""

    text: str
    gold: str
    solution: str


_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
WORDINGS: dict[str, list[str]] = _WORDS.pop("WORDINGS")
PEOPLE: list[str] = _WORDS["PEOPLE"]
Kind = Callable[[KeyedRandom], Problem]
Family = dict[int, tuple[Kind, ...]]  # the kinds of problem at each difficulty from 1 to 5
_STEPS = {  # of a row, and what they are in Python
    r"if (.+)": r"if not (\1): continue",
    r"(\w+) in (.+)\.\.(.+)": r"\1 = rng.integer(\2, \3)",
    r"(\w+) in ±(.+)": r"\1 = rng.nonzero(\2)",
    r"([\w, ]+) in (.+)": r"\1 = rng.choice(\2)",
}
IMPORTS = {
    "Fraction(": "fractions",
    "gcd(": "math",
    "lcm(": "math",
}  # what a program may call, and where it is


def read(table: str) -> Family:
    """Return the family of a table."""
    kinds: Family = defaultdict(tuple)
    for row in re.split(r"\n(?=\d)", table.strip()):
        kinds[int(row[0])] += (NAMES.get(row[3:]) or _kind(*re.split(r"(?<!;)\n +", row[3:])),)
    return kinds


def _kind(steps: str, *lines: str) -> Kind:
    """Return the function that a row describes, whose Python is this package's own."""
    last = next((i for i, line in enumerate(lines) if "->" in line), len(lines) - 1)
    text, (gold, _, program) = " ".join(lines[:last]), " ".join(lines[last:]).partition("->")
    form, _, asked = text.partition(" ")
    texts = [wording.replace("{}", asked) for wording in WORDINGS.get(form, ())] or text.split(
        " | "
    )
    wordings = ", ".join(map(_template, texts))
    body = []
    for step in re.split(r";\s+", steps):
        found = (
            match.expand(python)
            for form, python in _STEPS.items()
            if (match := re.fullmatch(form, step))
        )
        body.append(next(found, step))
    body.append(f"text = rng.choice([{wordings}])" if len(texts) > 1 else f"text = {wordings}")
    body.append(
        f"return problem(text, {gold}, {_template(program.strip() or asked.replace(' ', ''))})"
    )
    names = dict(NAMES)
    exec("def kind(rng):\n  while True:\n" + "".join(f"    {line}\n" for line in body), names)
    kind: Kind = names["kind"]
    return kind


def _template(text: str) -> str:
    return f'f"""{text}"""'


def problem(text: str, gold: int | Fraction | str, program: str) -> Problem:
    """Return a problem; its program, where it is an expression, is printed, and imports what it calls."""
    imports = "".join(
        f"from {module} import {call[:-1]}\n" for call, module in IMPORTS.items() if call in program
    )
    return Problem(
        text, str(gold), imports + (program if "print(" in program else f"print({program})")
    )


def signed(number: int, symbol: str = "") -> str:
    """Write a term behind another: ` + 3y` or ` - 3y`; nothing for 0 and no 1 in front of a symbol."""
    size = "" if abs(number) == 1 and symbol else str(abs(number))
    return f" {'-' if number < 0 else '+'} {size}{symbol}" if number else ""


def side(a: int, b: int) -> str:
    """Write `ax + b`."""
    return f"{'' if a == 1 else '-' if a == -1 else a}x{signed(b)}"


def decimal(value: Fraction) -> str:
    """Write a value whose decimal is finite: 3/4 as 0.75, 8/4 as 2.0, the way Python prints a quotient."""
    return repr(value.numerator / value.denominator)


def tree(rng: KeyedRandom, leaves: int, high: int) -> tuple[str, int, bool]:
    """Return an expression of `leaves` numbers, its value, and whether it needs brackets inside a product."""
    if leaves == 1:
        number = rng.integer(2, high)
        return str(number), number, False
    left = rng.integer(1, leaves - 1)
    (a, x, wide_a), (b, y, wide_b) = tree(rng, left, high), tree(rng, leaves - left, high)
    sign = rng.choice("+-*")
    if sign == "*":
        return f"{closed(a, wide_a)} * {closed(b, wide_b)}", x * y, False
    return f"{a} {sign} {closed(b, wide_b)}", x + y if sign == "+" else x - y, True


def closed(text: str, wide: bool) -> str:
    """Put an expression that needs them into brackets."""
    return f"({text})" if wide else text


def ratio(rng: KeyedRandom, high: int) -> tuple[int, int]:
    """Draw the parts of a fraction below 1, with a denominator from 3 to `high`."""
    q = rng.integer(3, high)
    return rng.integer(1, q - 1), q


def pair(rng: KeyedRandom) -> tuple[str, str]:
    """Draw two persons."""
    first = rng.integer(0, len(PEOPLE) - 1)
    return PEOPLE[first], PEOPLE[first - rng.integer(1, len(PEOPLE) - 1)]


SHORT = (2, 4, 5, 8, 10, 20)  # denominators of short decimals


def divisors(n: int) -> set[int]:
    """Return the positive divisors of a number."""
    return {d for k in range(1, int(n**0.5) + 1) if n % k == 0 for d in (k, n // k)}


def term(x: int, y: int, p: int, q: int, n: int) -> int:
    """Return term `n` of a sequence: each is `p` times the one before it plus `q` times the one before that."""
    terms = [x, y]
    while len(terms) < n:
        terms.append(p * terms[-1] + q * terms[-2])
    return terms[-1]


def two_lines(rng: KeyedRandom, x: Fraction, y: Fraction) -> tuple[int | Fraction, ...]:
    """Draw two lines that cross at a point, as the whole numbers a, b, c and d, e, f of ax + by = c and dx + ey = f."""
    a, b, d, e = rng.integer(2, 12), rng.nonzero(12), rng.integer(2, 12), rng.nonzero(12)
    c, f = a * x + b * y, d * x + e * y
    if a * e == b * d or c.denominator > 1 or f.denominator > 1:
        return two_lines(rng, x, y)
    return a, b, c, d, e, f


def three_planes(rng: KeyedRandom) -> Problem:
    """Ask where three planes cross: a kind that no row describes."""
    x, y, z = (rng.nonzero(12) for _ in range(3))
    rows = [(rng.integer(1, 6), rng.nonzero(6), rng.nonzero(6)) for _ in range(3)]
    (a, b, c), (d, e, f), (g, h, i) = rows
    if a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) == 0:
        return three_planes(rng)
    sums = [p * x + q * y + r * z for p, q, r in rows]
    lines = [
        f"{side(p, 0)}{signed(q, 'y')}{signed(r, 'z')} = {s}"
        for (p, q, r), s in zip(rows, sums, strict=True)
    ]
    program = f"""a, b, c = {tuple((*row, s) for row, s in zip(rows, sums, strict=True))}
def det(i, j, k):
    return (a[i]*(b[j]*c[k]-b[k]*c[j]) - a[j]*(b[i]*c[k]-b[k]*c[i]) + a[k]*(b[i]*c[j]-b[j]*c[i]))
print((det(3,1,2)+det(0,3,2)+det(0,1,3))//det(0,1,2))"""
    return problem(f"{lines[0]}, {lines[1]} and {lines[2]}. What is x + y + z?", x + y + z, program)


_CALLED = (
    Fraction,
    gcd,
    lcm,
    problem,
    signed,
    side,
    decimal,
    tree,
    closed,
    ratio,
    pair,
    divisors,
    term,
    two_lines,
)
NAMES: dict[str, Any] = {made.__name__: made for made in (*_CALLED, three_planes)}


NAMES |= {**_WORDS, "SHORT": SHORT}
