r"""Names in front of values: `x = 5`, `x \in [1, 2]`, `x = 1, y = 2`, `(x, y) = (1, 2)`.

`strip_names` takes them off a gold answer and an answer. If all values have the same name, the
values remain: `x = 2, x = 3` becomes `2, 3`. Several names are a mapping, which becomes a tuple of
its values in the order of the gold's names: `y = 2, x = 1` becomes `(1, 2)` for the gold
`x = 1, y = 2`. All texts here are those that `normalise_latex` returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from .notation import RELATION
from .values import ElementTexts, possible_values, split_collection, split_elements

_GREEK_LETTER = (
    r"\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|tau|phi|omega|Omega|Phi)"
)
_LETTER = rf"(?:\\Delta ?)?(?:[A-Za-z]|{_GREEK_LETTER})"
_EQUALS = r" ?(?:=|\\in(?![A-Za-z])|\\approx(?![A-Za-z])|≈) ?"
# x, x', x_1, f(0), \Delta x, (x, y)
_NAME = (
    rf"{_LETTER}'?(?: ?_ ?\{{?\w+ ?\}}?)?(?: ?\( ?[^()=]+\))?|\( ?[A-Za-z](?: ?, ?[A-Za-z])+ ?\)"
)
# Segments, angles and words, which are names only among several: \angle A = 30, AB = 5
_LONG_NAME = r"(?:m? ?\\angle ?)?[A-Z]{1,3}|\|[A-Z]{1,3}\||\\text ?\{[^{}=]+\}|[A-Za-z][a-z]{2,20}"
_ASSIGNMENT = re.compile(rf"(?P<name>{_NAME}){_EQUALS}(?P<value>.+)", re.DOTALL)
_ASSIGNMENT_AMONG_OTHERS = re.compile(
    rf"(?P<name>{_NAME}|{_LONG_NAME}){_EQUALS}(?P<value>.+)", re.DOTALL
)
_REVERSED_ASSIGNMENT = re.compile(rf"(?P<value>[^=]+?) ?= ?(?P<name>{_NAME})", re.DOTALL)  # 5 = x
# How an answer may name its value if the gold is a bare value. In a gold, `m + n = 5` is an
# equation.
_DESCRIPTION = re.compile(
    r"(?:(?:\\angle ?)?[A-Z]{2,3}|\|[A-Za-z]{1,3}\||[a-z](?: ?[-+] ?[a-z])+|\\text ?\{[A-Za-z ]+\}"
    r"|[A-Za-z][a-z]{2,20}) ?= ?(?P<value>.+)",
    re.DOTALL,
)
_NUMBERED_SOLUTION = re.compile(r"(?:[xzr]|\\lambda)_\{?\d\}?")  # x_1, \lambda_{2}
_PLAIN_NAME = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?")
_BLANKS_AND_BRACES = re.compile(r"[\s{}]")
_BRACKETED_LIST = re.compile(
    r"\((?P<round>[^()]*)\)|\\\{(?P<braces>(?:(?!\\[{}]).)*)\\\}", re.DOTALL
)


class Assignment(NamedTuple):
    """A value and its name, which has neither blanks nor braces: `x_1` for `x_{1}`."""

    name: str
    value: str


@dataclass(frozen=True)
class Assignments:
    """All values of a text with their names; a name may come several times."""

    pairs: tuple[Assignment, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names, each once, in the order in which they first come."""
        return tuple(dict.fromkeys(pair.name for pair in self.pairs))

    @property
    def is_mapping(self) -> bool:
        """Whether there are several names, and they come in whole groups: `x=1, y=2, x=3, y=4`."""
        names = _distinct_names(self.pairs)
        groups = self._groups(len(names))
        return len(names) > 1 and all(_distinct_names(group) == names for group in groups)

    @property
    def values(self) -> str:
        """The values as a list: `1, 2`."""
        return ", ".join(pair.value for pair in self.pairs)

    def tuples(self, names: tuple[str, ...]) -> str:
        """Return the values of a mapping as tuples in the order of `names`: `(1, 2), (3, 4)`."""
        tuples = []
        for group in self._groups(len(names)):
            value_of = dict(group)
            coordinates = ", ".join(value_of[name] for name in names)
            tuples.append(f"({coordinates})")
        return ", ".join(tuples)

    def _groups(self, size: int) -> list[tuple[Assignment, ...]]:
        """Return the pairs in groups of `size` that follow each other."""
        return [self.pairs[i : i + size] for i in range(0, len(self.pairs), size)]


