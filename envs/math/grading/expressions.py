"""Expressions of numbers, names, functions and operators, read by a grammar: what it does not know is no expression.

The grammar lists what may stand in an expression, and how long, deep and large that may be. Nothing of a text is
evaluated but the arithmetic of its numbers, in exact fractions; a program gets it as `sympy_code`, put together anew
from the parts that were read.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction

MAX_LENGTH = 1000  # characters of an expression
MAX_DEPTH = 40  # brackets, signs and powers within each other
MAX_DIGITS = 30  # of a number as it is written
MAX_BITS = 4000  # of the numerator and the denominator of a value that is computed
MAX_EXPONENT = 100

CONSTANTS = frozenset({"E", "I", "pi"})
"""Names that are numbers to sympy; every other name is a symbol."""

_PART = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?![0-9A-Za-z_.]))"
    r"|(?P<name>[A-Za-z]+(?:_?[0-9]+)?(?![0-9A-Za-z_.]))"
    r"|(?P<operator>\*\*|[-+*/()])"
)
_BLANK = re.compile(r"[ \t]*")


class NoExpression(ValueError):
    """A text is no expression of the grammar, or a larger one than is read."""


@dataclass
class Expression:
    """What was read: its numbers in their order, its names, its value where it has none, and how sympy spells it."""

    numbers: list[Fraction] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    value: Fraction | None = None
    parts: list[str] = field(default_factory=list)

    @property
    def sympy_code(self) -> str:
        """The expression as a program for sympy, of calls that this module wrote."""
        return " ".join(self.parts)


@dataclass(frozen=True)
class _Part:
    kind: str
    text: str


def read_expression(
    text: str, *, names: bool = False, functions: Collection[str] = (), powers: bool = False
) -> Expression:
    """Read an expression of decimal numbers, `+`, `-`, `*`, `/` and round brackets.

    Args:
        text: What is read, from its first to its last character.
        names: Whether names stand for values, as `x`, `C` or `pi`.
        functions: The names of the functions of one argument that may be called.
        powers: Whether there is `**`.

    Raises NoExpression where it is anything else, divides by zero, or is too long, deep or large.
    """
    if len(text) > MAX_LENGTH:
        raise NoExpression(
            f"the expression has {len(text)} characters; at most {MAX_LENGTH} are read"
        )
    reader = _ExpressionReader(_split(text), names, frozenset(functions), powers)
    value = reader.sum(0)
    if reader.rest():
        raise NoExpression(f"{reader.rest()!r} does not continue the expression")
    return Expression(reader.numbers, reader.seen, value, reader.written)


def _split(text: str) -> list[_Part]:
    parts: list[_Part] = []
    place = _skip_blanks(text, 0)
    while place < len(text):
        match = _PART.match(text, place)
        if match is None or match.lastgroup is None:
            raise NoExpression(f"{text[place : place + 20]!r} is no part of an expression")
        parts.append(_Part(match.lastgroup, match[0]))
        place = _skip_blanks(text, match.end())
    return parts


def _skip_blanks(text: str, place: int) -> int:
    match = _BLANK.match(text, place)
    return match.end() if match else place


class _ExpressionReader:
    """Reads parts from left to right. Each method returns the value of what it has read, None where that has names."""

    def __init__(
        self, parts: list[_Part], names: bool, functions: frozenset[str], powers: bool
    ) -> None:
        self.parts, self.place = parts, 0
        self.names, self.functions, self.powers = names, functions, powers
        self.numbers: list[Fraction] = []
        self.seen: set[str] = set()
        self.written: list[str] = []

    def rest(self) -> str:
        return " ".join(part.text for part in self.parts[self.place : self.place + 5])

    def sum(self, depth: int) -> Fraction | None:
        value = self.product(depth)
        while operator := self.take("+", "-"):
            right = self.product(depth)
            value = _computed(value, operator, right)
        return value

    def product(self, depth: int) -> Fraction | None:
        value = self.signed(depth)
        while operator := self.take("*", "/"):
            right = self.signed(depth)
            value = _computed(value, operator, right)
        return value

    def signed(self, depth: int) -> Fraction | None:
        self.check(depth)
        if sign := self.take("+", "-"):
            value = self.signed(depth + 1)
            return -value if value is not None and sign == "-" else value
        return self.power(depth)

    def power(self, depth: int) -> Fraction | None:
        base = self.atom(depth)
        if self.powers and self.take("**"):
            exponent = self.signed(depth + 1)
            return _raised(base, exponent)
        return base

    def atom(self, depth: int) -> Fraction | None:
        if self.take("("):
            return self.closed(depth)
        part = self.parts[self.place] if self.place < len(self.parts) else _Part("end", "")
        self.place += 1
        if part.kind == "number":
            return self.number(part.text)
        if part.kind == "name" and part.text in self.functions:
            self.written.append(part.text)
            if not self.take("("):
                raise NoExpression(f"{part.text!r} is a function; it needs an argument in brackets")
            self.closed(depth)
            return None
        if part.kind == "name" and self.names:
            self.seen.add(part.text)
            self.written.append(part.text if part.text in CONSTANTS else f"Symbol({part.text!r})")
            return None
        raise NoExpression(
            f"{part.text!r} stands in place of a value"
            if part.text
            else "the expression breaks off"
        )

    def closed(self, depth: int) -> Fraction | None:
        value = self.sum(depth + 1)
        if not self.take(")"):
            raise NoExpression("a bracket is not closed")
        return value

    def number(self, text: str) -> Fraction:
        if len(text) > MAX_DIGITS:
            raise NoExpression(f"a number has {len(text)} digits; at most {MAX_DIGITS} are read")
        value = Fraction(text)
        self.numbers.append(value)
        self.written.append(f"Float({text!r})" if "." in text else f"Integer({int(text)})")
        return value

    def take(self, *operators: str) -> str:
        """Return the next part if it is one of these operators, and go on behind it; else an empty text."""
        if self.place < len(self.parts) and self.parts[self.place].text in operators:
            operator = self.parts[self.place].text
            self.place += 1
            self.written.append(operator)
            return operator
        return ""

    def check(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise NoExpression(f"the expression is over {MAX_DEPTH} levels deep")


def _computed(left: Fraction | None, operator: str, right: Fraction | None) -> Fraction | None:
    if operator == "/" and right == 0:
        raise NoExpression("the expression divides by zero")
    if left is None or right is None:
        return None
    if operator == "+":
        return _checked(left + right)
    if operator == "-":
        return _checked(left - right)
    if operator == "*":
        return _checked(left * right)
    return _checked(left / right)


def _raised(base: Fraction | None, exponent: Fraction | None) -> Fraction | None:
    if exponent is not None and abs(exponent) > MAX_EXPONENT:
        raise NoExpression(f"an exponent is over {MAX_EXPONENT}")
    if base is None or exponent is None:
        return None
    if base == 0 and exponent < 0:
        raise NoExpression("the expression divides by zero")
    if exponent.denominator != 1:
        return None
    if _bits(base) * abs(exponent) > MAX_BITS:
        raise NoExpression("a power is too large")
    return base ** int(exponent)


def _checked(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise NoExpression("a value is too large")
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())
