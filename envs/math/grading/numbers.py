r"""Plain numbers as people, programs and models write them, read exactly.

`-1,234.50`, `2\dfrac{3}{7}`, `\$18`, `75\%`, `5 cm`, `(42)`, `3 \text{ million}`, `4 \cdot 10^5`, `0.\overline{3}`.
A scale word is of the short scale: a billion is 10^9. Nothing is evaluated here: what is no plain number, such as a
sum, a product, a power or a root, is left to the caller.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from .notation import WRAPPED, tidy

MAX_LENGTH = 2000

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_WHOLE = rf"(?:[+-]?{_DIGITS}|\(\ ?[+-]?{_DIGITS}\ ?\))"  # a part of a quotient
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
_REPEATED = r"\\(?:overline|bar|dot)\ ?(?:\{\ ?(?P<again>\d{1,9})\ ?\}|(?P<digit_again>\d))|\((?P<bracketed>\d{1,9})\)"
_TEN = r"10\ ?\^\ ?(?:\{\ ?(?P<power>[+-]?\d{1,3})\ ?\}|(?P<plain_power>[+-]?\d{1,3}))"
_PERCENT = r"%|\\text\{\ ?(?:%|percent|per\ cent|pct\.?)\ ?\}|(?:percent|per\ cent|pct)(?![A-Za-z])"
# Of these none is likely to be a product of letters.
_KNOWN = (
    r"(?:[ckm]m|mph|inch(?:es)?|feet|met(?:er|re)s?|miles?|hours?|minutes?|seconds?|days?|years?|units?|dollars?|cents?"
    r"|degrees?|hundred|thousand|million|billion|trillion|(?<=\ )(?:in|ft|yd|mi|m(?=\^)))"
)
_WRAPPED_UNIT = r"\\(?:text|mathrm)\ ?\{(?:[^{}\d\\]|\\cdot\ ?)*\}(?:\^\{?-?\d\}?)?"
_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\ ?
    (?: (?:(?P<whole>\d+)\ ?)?\\frac\ ?\{{\ ?(?P<top>{_WHOLE})\ ?\}}\ ?\{{\ ?(?P<bottom>{_WHOLE})\ ?\}}
      | (?:(?P<wholes>\d+)\ )?(?P<over>{_WHOLE})\.?\ ?/\ ?(?P<under>{_WHOLE})
      | (?P<once>\d{{0,9}}\.\d{{0,9}})\ ?(?:{_REPEATED})
      | (?P<decimal>{_DECIMAL})(?:[eE](?P<exponent>[+-]?\d{{1,3}}))?
      | (?:(?P<mantissa>{_DECIMAL})\ ?(?:\\times|\\cdot|\\ast|[*xX])\ ?)?{_TEN}
    )
    (?P<percent>\ ?(?:{_PERCENT}))?
    (?P<degree>°)?
    (?P<unit>\ ?{_WRAPPED_UNIT}(?:\ ?(?:/|\\cdot)?\ ?{_WRAPPED_UNIT})*
      | \ ?{_KNOWN}(?![A-Za-z])(?:\^\{{?[23]\}}?)?(?:\ [A-Za-z][A-Za-z ]*[A-Za-z])? | \ [A-Za-z][A-Za-z ]*[A-Za-z])?
    \ ?\.?""",
    re.VERBOSE | re.ASCII,
)
_SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
# Words behind a number that change its value, doubt it, or join it to another one.
_NO_UNIT = re.compile(
    r"(?<![a-z])(?:dozens?|scores?|pi|half|halves|thirds?|fourths?|quarters?|(?:ten|hundred|thousand|million|fif|six|seven"
    r"|eigh|nin)ths?|squared|cubed|and|or|plus|minus|times|by|over|to|mod|choose|factorial|percent|root|not|hundreds"
    r"|thousands|[mb]illions|trillions|wrong|incorrect|false|least|most|than|about|approximately|roughly|almost|nearly"
    r"|maybe|perhaps|except|if)(?![a-z])"
)
_IN_BRACKETS = re.compile(
    r"(?P<sign>[+-]?) ?(?:\((?P<round>.*)\)|\[(?P<square>.*)\]|\\?\{(?P<braces>.*?)\\?\})"
    r"(?P<behind> ?(?:(?:%|°|\\text|\\mathrm).*|\.?))"
)
_MAX_BRACKETS = 5


class Number(NamedTuple):
    """An exact value with what was written around it."""

    value: Fraction
    percent: bool
    unit: str
    double: bool  # whether it has as many digits as a binary double prints: its last one may be a rounding error
    quotient: tuple[int, int] | None = (
        None  # dividend and divisor without signs, if it was written as a quotient
    )
    degrees: bool = False


def read_number(text: str) -> Number | None:
    """Return the plain number that `text` is, or None; raise ZeroDivisionError for one like 1/0."""
    if len(text) > MAX_LENGTH:
        return None
    if _INTEGER.fullmatch(text):
        return Number(Fraction(int(text)), False, "", False)
    return read_tidy_number(tidy(text))