def _distinct_names(pairs: tuple[Assignment, ...]) -> set[str]:
    return {pair.name for pair in pairs}


def strip_names(gold: str, answer: str) -> tuple[str, str]:
    r"""Return gold and answer without the names of their values.

    `("5", "x = 5") -> ("5", "5")`, `("x = 1, y = 2", "y = 2, x = 1") -> ("(1, 2)", "(1, 2)")`.
    Names that differ stay, and so does an equation: `("x = 5", "y = 5") -> ("5", "y = 5")`.
    """
    gold_assignments = _read_assignments(gold)
    answer_assignments = _read_assignments(answer)
    if gold_assignments is not None:
        if gold_assignments.is_mapping:
            return _strip_mapping(gold_assignments, answer, answer_assignments)
        if len(gold_assignments.names) == 1:
            return _strip_single_name(gold, gold_assignments, answer, answer_assignments)
    if RELATION.search(gold):
        return gold, answer
    return gold, _strip_any_name(answer, answer_assignments)


def _strip_any_name(answer: str, assignments: Assignments | None) -> str:
    r"""Return an answer to a bare value without its names, whatever they are.

    `"x = 5" -> "5"`, `"5 = x" -> "5"`, `"m + n = 5" -> "5"`, `"x = 2, y = 3" -> "(2, 3)"`.
    """
    if assignments is not None:
        names = assignments.names
        if assignments.is_mapping and not _are_numbered_solutions(names):
            return assignments.tuples(_sort_names(names))
        if assignments.is_mapping or len(names) == 1:
            return assignments.values
    described = _DESCRIPTION.fullmatch(answer) or _REVERSED_ASSIGNMENT.fullmatch(answer)
    if described is not None and not RELATION.search(described["value"]):
        return described["value"]
    return answer


def _strip_mapping(
    gold_assignments: Assignments, answer: str, answer_assignments: Assignments | None
) -> tuple[str, str]:
    """Return a gold that is a mapping, and its answer, without names.

    Both become tuples if the answer has the same names. An answer without names is left as it is;
    if it is a plain list of solutions that the gold only numbers, the gold is a list as well:
    `("x_1 = 2, x_2 = 3", "3, 2") -> ("2, 3", "3, 2")`.
    """
    names = gold_assignments.names
    gold_tuples = gold_assignments.tuples(names)
    if (
        answer_assignments is not None
        and answer_assignments.is_mapping
        and set(answer_assignments.names) == set(names)
    ):
        return gold_tuples, answer_assignments.tuples(names)
    answer_elements = split_collection(answer)
    is_unordered = answer_elements is not None and answer_elements.kind in ("", "{}")
    if is_unordered and _are_numbered_solutions(names):
        return gold_assignments.values, answer
    return gold_tuples, answer


def _are_numbered_solutions(names: tuple[str, ...]) -> bool:
    """Return whether names such as `x_1` and `x_2` only number the solutions of one equation."""
    letters = {name.partition("_")[0] for name in names}
    return len(letters) == 1 and all(map(_NUMBERED_SOLUTION.fullmatch, names))


