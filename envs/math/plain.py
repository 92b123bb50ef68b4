r"""Plain numbers as people and models write them, read exactly: `-1,234.50`, `\dfrac{3}{7}`, `\$18`, `75\%`, `5 cm`.

Nothing is evaluated here: what is not one plain number is left to the caller.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from .spelling import tidy

MAX_LENGTH = 2000

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\ ?
    (?: \\frac\ ?\{{\ ?(?P<top>-?{_DIGITS})\ ?\}}\ ?\{{\ ?(?P<bottom>{_DIGITS})\ ?\}}
      | (?P<over>{_DIGITS})\.?\ ?/\ ?(?P<under>{_DIGITS})
      | (?P<decimal>{_DIGITS}(?:\.\d*)?|\.\d+)
        (?: [eE](?P<exponent>[+-]?\d{{1,3}})
          | \ ?\\(?:times|cdot)\ ?10\ ?\^\ ?(?:\{{\ ?(?P<power>-?\d{{1,3}})\ ?\}}|(?P<digit>\d)) )?
    )
    (?P<percent>\ ?%|\ ?\\text\{{\ ?percent\ ?\}}|\ percent)?
    (?P<degree>°)?
    (?P<unit>\ ?\\(?:text|mathrm|mbox|textrm|textnormal)\ ?\{{[^{{}}\d\\]*\}}(?:\^\{{?[23]\}}?)?
      | \ [A-Za-z][A-Za-z ]*[A-Za-z])?
    \ ?\.?""",
    re.VERBOSE | re.ASCII,
)
# Words behind a number that change its value or join it to another one.
_NO_UNIT = re.compile(
    r"(?<![a-z])(?:hundred|thousand|million|billion|trillion|dozen|score|pi|half|halves|thirds?|quarters?|squared|cubed"
    r"|and|or|plus|minus|times|by|over|to|mod|choose|factorial|percent|root|not)(?![a-z])"
)


class Number(NamedTuple):
    """An exact value with what was written around it."""

    value: Fraction
    percent: bool
    unit: str
    double: bool
    """Whether it has as many digits as a binary double prints, so that its last one may be a rounding error."""


def read_number(text: str) -> Number | None:
    """Return the plain number that `text` is, or None; raise ZeroDivisionError for one like 1/0."""
    if len(text) > MAX_LENGTH:
        return None
    if _INTEGER.fullmatch(text):
        return Number(Fraction(int(text)), False, "", False)
    match = _NUMBER.fullmatch(tidy(text))
    if match is None:
        return None
    unit = re.sub(r"\\[a-z]+|[^A-Za-z0-9 ]", "", match["unit"] or "").lower().strip()
    if _NO_UNIT.search(unit):
        return None
    top, bottom = match["top"] or match["over"], match["bottom"] or match["under"]
    digits = match["decimal"] or ""
    if top:
        value = Fraction(int(top.replace(",", "")), int(bottom.replace(",", "")))
    else:
        value = Fraction(digits.replace(",", "").rstrip(".")) * Fraction(10) ** int(
            match["exponent"] or match["power"] or match["digit"] or 0
        )
    if match["sign"] == "-":
        value = -value
    double = "." in digits and len(re.sub(r"[.,]", "", digits).strip("0")) >= 15
    return Number(value, bool(match["percent"]), unit, double)


def same_number(gold: Number, answer: Number) -> bool:
    """Whether two plain numbers are equal.

    Exactly equal, but: a decimal answer of 15 or more digits is a printed double and may be off by 1e-12 of the gold;
    where one side alone has a percent sign, it may stand for the number in front of the sign or for its hundredth.
    """
    values = {answer.value}
    if gold.percent != answer.percent:
        values.add(answer.value / 100 if answer.percent else answer.value * 100)
    slack = abs(gold.value) / 10**12 if answer.double else 0
    return any(abs(value - gold.value) <= slack for value in values)
