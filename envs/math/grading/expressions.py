"""Expressions of numbers, names, functions and operators, read by a grammar.

`read_expression` reads one, and refuses everything that the grammar does not know, as well as
expressions that are too long, deep or large. Nothing of a text is evaluated but the arithmetic of
its numbers, in exact fractions. Sympy never gets the text itself but `Expression.sympy_code`, which
is put together anew from the tokens that were read.
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

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?![0-9A-Za-z_.]))"
    r"|(?P<name>[A-Za-z]+(?:_?[0-9]+)?(?![0-9A-Za-z_.]))"
    r"|(?P<operator>\*\*|[-+*/()])"
)
_BLANKS = re.compile(r"[ \t]*")


class NoExpression(ValueError):
    """A text is no expression of the grammar, or a larger one than is read."""


@dataclass
class Expression:
    """An expression that was read.

    Attributes:
        numbers: Its numbers, in their order.
        names: Its names, constants included.
        value: Its value; None if it has names or functions, or a power that is no fraction.
        sympy_tokens: Its tokens as sympy spells them, numbers and symbols as calls.
    """

    numbers: list[Fraction] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    value: Fraction | None = None
    sympy_tokens: list[str] = field(default_factory=list)

    @property
    def sympy_code(self) -> str:
        """The expression as a program for sympy, whose every call this module wrote."""
        return " ".join(self.sympy_tokens)


@dataclass(frozen=True)
class _ExpressionToken:
    kind: str  # "number", "name", "operator", or "end" behind the last one
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

    Returns:
        The expression: `"2*x"` has the number 2, the name `x` and no value.

    Raises:
        NoExpression: It is anything else, divides by zero, or is too long, deep or large.
    """
    if len(text) > MAX_LENGTH:
        raise NoExpression(
            f"the expression has {len(text)} characters; at most {MAX_LENGTH} are read"
        )
    parser = _ExpressionParser(_tokenize(text), names, frozenset(functions), powers)
    value = parser.parse_sum(depth=0)
    unread_text = parser.preview_unread()
    if unread_text:
        raise NoExpression(f"{unread_text!r} does not continue the expression")
    return Expression(parser.numbers, parser.names, value, parser.sympy_tokens)