def _strip_single_name(
    gold: str,
    gold_assignments: Assignments,
    answer: str,
    answer_assignments: Assignments | None,
) -> tuple[str, str]:
    """Return a gold with one name, such as `x = 5`, and its answer, without that name.

    An answer with another name, or that is an equation, keeps it.
    """
    (name,) = gold_assignments.names
    gold_values = gold_assignments.values
    if answer_assignments is not None and answer_assignments.names == (name,):
        return gold_values, answer_assignments.values
    if not RELATION.search(answer):
        return gold_values, answer

    reversed_answer = _REVERSED_ASSIGNMENT.fullmatch(answer)  # 5 = x
    if reversed_answer is not None:
        answer_name = _BLANKS_AND_BRACES.sub("", reversed_answer["name"])
        answer_value = reversed_answer["value"]
        if answer_name == name and not RELATION.search(answer_value):
            return gold_values, answer_value

    # `y = 2x` may be answered by another equation for the same line, but `x = 5` only by its value.
    if _has_exact_value(gold_values):
        return gold_values, answer
    return gold, answer


def _has_exact_value(text: str) -> bool:
    try:
        return bool(possible_values(text))
    except ZeroDivisionError:
        return False


def _read_assignments(text: str) -> Assignments | None:
    r"""Return the names and values of a text; None if a value has no name, or is a relation itself.

    The text may be one assignment, or several with commas or words between them, in brackets too:
    `x = 1, y = 2`, `\{x = 1, x = 2\}`.
    """
    if RELATION.search(text) is None:
        return None
    single = _ASSIGNMENT.fullmatch(text)
    if single is not None and not RELATION.search(single["value"]):
        return Assignments(tuple(_split_assignment(single)))
    elements = [element for element in split_elements(_strip_brackets(text)) if element]
    pairs: list[Assignment] = []
    for element in elements:
        match = _ASSIGNMENT_AMONG_OTHERS.fullmatch(element)
        if match is None or RELATION.search(match["value"]):
            return None
        pairs += _split_assignment(match)
    return Assignments(tuple(pairs)) if len(elements) > 1 else None


def _split_assignment(match: re.Match[str]) -> list[Assignment]:
    """Return the name and value of a match; for a point, those of each coordinate.

    `x_{1} = 5` gives `x_1` and 5; `(x, y) = (1, 2), (3, 4)` gives x = 1, y = 2, x = 3, y = 4.
    """
    name = _BLANKS_AND_BRACES.sub("", match["name"])
    value = match["value"].strip()
    if name.startswith("("):
        coordinate_names = re.findall("[A-Za-z]", name)
        dimension = name.count(",") + 1
        pairs: list[Assignment] = []
        for point in _read_points(value, dimension):
            for coordinate_name, coordinate in zip(coordinate_names, point, strict=True):
                pairs.append(Assignment(coordinate_name, coordinate))
        if pairs:
            return pairs
    return [Assignment(name, value)]


def _read_points(text: str, dimension: int) -> list[tuple[str, ...]]:
    """Return the coordinates of a point, or of each point of a list; none for other texts.

    `"(1, 2), (3, 4)" -> [("1", "2"), ("3", "4")]` for two dimensions.
    """
    collection = split_collection(text)
    if collection is None or collection.kind not in ("", "()"):
        return []
    candidates: list[ElementTexts | None]
    if collection.kind == "()":
        candidates = [collection]
    else:
        candidates = [split_collection(element) for element in collection.elements]
    points = []
    for candidate in candidates:
        if candidate is None or candidate.kind != "()" or len(candidate.elements) != dimension:
            return []
        points.append(candidate.elements)
    return points


def _strip_brackets(text: str) -> str:
    r"""Return a text without the round brackets or set braces around all of it."""
    bracketed = _BRACKETED_LIST.fullmatch(text)
    if bracketed is None:
        return text
    return (bracketed["round"] or bracketed["braces"] or "").strip()


def _sort_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names in the usual order of coordinates.

    It is that of the alphabet or of their indices; names such as `f(0)` and words stay as written.
    """
    if all(map(_PLAIN_NAME.fullmatch, names)):
        return tuple(sorted(names))
    return names