def read_tidy_number(text: str) -> Number | None:
    """Return the plain number that a tidy text is, as `read_number` does."""
    if len(text) > MAX_LENGTH:
        return None
    if wrapped := WRAPPED.fullmatch(text):
        text = wrapped[1].strip()
    text = _without_brackets(text)
    if (match := _NUMBER.fullmatch(text)) is None:
        return None
    scale, unit = _scale_and_unit(match["unit"] or "")
    if _NO_UNIT.search(unit):
        return None
    value, quotient = _value(match)
    if value is None:
        return None
    digits = match["decimal"] or ""
    double = "." in digits and 15 <= len(re.sub(r"[.,]", "", digits).strip("0")) <= 17
    value = -value if match["sign"] == "-" else value
    return Number(
        value * scale, bool(match["percent"]), unit, double, quotient, bool(match["degree"])
    )


def _value(match: re.Match[str]) -> tuple[Fraction | None, tuple[int, int] | None]:
    """Return the value of a match without its sign, and dividend and divisor of a quotient; no value for a product."""
    top, bottom = match["top"] or match["over"], match["bottom"] or match["under"]
    if top:
        dividend, divisor = _whole(top), _whole(bottom)
        value = Fraction(dividend, divisor)
        whole = match["whole"] or match["wholes"]
        if whole and not 0 < value < 1:  # a product rather than a mixed number
            return None, None
        quotient = None if int(whole or 0) else (abs(dividend), abs(divisor))
        return value + int(whole or 0), quotient
    if match["once"] is not None:
        before, _, once = match["once"].partition(".")
        again = match["again"] or match["digit_again"] or match["bracketed"]
        repeated = Fraction(int(again), 10 ** len(again) - 1)
        return Fraction(int(f"{before}{once}" or 0) + repeated, 10 ** len(once)), None
    mantissa = (match["decimal"] or match["mantissa"] or "1").replace(",", "").rstrip(".")
    power = int(match["exponent"] or match["power"] or match["plain_power"] or 0)
    return Fraction(mantissa) * Fraction(10) ** power, None


def _whole(text: str) -> int:
    return int(re.sub(r"[^\d-]", "", text))


def _scale_and_unit(written: str) -> tuple[int, str]:
    """Return what the scale words in front of a unit stand for, 1 without any, and the unit in plain letters."""
    if not written:
        return 1, ""
    unit = re.sub(r"\\[a-z]+|[^A-Za-z0-9 ]", "", written).lower().strip()
    scale = 1
    while (word := unit.split(" ", 1)[0]) in _SCALES:
        scale *= _SCALES[word]
        unit = unit[len(word) :].strip()
    return scale, unit


def _without_brackets(text: str) -> str:
    """Return a tidy text without the brackets around all of its number; a sign in front of them stays."""
    for _ in range(_MAX_BRACKETS):
        if text[-1:].isdigit() or (match := _IN_BRACKETS.fullmatch(text)) is None:
            break
        inside = (match["round"] or match["square"] or match["braces"] or "").strip()
        # A comma may part two elements, and a second sign is arithmetic.
        if "," in inside or not _balanced(inside) or (match["sign"] and inside[:1] in ("+", "-")):
            break
        text = match["sign"] + inside + match["behind"]
    return text


def _balanced(text: str) -> bool:
    """Return whether no bracket of a text closes one that is open in front of it."""
    depth = 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        if depth < 0:
            return False
    return depth == 0


def read_ratio(text: str) -> Number | None:
    """Return the number that a tidy ratio such as `3:5` is; None for other texts, and where it is a whole number.

    `84:2` is a division that is not worked out. Raises ZeroDivisionError for one like 1:0.
    """
    if (match := _RATIO.fullmatch(text)) is None:
        return None
    top, bottom = int(match[1]), int(match[2])
    value = Fraction(top, bottom)
    return None if value.denominator == 1 else Number(value, False, "", False, (top, bottom))


_RATIO = re.compile(r"(\d+) ?: ?(\d+) ?\.?", re.ASCII)
_WRITTEN_RATIO = re.compile(r"([+-]?\d+) ?(?::|\\div(?![A-Za-z])) ?([+-]?\d+)", re.ASCII)


def written_quotient(text: str) -> tuple[int, int] | None:
    """Return dividend and divisor, without signs, of the quotient that a tidy text is; None if it is no quotient."""
    try:
        number = read_tidy_number(text)
    except ZeroDivisionError:
        return None
    if number is not None:
        return number.quotient
    match = _WRITTEN_RATIO.match(text)
    return None if match is None else (abs(int(match[1])), abs(int(match[2])))


def same_number(gold: Number, answer: Number) -> bool:
    """Return whether two plain numbers are equal.

    Exactly equal, but: a decimal answer of 15 to 17 digits is a printed double, and may be off by 1e-12 of a gold that
    is no whole number; where one side alone has a percent sign, it may stand for the number in front of the sign or for
    its hundredth.
    """
    values = {answer.value}
    if gold.percent != answer.percent:
        values.add(answer.value / 100 if answer.percent else answer.value * 100)
    slack = abs(gold.value) / 10**12 if answer.double and gold.value.denominator > 1 else 0
    return any(abs(value - gold.value) <= slack for value in values)


def other_unit(gold: Number, answer: Number) -> bool:
    """Return whether both numbers name a unit, and not the same one; a percent sign is one beside another unit."""
    if gold.unit and answer.unit:
        return gold.unit != answer.unit
    measured = gold.unit or gold.degrees
    measured_answer = answer.unit or answer.degrees
    if answer.percent and not gold.percent:
        return bool(measured)
    return gold.percent and not answer.percent and bool(measured_answer)
