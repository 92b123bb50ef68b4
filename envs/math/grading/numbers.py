r"""Plain numbers as people, programs and models write them, read exactly.

`-1,234.50`, `2\dfrac{3}{7}`, `\$18`, `75\%`, `5 cm`, `(42)`, `3 \text{ million}`, `4 \cdot 10^5`
and `0.\overline{3}` are plain numbers. A billion is 10^9 (the short scale).

`read_number` reads a text, and `same_number` and `units_differ` compare two numbers. Nothing is
evaluated here: sums, products, powers and roots are no plain numbers, and are left to the caller.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from .notation import WRAPPED, normalise_latex

MAX_LENGTH = 2000  # characters of a number or collection

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
# In a quotient an integer may have brackets: (-3)/4.
_INTEGER = rf"(?:[+-]?{_DIGITS}|\(\ ?[+-]?{_DIGITS}\ ?\))"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+)"
# The digits that a decimal repeats: \overline{3}, \overline 3 or (3).
_REPETEND = (
    r"\\(?:overline|bar|dot)\ ?(?:\{\ ?(?P<repetend>\d{1,9})\ ?\}|(?P<repetend_digit>\d))"
    r"|\((?P<bracketed_repetend>\d{1,9})\)"
)
_POWER_OF_TEN = (
    r"10\ ?\^\ ?(?:\{\ ?(?P<braced_power>[+-]?\d{1,3})\ ?\}|(?P<plain_power>[+-]?\d{1,3}))"
)
_PERCENT = r"%|\\text\{\ ?(?:%|percent|per\ cent|pct\.?)\ ?\}|(?:percent|per\ cent|pct)(?![A-Za-z])"
# Units that need no \text{}: none of them is likely to be a product of letters.
_KNOWN_UNIT = (
    r"(?:[ckm]m|mph|inch(?:es)?|feet|met(?:er|re)s?|miles?|hours?|minutes?|seconds?|days?|years?"
    r"|units?|dollars?|cents?|degrees?|hundred|thousand|million|billion|trillion"
    r"|(?<=\ )(?:in|ft|yd|mi|m(?=\^)))"
)
_WRAPPED_UNIT = r"\\(?:text|mathrm)\ ?\{(?:[^{}\d\\]|\\cdot\ ?)*\}(?:\^\{?-?\d\}?)?"
_PLAIN_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\ ?
    (?: # 2\frac{{3}}{{7}}
        (?:(?P<frac_whole>\d+)\ ?)?
        \\frac\ ?\{{\ ?(?P<frac_top>{_INTEGER})\ ?\}}\ ?\{{\ ?(?P<frac_bottom>{_INTEGER})\ ?\}}
      | # 2 3/7
        (?:(?P<slash_whole>\d+)\ )?
        (?P<slash_top>{_INTEGER})\.?\ ?/\ ?(?P<slash_bottom>{_INTEGER})
      | # 0.1\overline{{6}}
        (?P<before_repetend>\d{{0,9}}\.\d{{0,9}})\ ?(?:{_REPETEND})
      | # 1,234.5e6
        (?P<decimal>{_DECIMAL})(?:[eE](?P<exponent>[+-]?\d{{1,3}}))?
      | # 4 \times 10^5, 10^5
        (?:(?P<mantissa>{_DECIMAL})\ ?(?:\\times|\\cdot|\\ast|[*xX])\ ?)?{_POWER_OF_TEN}
    )
    (?P<percent>\ ?(?:{_PERCENT}))?
    (?P<degree>°)?
    (?P<unit>
        # \text{{ km}}/\text{{h}}
        \ ?{_WRAPPED_UNIT}(?:\ ?(?:/|\\cdot)?\ ?{_WRAPPED_UNIT})*
      | # cm^2, million dollars
        \ ?{_KNOWN_UNIT}(?![A-Za-z])(?:\^\{{?[23]\}}?)?(?:\ [A-Za-z][A-Za-z ]*[A-Za-z])?
      | # apples, behind a blank
        \ [A-Za-z][A-Za-z ]*[A-Za-z]
    )?
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
# Words behind a number that change its value (`2 dozen`), doubt it (`5 maybe`), or join it to
# another one (`5 or 6`).
_NO_UNIT = re.compile(
    r"(?<![a-z])(?:dozens?|scores?|pi|half|halves|thirds?|fourths?|quarters?"
    r"|(?:ten|hundred|thousand|million|fif|six|seven|eigh|nin)ths?|squared|cubed|and|or|plus|minus"
    r"|times|by|over|to|mod|choose|factorial|percent|root|not|hundreds|thousands|[mb]illions"
    r"|trillions|wrong|incorrect|false|least|most|than|about|approximately|roughly|almost|nearly"
    r"|maybe|perhaps|except|if)(?![a-z])"
)
_IN_BRACKETS = re.compile(
    r"(?P<sign>[+-]?) ?"
    r"(?:\((?P<round>.*)\)|\[(?P<square>.*)\]|\\?\{(?P<braces>.*?)\\?\})"
    r"(?P<behind> ?(?:(?:%|°|\\text|\\mathrm).*|\.?))"
)
_MAX_BRACKETS = 5  # around each other that are taken off


class Number(NamedTuple):
    r"""An exact value, and how it was written.

    Attributes:
        value: The value without regard to a percent sign: 75 for `75%`.
        has_percent_sign: Whether a percent sign or the word follows.
        unit: The unit behind the number in plain lower-case letters, `cm2` for `\text{cm}^2`.
        is_printed_double: Whether it has as many digits as programs print for a binary double, so
            that its last digit may be a rounding error.
        quotient: Dividend and divisor without signs, if it was written as a quotient.
        has_degree_sign: Whether a degree sign follows.
    """

    value: Fraction
    has_percent_sign: bool = False
    unit: str = ""
    is_printed_double: bool = False
    quotient: tuple[int, int] | None = None
    has_degree_sign: bool = False


def read_number(text: str) -> Number | None:
    """Return the plain number that `text` is, or None.

    Raises:
        ZeroDivisionError: The text is a quotient by zero, such as `1/0`.
    """
    if len(text) > MAX_LENGTH:
        return None
    if _PLAIN_INTEGER.fullmatch(text):
        return Number(Fraction(int(text)))
    return read_normalised_number(normalise_latex(text))


def read_normalised_number(text: str) -> Number | None:
    r"""Return the plain number that a text is, or None.

    Args:
        text: A text that `normalise_latex` returned, such as `-(5) \text{ cm}` or `2\frac{3}{7}`.

    Raises:
        ZeroDivisionError: The text is a quotient by zero.
    """
    if len(text) > MAX_LENGTH:
        return None
    wrapped = WRAPPED.fullmatch(text)
    if wrapped:
        text = wrapped[1].strip()
    match = _NUMBER.fullmatch(_strip_brackets(text))
    if match is None:
        return None
    scale, unit = _read_scale_and_unit(match["unit"] or "")
    if _NO_UNIT.search(unit):  # words that change or doubt the number: `2 dozen`, `5 maybe`
        return None

    quotient = None
    if match["frac_top"] or match["slash_top"]:
        fraction = _read_fraction(match)
        if fraction is None:
            return None
        value, quotient = fraction
    elif match["before_repetend"] is not None:
        value = _read_repeating_decimal(match)
    else:
        value = _read_decimal(match)
    if match["sign"] == "-":
        value = -value

    return Number(
        value=value * scale,
        has_percent_sign=bool(match["percent"]),
        unit=unit,
        is_printed_double=_is_printed_double(match["decimal"] or ""),
        quotient=quotient,
        has_degree_sign=bool(match["degree"]),
    )


def _read_fraction(match: re.Match[str]) -> tuple[Fraction, tuple[int, int] | None] | None:
    r"""Return the value of a fraction or mixed number, and its dividend and divisor.

    Args:
        match: A match of `_NUMBER` with a numerator: of `\frac{3}{7}`, `2\frac{3}{7}`, `3/7` or
            `2 3/7`. Its sign is not read here.

    Returns:
        The value, and (dividend, divisor) without signs, which is None for a mixed number. None
        if it is a product rather than a mixed number, such as `2\frac{9}{7}`.
    """
    dividend = _read_integer(match["frac_top"] or match["slash_top"])
    divisor = _read_integer(match["frac_bottom"] or match["slash_bottom"])
    value = Fraction(dividend, divisor)
    whole_digits = match["frac_whole"] or match["slash_whole"]
    if whole_digits and not 0 < value < 1:
        return None
    whole = int(whole_digits or 0)
    if whole:
        return value + whole, None
    return value, (abs(dividend), abs(divisor))


def _read_integer(text: str) -> int:
    """Return the integer that a text is, without commas and brackets: `"( -1,234 )" -> -1234`."""
    return int(re.sub(r"[^\d-]", "", text))


def _read_repeating_decimal(match: re.Match[str]) -> Fraction:
    r"""Return the value of a decimal whose last digits repeat for ever: `0.1\overline{6}` is 1/6.

    Args:
        match: A match of `_NUMBER` with a repetend, the digits that repeat.
    """
    whole, _, decimals = match["before_repetend"].partition(".")
    repetend = match["repetend"] or match["repetend_digit"] or match["bracketed_repetend"]
    # 0.333... is 3/9, and 0.272727... is 27/99.
    repeating_part = Fraction(int(repetend), 10 ** len(repetend) - 1)
    digits_before = int(f"{whole}{decimals}" or 0)
    return Fraction(digits_before + repeating_part, 10 ** len(decimals))


def _read_decimal(match: re.Match[str]) -> Fraction:
    r"""Return the value of a decimal: `1,234.5`, `1.5e6`, `4 \cdot 10^5` or `10^5`.

    Args:
        match: A match of `_NUMBER` that is neither a fraction nor a repeating decimal.
    """
    mantissa = match["decimal"] or match["mantissa"] or "1"
    power = match["exponent"] or match["braced_power"] or match["plain_power"] or "0"
    return Fraction(mantissa.replace(",", "").rstrip(".")) * Fraction(10) ** int(power)


def _is_printed_double(decimal: str) -> bool:
    """Return whether a decimal has the 15 to 17 significant digits that a printed double has."""
    if "." not in decimal:
        return False
    significant_digits = re.sub(r"[.,]", "", decimal).strip("0")
    return 15 <= len(significant_digits) <= 17


def _read_scale_and_unit(written: str) -> tuple[int, str]:
    r"""Return the factor of the scale words in front of a unit, and the unit in plain letters.

    `"\text{ million dollars}" -> (10**6, "dollars")`, `" cm^2" -> (1, "cm2")`.
    """
    if not written:
        return 1, ""
    unit = re.sub(r"\\[a-z]+|[^A-Za-z0-9 ]", "", written).lower().strip()
    scale = 1
    while True:
        first_word, _, other_words = unit.partition(" ")
        if first_word not in _SCALES:
            return scale, unit
        scale *= _SCALES[first_word]
        unit = other_words.strip()


def _strip_brackets(text: str) -> str:
    r"""Return a text without the brackets around all of its number.

    `"-(5) \text{ cm}" -> "-5 \text{ cm}"`, `"[(42)]" -> "42"`.
    """
    for _ in range(_MAX_BRACKETS):
        # Most numbers end with a digit: then nothing is around them.
        if text[-1:].isdigit():
            break
        match = _IN_BRACKETS.fullmatch(text)
        if match is None:
            break
        inside = (match["round"] or match["square"] or match["braces"] or "").strip()
        is_collection = "," in inside
        has_second_sign = match["sign"] and inside[:1] in ("+", "-")  # -(-5) is arithmetic
        if is_collection or has_second_sign or not _is_balanced(inside):
            break
        text = match["sign"] + inside + match["behind"]
    return text


def _is_balanced(text: str) -> bool:
    """Return whether all brackets of a text close in it: not so in `1) + (2`. Shapes may differ."""
    depth = 0
    for mark in text:
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
            if depth < 0:
                return False
    return depth == 0


_DIGITS_OF_INTEGER = rf"\d{{1,{MAX_LENGTH}}}"  # Python refuses to convert over 4300 digits
_RATIO = re.compile(rf"({_DIGITS_OF_INTEGER}) ?: ?({_DIGITS_OF_INTEGER}) ?\.?", re.ASCII)


def read_ratio(text: str) -> Number | None:
    """Return the number that a normalised ratio is: 3/5 for `3:5`.

    None for other texts, and for a ratio that is a whole number: `84:2` is a division that was
    not worked out.

    Raises:
        ZeroDivisionError: The text is a ratio to zero, such as `1:0`.
    """
    match = _RATIO.fullmatch(text)
    if match is None:
        return None
    dividend = int(match[1])
    divisor = int(match[2])
    value = Fraction(dividend, divisor)
    if value.denominator == 1:
        return None
    return Number(value, quotient=(dividend, divisor))


_DIVISION = re.compile(
    rf"([+-]?{_DIGITS_OF_INTEGER}) ?(?::|\\div(?![A-Za-z])) ?([+-]?{_DIGITS_OF_INTEGER})(?!\d)",
    re.ASCII,
)


def read_quotient(text: str) -> tuple[int, int] | None:
    r"""Return dividend and divisor, without signs, of a quotient such as `3/5` or `3 \div 5`.

    Args:
        text: A text that `normalise_latex` returned. Behind a `:` or `\div` more may follow.

    Returns:
        (dividend, divisor), or None if the text is no quotient or divides by zero.
    """
    try:
        number = read_normalised_number(text)
    except ZeroDivisionError:
        return None
    if number is not None:
        return number.quotient
    division = _DIVISION.match(text)
    if division is None:
        return None
    return abs(int(division[1])), abs(int(division[2]))


def same_number(gold: Number, answer: Number) -> bool:
    """Return whether two plain numbers are equal, whatever their units.

    They have to be equal exactly, with two exceptions:

    - If only one of them has a percent sign, `50%` equals both `50` and `0.5`.
    - An answer that is a printed double may be off by a relative 1e-12, if the gold is no whole
      number.
    """
    possible_values = [answer.value]
    if answer.has_percent_sign and not gold.has_percent_sign:
        possible_values.append(answer.value / 100)
    elif gold.has_percent_sign and not answer.has_percent_sign:
        possible_values.append(answer.value * 100)

    tolerance: Fraction | int = 0
    if answer.is_printed_double and gold.value.denominator > 1:
        tolerance = abs(gold.value) / 10**12
    return any(abs(value - gold.value) <= tolerance for value in possible_values)


def units_differ(gold: Number, answer: Number) -> bool:
    """Return whether both numbers have a unit, and not the same one.

    A percent sign is a unit of its own beside another unit or a degree sign.
    """
    if gold.unit and answer.unit:
        return gold.unit != answer.unit
    if answer.has_percent_sign and not gold.has_percent_sign:
        return bool(gold.unit) or gold.has_degree_sign
    if gold.has_percent_sign and not answer.has_percent_sign:
        return bool(answer.unit) or answer.has_degree_sign
    return False
