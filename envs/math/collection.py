r"""Several plain numbers in one answer, read exactly: `(1, 2]`, `\{3, 1/2\}`, `1, 2`, `(-\infty, 1) \cup [2, 3)`.

Order counts in a tuple and in an interval, and so do their brackets; it does not in a set, a list or a union.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .plain import Number, read_number, same_number

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
    """Return what a tidy text unites, one collection for most texts; None for a text that holds anything else.

    Raises ZeroDivisionError for an element like 1/0.
    """
    parts = [_collection(part) for part in _JOINT.split(text.rstrip(" ."))]
    if len(parts) > 1 and not all(part and _is_interval(part) for part in parts):
        return None
    return tuple(part for part in parts if part) if all(parts) else None


def same_collections(gold: Sequence[Collection], answer: Sequence[Collection]) -> bool | None:
    """Whether both are the same; None where they are of different kinds that may still mean the same."""
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
    if brackets in ("()", "(]", "[)", "[]", "{}"):
        text = text[1:-1]
    else:
        brackets = ""
    if _GROUPED.search(text):
        return None
    parts = _COMMA.split(text.strip())
    if not 2 <= len(parts) <= MAX_ELEMENTS:
        return None
    elements = [_element(part.strip()) for part in parts]
    found = tuple(element for element in elements if element is not None)
    return Collection(brackets, found) if len(found) == len(parts) else None


def _element(text: str) -> Element | None:
    if match := _INFINITY.fullmatch(text):
        return match[1] or "+"
    number = read_number(text)
    return None if number is None or number.unit else number


def _is_interval(collection: Collection) -> bool:
    return len(collection.elements) == 2 and collection.brackets not in ("", "{}")


def _equal(gold: Element, answer: Element) -> bool:
    if isinstance(gold, str) or isinstance(answer, str):
        return gold == answer
    return same_number(gold, answer)


def _covers(gold: Collection, answer: Collection) -> bool:
    return all(any(_equal(one, other) for other in answer.elements) for one in gold.elements)


def _matches(gold: Sequence[Element], answer: Sequence[Element]) -> bool:
    """Whether each element of one has its own of the other."""
    left = list(answer)
    for one in gold:
        index = next((i for i, other in enumerate(left) if _equal(one, other)), None)
        if index is None:
            return False
        del left[index]
    return not left
