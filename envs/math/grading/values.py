r"""Reads and compares tuples, lists, sets, intervals, unions and matrices of plain numbers.

`(1, 2]`, `\{3, 1/2\}`, `1, 2`, `(-\infty, 1) \cup [2, 3)` and
`\begin{pmatrix} 1 \\ 2 \end{pmatrix}` are collections, and so are collections of collections.
`read_value` reads one, and `same_value` compares two, element by element. Order and brackets count
in a tuple and in an interval; order does not in a set, a list or a union.

`split_collection` only splits a text into its elements, which may be formulas.
All texts here are those that `normalise_latex` returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from .numbers import MAX_LENGTH, Number, read_normalised_number, same_number, units_differ

MAX_ELEMENTS = 100  # of a collection, and rows of a matrix
_MAX_DEPTH = 4  # collections within each other


class ElementTexts(NamedTuple):
    """The elements of a collection as they are written, and the kind of the collection.

    Attributes:
        kind: The brackets around it, `()`, `(]`, `[)`, `[]` or `{}`; empty for a list without
            brackets; `∪` for a union of intervals and sets; `matrix`, or `row` for one row of it.
        elements: The elements; of a matrix its rows, with `&` between their cells.
    """

    kind: str
    elements: tuple[str, ...]


class Collection(NamedTuple):
    """Elements that were read, and the kind of their collection, as in `ElementTexts`."""

    kind: str
    elements: tuple[Value, ...]


Value: TypeAlias = "Number | str | Collection"
"""A number, an infinity by its sign (`"+"` or `"-"`), or a collection of values."""

# --- reading

_INFINITY = re.compile(r"([+-]?) ?\\infty")
_FACTOR_AND_MATRIX = re.compile(
    r"(?P<factor>-? ?(?:\\frac ?\{[^{}]*\} ?\{[^{}]*\}|\d+/\d+)) ?"
    r"(?P<matrix>\\begin.*\\end ?\{[^{}]*\})",
    re.DOTALL,
)
# A comma before three digits: it may group the digits of one number, or separate two elements.
_GROUPING_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def read_value(text: str, depth: int = 0) -> Value | None:
    r"""Return the value of a text that has only plain numbers in it; None for other texts.

    `"(1, \infty)"` is `Collection("()", (Number(1), "+"))`; `"(1, x)"` is None.

    Args:
        text: The text.
        depth: How many collections it is in.

    Raises:
        ZeroDivisionError: A number in it is a quotient by zero.
    """
    number = read_normalised_number(text)
    if number is not None:
        return number
    infinity = _INFINITY.fullmatch(text.rstrip(" ."))
    if infinity:
        return infinity[1] or "+"
    if depth > _MAX_DEPTH:
        return None
    product = _FACTOR_AND_MATRIX.fullmatch(text)
    if product:
        factor = read_normalised_number(product["factor"])
        matrix = read_value(product["matrix"], depth + 1)
        return _multiply(factor, matrix)
    collection = split_collection(text)
    if collection is None:
        return None
    return _read_elements(collection, depth)


def _multiply(factor: Number | None, matrix: Value | None) -> Collection | None:
    """Return a matrix multiplied by the fraction in front of it, as inverse matrices are written.

    None for a product of other things, and if the result has only whole numbers: then the product
    is arithmetic that was not worked out.
    """
    if factor is None or not isinstance(matrix, Collection) or matrix.kind != "matrix":
        return None
    rows = []
    products: list[Number] = []
    for row in matrix.elements:
        if isinstance(row, Collection):
            numbers = [cell for cell in row.elements if isinstance(cell, Number)]
            cells = [cell._replace(value=cell.value * factor.value) for cell in numbers]
            rows.append(Collection("row", tuple(cells)))
            products += cells
    if all(product.value.denominator == 1 for product in products):
        return None
    return Collection("matrix", tuple(rows))


def _read_elements(collection: ElementTexts, depth: int) -> Collection | None:
    """Return a collection with its elements read; None if one of them is not of plain numbers.

    Args:
        collection: The elements as they are written.
        depth: How many collections it is in itself.
    """
    elements = []
    for text in collection.elements:
        if collection.kind == "matrix":
            row = ElementTexts("row", tuple(cell.strip() for cell in text.split("&")))
            element: Value | None = _read_elements(row, depth + 1)
        else:
            element = read_value(text, depth + 1)
        if element is None:
            return None
        # `\{3\}` was read as the number 3. Only in a union is it the set: (0, 1) \cup \{3\}
        is_set_of_one = isinstance(element, Number) and text.startswith("\\{")
        if is_set_of_one and collection.kind != "∪":
            return None
        elements.append(element)
    return Collection(collection.kind, tuple(elements))


def possible_values(text: str) -> list[Value]:
    """Return the values that a text may have: none, one, or two if a comma in it is ambiguous.

    `(1,234)` is a tuple of two numbers, and one number in brackets.

    Raises:
        ZeroDivisionError: A number in it is a quotient by zero.
    """
    value = read_value(text)
    candidates = [value]
    if not isinstance(value, Number) and _GROUPING_COMMA.search(text):
        candidates.append(read_value(_GROUPING_COMMA.sub("", text)))
    return [candidate for candidate in candidates if candidate is not None]


# --- splitting

_UNION_SIGN = re.compile(r" ?(?:\\cup(?![A-Za-z])|∪) ?")
_MATRIX_NAME = r"\{ ?(?:(?:small|[pbB])?matrix|array) ?\}"
_MATRIX = re.compile(
    rf"\\begin ?{_MATRIX_NAME}(?: ?\{{[clr| ]*\}})?(?P<rows>.*)\\end ?{_MATRIX_NAME}",
    re.DOTALL,
)
_BRACKETED_MATRIX = re.compile(r"[(\[] ?(\\begin.*\\end ?\{[^{}]*\}) ?[)\]]", re.DOTALL)
_ROW_END = re.compile(r"\\\\(?: ?\[[^\[\]]*\])?")  # \\ or \\[2pt]


def split_collection(text: str) -> ElementTexts | None:
    r"""Return kind and elements of the collection that a text is; None if it is none.

    `"(1, x]" -> ("(]", ("1", "x"))`, `"1 \text{ or } 2" -> ("", ("1", "2"))`. A single value is no
    collection, whatever is around it.
    """
    text = text.rstrip(" .")
    if len(text) > MAX_LENGTH:
        return None
    if "\\begin" in text:
        return _split_matrix(text)
    if _UNION_SIGN.search(text):
        return _split_union(text)
    kind, inside = _strip_outer_brackets(text)
    elements = tuple(split_elements(inside))
    if not 2 <= len(elements) <= MAX_ELEMENTS:
        return None
    if not all(elements):  # an empty one, as in `1,,2`
        return None
    return ElementTexts(kind, elements)


def _split_matrix(text: str) -> ElementTexts | None:
    r"""Return the rows of a matrix; None for other texts, and if a matrix is in it.

    `"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}" -> ("matrix", ("1 & 2", "3 & 4"))`.
    """
    bracketed = _BRACKETED_MATRIX.fullmatch(text)
    if bracketed:
        text = bracketed[1].strip()
    matrix = _MATRIX.fullmatch(text)
    if matrix is None or "\\begin" in matrix["rows"]:
        return None
    rows = [row.strip() for row in _ROW_END.split(matrix["rows"])]
    if not rows[-1]:  # the last row may end with `\\`, too
        rows.pop()
    if not 1 <= len(rows) <= MAX_ELEMENTS:
        return None
    return ElementTexts("matrix", tuple(rows))


def _split_union(text: str) -> ElementTexts | None:
    r"""Return the intervals and sets between the signs of a union; None if one is neither.

    `"(0, 1) \cup \{3\}" -> ("∪", ("(0, 1)", "\{3\}"))`.
    """
    members = [member.strip() for member in _UNION_SIGN.split(text)]
    for member in members:
        kind, inside = _strip_outer_brackets(member)
        is_set = kind == "{}"
        is_interval = kind not in ("", "{}") and len(list(split_elements(inside))) == 2
        if not (is_set or is_interval):
            return None
    return ElementTexts("∪", tuple(members))


_BRACKET = re.compile(r"\\(?:[{}]|[lr]angle(?![A-Za-z]))|[()\[\]{}]")
_OPENING_BRACKETS = ("(", "[", "{", "\\{", "\\langle")
_KIND_OF_BRACKETS = {
    ("(", ")"): "()",
    ("(", "]"): "(]",
    ("[", ")"): "[)",
    ("[", "]"): "[]",
    ("\\{", "\\}"): "{}",
    ("\\langle", "\\rangle"): "()",
    ("{", "}"): "{}",
}


def _strip_outer_brackets(text: str) -> tuple[str, str]:
    r"""Return the kind of the brackets around all of a text, and the text inside of them.

    `"\{1, 2\}" -> ("{}", "1, 2")`, `"(0, 1]" -> ("(]", "0, 1")`. The kind is empty, and the text
    unchanged, if no pair of brackets is around all of it: `"(1)(2)" -> ("", "(1)(2)")`.
    """
    text = text.strip()
    opening = _BRACKET.match(text)
    if opening is None:
        return "", text
    closing = _find_closing_bracket(text)
    if closing is None or closing.end() < len(text):
        return "", text
    kind = _KIND_OF_BRACKETS.get((opening[0], closing[0]), "")
    if not kind:
        return "", text
    return kind, text[opening.end() : closing.start()].strip()


def _find_closing_bracket(text: str) -> re.Match[str] | None:
    """Return the bracket that closes the first one of a text, whatever their shapes."""
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth += 1 if bracket[0] in _OPENING_BRACKETS else -1
        if depth == 0:
            return bracket
    return None


_AND_OR = r"\\(?:text|mathrm) ?\{ ?,? ?(?:and|or) ?\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])"
_SEPARATOR = re.compile(rf" ?[,;] ?(?:{_AND_OR})? ?| ?(?:{_AND_OR}) ?")


def split_elements(text: str) -> Iterator[str]:
    r"""Yield the texts between the commas, semicolons, `and` and `or` that are in no brackets.

    `"(1, 2), 3 \text{ and } 4"` has the elements `"(1, 2)"`, `"3"` and `"4"`.
    """
    if not _SEPARATOR.search(text):
        yield text.strip()
        return
    depth = 0
    element_start = 0
    position = 0
    while position < len(text):
        bracket = _BRACKET.match(text, position)
        if bracket:
            depth += 1 if bracket[0] in _OPENING_BRACKETS else -1
            position = bracket.end()
            continue
        separator = _SEPARATOR.match(text, position) if depth == 0 else None
        if separator:
            yield text[element_start:position].strip()
            # A separator may have braces itself, as `\text{ and }` has: they are skipped.
            element_start = position = separator.end()
        else:
            position += 1
    yield text[element_start:].strip()


# --- comparing

ComparisonRule = Literal["set", "list", "tuple", "union", "different"]
"""How two collections are compared: `list` and `set` in any order, `different` never equal."""


def same_value(gold: Value, answer: Value) -> bool | None:
    """Return whether two values are the same.

    None if they are written differently and may still mean the same, such as two unions of
    different intervals.
    """
    if isinstance(gold, Number) and isinstance(answer, Number):
        return not units_differ(gold, answer) and same_number(gold, answer)
    if isinstance(gold, Collection) and isinstance(answer, Collection):
        return _compare_collections(gold, answer)
    return gold == answer


def _compare_collections(gold: Collection, answer: Collection) -> bool | None:
    """Return whether two collections are the same; None as in `same_value`."""
    golds = gold.elements
    answers = answer.elements
    match comparison_rule(gold.kind, answer.kind, len(golds), len(answers)):
        case "set":
            return _all_golds_given(golds, answers) and _all_answers_right(golds, answers)
        case "list":
            return _match_in_any_order(golds, answers)
        case "tuple":
            return len(golds) == len(answers) and all(map(_is_same, golds, answers))
        case "union":
            if len(golds) == len(answers) and _all_golds_given(golds, answers):
                return True
            # Intervals that differ may still unite to the same set: [0, 2) \cup [1, 3).
            return None
        case "different":
            return False
    return None


def comparison_rule(
    gold_kind: str, answer_kind: str, gold_count: int, answer_count: int
) -> ComparisonRule | None:
    r"""Return how two collections have to be compared.

    Args:
        gold_kind: The kind of the gold, as in `ElementTexts`.
        answer_kind: The kind of the answer.
        gold_count: The number of the gold's elements.
        answer_count: The number of the answer's elements.

    Returns:
        The rule; None if the kinds differ and the collections may still mean the same.
    """
    # Two elements in square brackets are a closed interval, but any other number is a program's
    # list, such as [1, 2, 3].
    if gold_kind == "[]" and gold_count != 2 and answer_kind in ("", "{}"):
        gold_kind = "()"
    if answer_kind == "[]" and answer_count != 2 and gold_kind in ("", "{}"):
        answer_kind = "()"
    kinds = {gold_kind, answer_kind}

    if kinds == {"∪"}:
        return "union"
    if "∪" in kinds:
        return None
    if "matrix" in kinds or "row" in kinds:
        return "tuple" if gold_kind == answer_kind else "different"
    if "{}" in kinds:
        return "set" if kinds <= {"{}", ""} else "different"
    # The gold decides on the order: a list that an answer puts in brackets is still a list, and a
    # tuple that it writes without them still a tuple.
    if kinds == {""} or (gold_kind, answer_kind) == ("", "()"):
        return "list"
    if gold_kind == answer_kind or kinds == {"", "()"}:
        return "tuple"
    # Two elements each: intervals that differ in whether their ends are included.
    return "different" if gold_count == answer_count == 2 else None


def _is_same(gold: Value, answer: Value) -> bool:
    return same_value(gold, answer) is True


def _all_golds_given(golds: Sequence[Value], answers: Sequence[Value]) -> bool:
    """Return whether each gold value is the same as one of the answers."""
    return all(any(_is_same(gold, answer) for answer in answers) for gold in golds)


def _all_answers_right(golds: Sequence[Value], answers: Sequence[Value]) -> bool:
    """Return whether each answer is the same as one of the gold values."""
    return all(any(_is_same(gold, answer) for gold in golds) for answer in answers)


def _match_in_any_order(golds: Sequence[Value], answers: Sequence[Value]) -> bool:
    """Return whether answers and gold values are the same in some order, each used once."""
    unmatched = list(answers)
    for gold in golds:
        for index, answer in enumerate(unmatched):
            if _is_same(gold, answer):
                del unmatched[index]
                break
        else:  # no answer is the same
            return False
    return not unmatched
