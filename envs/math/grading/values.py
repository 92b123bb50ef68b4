r"""Several values in one answer: tuples, lists, sets, intervals, unions and matrices, read element by element.

`(1, 2]`, `\{3, 1/2\}`, `1, 2`, `(-\infty, 1) \cup [2, 3)`, `\begin{pmatrix} 1 \\ 2 \end{pmatrix}`, and such in
others. Order and brackets count in a tuple and in an interval; order does not in a set, a list or a union. What holds
anything but plain numbers is no value that is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from .numbers import MAX_LENGTH, Number, other_unit, read_tidy_number, same_number

MAX_ELEMENTS = 100
_MAX_DEPTH = 4

_INFINITY = re.compile(r"([+-]?) ?\\infty")
_UNITED = re.compile(r" ?(?:\\cup(?![A-Za-z])|∪) ?")
_BRACKET = re.compile(r"\\(?:[{}]|[lr]angle(?![A-Za-z]))|[()\[\]{}]")
_JOINT = r"\\(?:text|mathrm) ?\{ ?,? ?(?:and|or) ?\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
_SEPARATOR = re.compile(rf" ?[,;] ?(?:{_JOINT})? ?| ?(?:{_JOINT}) ?")
# A comma before three digits may group the digits of one number.
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MATRIX_NAME = r"\{ ?(?:(?:small|[pbB])?matrix|array) ?\}"
_MATRIX = re.compile(
    rf"\\begin ?{_MATRIX_NAME}(?: ?\{{[clr| ]*\}})?(?P<cells>.*)\\end ?{_MATRIX_NAME}",
    re.DOTALL,
)
_BRACKETED_MATRIX = re.compile(r"[(\[] ?(\\begin.*\\end ?\{[^{}]*\}) ?[)\]]", re.DOTALL)
_FACTORED = re.compile(
    r"(?P<factor>-? ?(?:\\frac ?\{[^{}]*\} ?\{[^{}]*\}|\d+/\d+)) ?(?P<matrix>\\begin.*\\end ?\{[^{}]*\})",
    re.DOTALL,
)
_ROW = re.compile(r"\\\\(?: ?\[[^\[\]]*\])?")
_KINDS = {
    ("(", ")"): "()",
    ("(", "]"): "(]",
    ("[", ")"): "[)",
    ("[", "]"): "[]",
    ("\\{", "\\}"): "{}",
} | {
    ("\\langle", "\\rangle"): "()",
    ("{", "}"): "{}",
}


class ElementTexts(NamedTuple):
    """The elements of a collection as they are written, and its kind: what is around them.

    The kind is `()`, `(]`, `[)`, `[]` or `{}`, nothing for a list, `∪` for a union, `matrix`, or `row` in a matrix.
    """

    kind: str
    elements: tuple[str, ...]


class Collection(NamedTuple):
    """Elements, and the kind of collection that they are in, as of `ElementTexts`."""

    kind: str
    elements: tuple[Value, ...]


Value: TypeAlias = "Number | str | Collection"
"""A number, an infinity (`+` or `-`), or a collection of such."""


def read_value(text: str, depth: int = 0) -> Value | None:
    """Return the value that a tidy text is made of plain numbers alone; None for others.

    Raises ZeroDivisionError where one is like 1/0.
    """
    if (number := read_tidy_number(text)) is not None:
        return number
    if infinite := _INFINITY.fullmatch(text.rstrip(" .")):
        return infinite[1] or "+"
    if depth > _MAX_DEPTH:
        return None
    if factored := _FACTORED.fullmatch(text):
        return _multiplied(
            read_tidy_number(factored["factor"]), read_value(factored["matrix"], depth + 1)
        )
    parts = take_apart(text)
    return None if parts is None else read_parts(parts, depth)


def _multiplied(factor: Number | None, matrix: Value | None) -> Collection | None:
    """Return a matrix with a fraction in front of it, as inverse matrices are written; None for other products.

    Where the result is a matrix of whole numbers the product is arithmetic that is not worked out.
    """
    if factor is None or not isinstance(matrix, Collection) or matrix.kind != "matrix":
        return None
    rows = []
    for row in matrix.elements:
        numbers = (
            [cell for cell in row.elements if isinstance(cell, Number)]
            if isinstance(row, Collection)
            else []
        )
        rows.append(
            Collection(
                "row", tuple(cell._replace(value=cell.value * factor.value) for cell in numbers)
            )
        )
    cells = [cell for row in rows for cell in row.elements if isinstance(cell, Number)]
    is_whole = all(cell.value.denominator == 1 for cell in cells)
    return None if is_whole else Collection("matrix", tuple(rows))


def read_parts(parts: ElementTexts, depth: int = 0) -> Collection | None:
    """Return the collection of the values of some parts; None where one of them is not read."""
    elements = []
    for part in parts.elements:
        element = (
            read_row(part, depth + 1) if parts.kind == "matrix" else read_value(part, depth + 1)
        )
        # A set of one number is that number, but not in place of an element.
        lone_set = isinstance(element, Number) and part.startswith("\\{") and parts.kind != "∪"
        if element is None or lone_set:
            return None
        elements.append(element)
    return Collection(parts.kind, tuple(elements))


def read_row(row: str, depth: int) -> Collection | None:
    """Return the values of a matrix's row, whose cells have a `&` between them."""
    return read_parts(ElementTexts("row", tuple(cell.strip() for cell in row.split("&"))), depth)


