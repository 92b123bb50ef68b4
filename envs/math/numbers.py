r"""Plain numbers as people and models write them, read exactly: `-1,234.50`, `2\dfrac{3}{7}`, `\$18`, `75\%`, `5 cm`.

Also several of them in one answer: `(1, 2]`, `\{3, 1/2\}`, `1, 2`, `(-\infty, 1) \cup [2, 3)`. Order and brackets count
in a tuple and in an interval; order does not in a set, a list or a union. Nothing is evaluated here: what is no plain
number is left to the caller.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .notation import WRAPPED, tidy

MAX_LENGTH = 2000

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
# Of these none is likely to be a product of letters.
_KNOWN = (
    r"(?:[ckm]m|mph|inch(?:es)?|feet|met(?:er|re)s?|miles?|hours?|minutes?|seconds?|days?|years?|units?|dollars?|cents?"
    r"|degrees?|(?<=\ )(?:in|ft|yd|mi|m(?=\^)))"
)
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
    (?P<unit>\ ?\\(?:text|mathrm)\ ?\{{[^{{}}\d\\]*\}}(?:\^\{{?[23]\}}?)?
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
    double: bool  # whether it has as many digits as a binary double prints: its last one may be a rounding error


def read_number(text: str) -> Number | None:
    """Return the plain number that `text` is, or None; raise ZeroDivisionError for one like 1/0."""
    if len(text) > MAX_LENGTH:
        return None
    if _INTEGER.fullmatch(text):
        return Number(Fraction(int(text)), False, "", False)
    text = tidy(text)
    if wrapped := WRAPPED.fullmatch(text):
        text = wrapped[1].strip()
    if (match := _NUMBER.fullmatch(text)) is None:
        return _repeating(text)
    unit = re.sub(r"\\[a-z]+|[^A-Za-z0-9 ]", "", match["unit"] or "").lower().strip()
    if _NO_UNIT.search(unit):
        return None
    top, bottom = match["top"] or match["over"], match["bottom"] or match["under"]
    digits, whole = match["decimal"] or "", match["whole"] or match["wholes"]
    if top:
        value = Fraction(int(top.replace(",", "")), int(bottom.replace(",", "")))
        if whole and not 0 < value < 1:  # a product rather than a mixed number
            return None
        value += int(whole or 0)
    else:
        power = int(match["exponent"] or match["power"] or match["digit"] or 0)
        value = Fraction(digits.replace(",", "").rstrip(".")) * Fraction(10) ** power
    double = "." in digits and 15 <= len(re.sub(r"[.,]", "", digits).strip("0")) <= 17
    return Number(-value if match["sign"] == "-" else value, bool(match["percent"]), unit, double)


def _repeating(text: str) -> Number | None:
    if (match := _REPEATING.fullmatch(text)) is None:
        return None
    sign, whole, once, again = match.groups()
    value = Fraction(int(f"{whole}{once}" or 0) + Fraction(int(again), 10 ** len(again) - 1), 10 ** len(once))
    return Number(-value if sign else value, False, "", False)


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


MAX_ELEMENTS = 100

_INFINITY = re.compile(r"([+-]?) ?\\infty")
_JOINT = re.compile(r" ?(?:\\cup(?![A-Za-z])|∪) ?")
# A comma before three digits may group the digits of one number.
_COMMA = re.compile(r" ?, ?")
_GROUPED = re.compile(r"\d,\d{3}(?!\d)")

Element = Number | str  # `+` and `-` stand for the infinities


class Collection(NamedTuple):
    """Elements, and what is around them: `()`, `(]`, `[)`, `[]`, `{}`, or nothing around a list."""

    brackets: str
    elements: tuple[Element, ...]


def read_collections(text: str) -> tuple[Collection, ...] | None:
    """Return what a tidy text unites, mostly one collection; None for others. Raises ZeroDivisionError for 1/0."""
    parts = [_collection(part) for part in _JOINT.split(text.rstrip(" ."))]
    if len(parts) > 1 and any(not part or len(part.elements) != 2 or part.brackets in ("", "{}") for part in parts):
        return None
    return tuple(part for part in parts if part) if all(parts) else None


def same_collections(gold: Sequence[Collection], answer: Sequence[Collection]) -> bool | None:
    """Return whether both are the same; None where they are of different kinds that may still mean the same."""
    if len(gold) == len(answer) == 1:
        return _same(gold[0], answer[0])
    # Intervals that differ may unite to the same set.
    same = len(gold) == len(answer) and all(any(_same(one, other) for other in answer) for one in gold)
    return True if same else None


def _same(gold: Collection, answer: Collection) -> bool | None:
    around = {gold.brackets, answer.brackets}
    if "{}" in around and len(around) == 2 and "" not in around:
        return False  # order counts in one of them
    if around == {"{}"} or around == {"", "{}"}:
        return _covers(gold, answer) and _covers(answer, gold)
    if around == {""} or (gold.brackets == "" and answer.brackets == "()"):
        return _matches(gold.elements, answer.elements)
    if len(around) == 1 or around == {"", "()"}:
        return len(gold.elements) == len(answer.elements) and all(map(_equal, gold.elements, answer.elements))
    return False if len(gold.elements) == len(answer.elements) == 2 else None


def _collection(text: str) -> Collection | None:
    text = re.sub(r"^\\([{\[(])", r"\1", re.sub(r"\\([}\])])$", r"\1", text.strip()))
    brackets = text[:1] + text[-1:]
    if brackets not in ("()", "(]", "[)", "[]", "{}"):
        brackets = ""
    text = text[1:-1] if brackets else text
    parts = _COMMA.split(text.strip())
    if _GROUPED.search(text) or not 2 <= len(parts) <= MAX_ELEMENTS:
        return None
    found = tuple(element for part in parts if (element := _element(part.strip())) is not None)
    return Collection(brackets, found) if len(found) == len(parts) else None


def _element(text: str) -> Element | None:
    if match := _INFINITY.fullmatch(text):
        return match[1] or "+"
    number = read_number(text)
    return None if number is None or number.unit else number


def _equal(gold: Element, answer: Element) -> bool:
    if isinstance(gold, str) or isinstance(answer, str):
        return gold == answer
    return same_number(gold, answer)


def _covers(gold: Collection, answer: Collection) -> bool:
    return all(any(_equal(one, other) for other in answer.elements) for one in gold.elements)


def _matches(gold: Sequence[Element], answer: Sequence[Element]) -> bool:
    """Return whether each element of one has its own of the other."""
    left = list(answer)
    for one in gold:
        if (index := next((i for i, other in enumerate(left) if _equal(one, other)), None)) is None:
            return False
        del left[index]
    return not left