def _tokenize(text: str) -> list[_ExpressionToken]:
    """Return the numbers, names and operators of a text. Raises NoExpression at anything else."""
    tokens: list[_ExpressionToken] = []
    position = _skip_blanks(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise NoExpression(f"{text[position : position + 20]!r} is no part of an expression")
        tokens.append(_ExpressionToken(match.lastgroup, match[0]))
        position = _skip_blanks(text, match.end())
    return tokens


def _skip_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return blanks.end() if blanks else position


class _ExpressionParser:
    """A recursive-descent parser: one method for each level of precedence, the loosest first.

    Each `parse_` method reads tokens from the current position on, writes them in sympy's spelling,
    and returns the value of what it has read: None if that has names or functions in it. They all
    raise NoExpression where the grammar ends. `depth` counts the brackets, signs and powers around.

    Args:
        tokens: The tokens of the expression.
        names_allowed: Whether names stand for values.
        functions: The names of the functions that may be called.
        powers_allowed: Whether there is `**`.
    """

    def __init__(
        self,
        tokens: list[_ExpressionToken],
        names_allowed: bool,
        functions: frozenset[str],
        powers_allowed: bool,
    ) -> None:
        self.tokens = tokens
        self.position = 0
        self.names_allowed = names_allowed
        self.functions = functions
        self.powers_allowed = powers_allowed
        self.numbers: list[Fraction] = []
        self.names: set[str] = set()
        self.sympy_tokens: list[str] = []

    def preview_unread(self) -> str:
        """Return the next tokens, at most five; empty at the end."""
        next_tokens = self.tokens[self.position : self.position + 5]
        return " ".join(token.text for token in next_tokens)

    def parse_sum(self, depth: int) -> Fraction | None:
        """Parse `product + product - …`."""
        value = self.parse_product(depth)
        while operator := self.take_operator("+", "-"):
            right = self.parse_product(depth)
            value = _compute(value, operator, right)
        return value

    def parse_product(self, depth: int) -> Fraction | None:
        """Parse `signed * signed / …`."""
        value = self.parse_signed(depth)
        while operator := self.take_operator("*", "/"):
            right = self.parse_signed(depth)
            value = _compute(value, operator, right)
        return value

    def parse_signed(self, depth: int) -> Fraction | None:
        """Parse a power with any number of signs in front of it: `--x**2`."""
        if depth > MAX_DEPTH:
            raise NoExpression(f"the expression is over {MAX_DEPTH} levels deep")
        sign = self.take_operator("+", "-")
        if not sign:
            return self.parse_power(depth)
        value = self.parse_signed(depth + 1)
        if value is not None and sign == "-":
            return -value
        return value

    def parse_power(self, depth: int) -> Fraction | None:
        """Parse `atom` or `atom ** exponent`, whose exponent may have a sign and be a power."""
        base = self.parse_atom(depth)
        if self.powers_allowed and self.take_operator("**"):
            exponent = self.parse_signed(depth + 1)
            return _raise_to_power(base, exponent)
        return base

    def parse_atom(self, depth: int) -> Fraction | None:
        """Parse a number, a name, a call of a function, or a sum in brackets."""
        if self.take_operator("("):
            return self.parse_closed_sum(depth)
        if self.position < len(self.tokens):
            token = self.tokens[self.position]
        else:
            token = _ExpressionToken("end", "")
        self.position += 1

        if token.kind == "number":
            return self.parse_number(token.text)
        if token.kind == "name" and token.text in self.functions:
            self.sympy_tokens.append(token.text)
            if not self.take_operator("("):
                raise NoExpression(
                    f"{token.text!r} is a function; it needs an argument in brackets"
                )
            self.parse_closed_sum(depth)
            return None
        if token.kind == "name" and self.names_allowed:
            self.names.add(token.text)
            is_constant = token.text in CONSTANTS
            self.sympy_tokens.append(token.text if is_constant else f"Symbol({token.text!r})")
            return None
        if token.kind == "end":
            raise NoExpression("the expression breaks off")
        raise NoExpression(f"{token.text!r} stands in place of a value")

    def parse_closed_sum(self, depth: int) -> Fraction | None:
        """Parse a sum and the bracket that closes behind it; the opening one was taken before."""
        value = self.parse_sum(depth + 1)
        if not self.take_operator(")"):
            raise NoExpression("a bracket is not closed")
        return value

    def parse_number(self, digits: str) -> Fraction:
        """Return the value of a number, and write it for sympy: `Integer(2)`, `Float('0.5')`."""
        if len(digits) > MAX_DIGITS:
            raise NoExpression(f"a number has {len(digits)} digits; at most {MAX_DIGITS} are read")
        value = Fraction(digits)
        self.numbers.append(value)
        if "." in digits:
            self.sympy_tokens.append(f"Float({digits!r})")
        else:
            self.sympy_tokens.append(f"Integer({int(digits)})")
        return value

    def take_operator(self, *operators: str) -> str:
        """Take and return the next token if it is one of these operators, or else an empty text."""
        if self.position >= len(self.tokens):
            return ""
        token = self.tokens[self.position]
        if token.text not in operators:
            return ""
        self.position += 1
        self.sympy_tokens.append(token.text)
        return token.text


def _compute(left: Fraction | None, operator: str, right: Fraction | None) -> Fraction | None:
    """Return the value of `left operator right`; None if a side has none.

    Raises:
        NoExpression: It divides by zero, or the value is too large.
    """
    if operator == "/" and right == 0:
        raise NoExpression("the expression divides by zero")
    if left is None or right is None:
        return None
    match operator:
        case "+":
            value = left + right
        case "-":
            value = left - right
        case "*":
            value = left * right
        case _:
            value = left / right
    if _count_bits(value) > MAX_BITS:
        raise NoExpression("a value is too large")
    return value


def _raise_to_power(base: Fraction | None, exponent: Fraction | None) -> Fraction | None:
    """Return `base ** exponent`; None if one of them has no value, or the power is a root.

    Raises:
        NoExpression: It divides by zero, or the exponent or the power is too large.
    """
    if exponent is not None and abs(exponent) > MAX_EXPONENT:
        raise NoExpression(f"an exponent is over {MAX_EXPONENT}")
    if base is None or exponent is None:
        return None
    if base == 0 and exponent < 0:
        raise NoExpression("the expression divides by zero")
    if exponent.denominator != 1:
        return None
    # Known before it is computed: a power has at most so many times the bits of its base.
    if _count_bits(base) * abs(exponent) > MAX_BITS:
        raise NoExpression("a power is too large")
    return base ** int(exponent)


def _count_bits(value: Fraction) -> int:
    """Return the bits of the numerator or of the denominator, whichever has more."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())
