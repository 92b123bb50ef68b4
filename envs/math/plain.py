r"""Plain numbers as people and models write them, read exactly: `-1,234.50`, `2\dfrac{3}{7}`, `\$18`, `75\%`, `5 cm`.

Nothing is evaluated here: what is not one plain number is left to the caller.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from .spelling import tidy

MAX_LENGTH = 2000

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
# Of these none is likely to be a product of letters.
_KNOWN = (
    r"(?:[ckm]m|mph|inch(?:es)?|feet|met(?:er|re)s?|miles?|hours?|minutes?|seconds?|days?|years?|units?|dollars?|cents?"
    r"|degrees?|(?<=\ )(?:in|ft|yd|mi|m(?=\^)))"
)
_WRAPPED = re.compile(r"\\(?:text|mathrm|mbox|textrm|textnormal|textbf|mathbf) ?\{([^{}]*)\}")
_REPEATING = re.compile(r"(-?)(\d{0,9})\.(\d{0,9}) ?\\(?:overline|bar|dot) ?\{ ?(\d{1,9}) ?\}", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\ ?
    (?: (?:(?P<whole>\d+)\ ?)?\\frac\ ?\{{\ ?(?P<top>-?{_DIGITS})\ ?\}}\ ?\{{\ ?(?P<bottom>{_DIGITS})\ ?\}}
      | (?:(?P<wholes>\d+)\ )?(?P<over>{_DIGITS})\.?\ ?/\ ?(?P<under>{_DIGITS})
      | (?P<decimal>{_DIGITS}(?:\.\d*)?|\.\d+)
        (?: [eE](?P<exponent>[+-]?\d{{1,3}})
          | \ ?\\(?:times|cdot)\ ?10\ ?\^\ ?(?:\{{\ ?(?P<power>-?\d{{1,3}})\ ?\}}|(?P<digit>\d)) )?
    )
    (?P<percent>\ ?%|\ ?\\text\{{\ ?percent\ ?\}}|\ percent)?
    (?P<degree>°)?
    (?P<unit>\ ?\\(?:text|mathrm|mbox|textrm|textnormal)\ ?\{{[^{{}}\d\\]*\}}(?:\^\{{?[23]\}}?)?
      | \ ?{_KNOWN}(?![A-Za-z])(?:\^\{{?[23]\}}?)? | \ [A-Za-z][A-Za-z ]*[A-Za-z])?
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
    text = tidy(text)
    if wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1].strip()
    match = _NUMBER.fullmatch(text)
    if match is None:
        return _repeating(text)
    unit = re.sub(r"\\[a-z]+|[^A-Za-z0-9 ]", "", match["unit"] or "").lower().strip()
    if _NO_UNIT.search(unit):
        return None
    top, bottom = match["top"] or match["over"], match["bottom"] or match["under"]
    digits = match["decimal"] or ""
    whole = match["whole"] or match["wholes"]
    if top:
        value = Fraction(int(top.replace(",", "")), int(bottom.replace(",", "")))
        if whole and not 0 < value < 1:  # a product rather than a mixed number
            return None
        value += int(whole or 0)
    else:
        value = Fraction(digits.replace(",", "").rstrip(".")) * Fraction(10) ** int(
            match["exponent"] or match["power"] or match["digit"] or 0
        )
    if match["sign"] == "-":
        value = -value
    double = "." in digits and 15 <= len(re.sub(r"[.,]", "", digits).strip("0")) <= 17
    return Number(value, bool(match["percent"]), unit, double)


def _repeating(text: str) -> Number | None:
    match = _REPEATING.fullmatch(text)
    if match is None:
        return None
    sign, whole, once, again = match.groups()
    value = Fraction(int(f"{whole}{once}" or 0) + Fraction(int(again), 10 ** len(again) - 1), 10 ** len(once))
    return Number(-value if sign else value, False, "", False)


def same_number(gold: Number, answer: Number) -> bool:
    """Whether two plain numbers are equal.

    Exactly equal, but: a decimal answer of 15 to 17 digits is a printed double, and may be off by 1e-12 of a gold that
    is no whole number; where one side alone has a percent sign, it may stand for the number in front of the sign or for
    its hundredth.
    """
    values = {answer.value}
    if gold.percent != answer.percent:
        values.add(answer.value / 100 if answer.percent else answer.value * 100)
    slack = abs(gold.value) / 10**12 if answer.double and gold.value.denominator > 1 else 0
    return any(abs(value - gold.value) <= slack for value in values)