def readings(text: str) -> list[Value]:
    """Return what a tidy text may be: with a comma before three digits between elements, and inside a number."""
    read = [read_value(text)]
    if not isinstance(read[0], Number) and _GROUPED.search(text):
        read.append(read_value(_GROUPED.sub("", text)))
    return [value for value in read if value is not None]


def take_apart(text: str) -> ElementTexts | None:
    """Return kind and elements of the collection that a tidy text is; None where it is none."""
    text = text.rstrip(" .")
    if len(text) > MAX_LENGTH:
        return None
    if "\\begin" in text:
        return _rows(text)
    if _UNITED.search(text):
        return _united(text)
    kind, inside = _opened(text)
    elements = tuple(split_elements(inside))
    if not 2 <= len(elements) <= MAX_ELEMENTS or not all(elements):
        return None
    return ElementTexts(kind, elements)


def _rows(text: str) -> ElementTexts | None:
    if bracketed := _BRACKETED_MATRIX.fullmatch(text):
        text = bracketed[1].strip()
    if (matrix := _MATRIX.fullmatch(text)) is None or "\\begin" in matrix["cells"]:
        return None
    rows = [row.strip() for row in _ROW.split(matrix["cells"])]
    if rows and not rows[-1]:
        rows.pop()
    return ElementTexts("matrix", tuple(rows)) if 1 <= len(rows) <= MAX_ELEMENTS else None


def _united(text: str) -> ElementTexts | None:
    sets = [part.strip() for part in _UNITED.split(text)]
    for part in sets:
        kind, inside = _opened(part)
        if kind == "" or (kind != "{}" and len(list(split_elements(inside))) != 2):
            return None
    return ElementTexts("∪", tuple(sets))


def _opened(text: str) -> tuple[str, str]:
    """Return the kind of brackets that are around the whole of a text, and what they hold; no kind without any."""
    text = text.strip()
    opening, closing = _BRACKET.match(text), None
    depth = 0
    if opening is None:
        return "", text
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in ("(", "[", "{", "\\{", "\\langle") else -1
        if depth == 0:
            closing = bracket
            break
    if closing is None or closing.end() < len(text):
        return "", text
    kind = _KINDS.get((opening[0], closing[0]), "")
    return (kind, text[opening.end() : closing.start()].strip()) if kind else ("", text)


def split_elements(text: str) -> Iterator[str]:
    """Yield what stands between the commas, semicolons and joining words that are in no bracket."""
    depth, start, place = 0, 0, 0
    if not _SEPARATOR.search(text):
        yield text.strip()
        return
    while place < len(text):
        if bracket := _BRACKET.match(text, place):
            # A joint such as `\text{ and }` has braces of its own.
            depth += 1 if bracket[0] in ("(", "[", "{", "\\{", "\\langle") else -1
            place = bracket.end()
        elif depth == 0 and (separator := _SEPARATOR.match(text, place)):
            yield text[start:place].strip()
            start = place = separator.end()
        else:
            place += 1
    yield text[start:].strip()


def same_value(gold: Value, answer: Value) -> bool | None:
    """Return whether two values are the same; None where they are of different kinds that may still mean the same."""
    if isinstance(gold, Number) and isinstance(answer, Number):
        return not other_unit(gold, answer) and same_number(gold, answer)
    if isinstance(gold, Collection) and isinstance(answer, Collection):
        return _same_elements(gold, answer)
    return gold == answer


def _is_same(one: Value, other: Value) -> bool:
    return same_value(one, other) is True


def _same_elements(gold: Collection, answer: Collection) -> bool | None:
    ones, others = gold.elements, answer.elements
    match order(gold.kind, answer.kind, len(ones), len(others)):
        case "set":
            return _covers(ones, others) and all(
                any(_is_same(one, other) for one in ones) for other in others
            )
        case "list":
            return _matches(ones, others)
        case "tuple":
            return len(ones) == len(others) and all(map(_is_same, ones, others))
        case "union":
            # Intervals that differ may unite to the same set.
            return (len(ones) == len(others) and _covers(ones, others)) or None
        case "different":
            return False
    return None


def order(gold: str, answer: str, count: int, other_count: int) -> str | None:
    """Return how collections of two kinds are compared: as a `set`, `list`, `tuple`, `union`, or `different` ones.

    None where they are of different kinds that may still mean the same.
    """
    # With other than two elements square brackets are a program's list, and no interval.
    gold = "()" if gold == "[]" and count != 2 and answer in ("", "{}") else gold
    answer = "()" if answer == "[]" and other_count != 2 and gold in ("", "{}") else answer
    around = {gold, answer}
    if around == {"∪"}:
        return "union"
    if around & {"matrix", "row"} or "∪" in around:
        return "tuple" if len(around) == 1 else None if "∪" in around else "different"
    if "{}" in around:
        return "set" if around <= {"", "{}"} else "different"
    if around == {""} or (gold, answer) == ("", "()"):
        return "list"
    if len(around) == 1 or around == {"", "()"}:
        return "tuple"
    return "different" if count == other_count == 2 else None


def _covers(ones: Sequence[Value], others: Sequence[Value]) -> bool:
    return all(any(_is_same(one, other) for other in others) for one in ones)


def _matches(ones: Sequence[Value], others: Sequence[Value]) -> bool:
    """Return whether each element of one has its own of the other."""
    left = list(others)
    for one in ones:
        index = next((i for i, other in enumerate(left) if _is_same(one, other)), None)
        if index is None:
            return False
        del left[index]
    return not left
