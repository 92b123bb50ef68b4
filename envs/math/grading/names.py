r"""Names in front of values: `x = 5`, `x \in [1, 2]`, `x = 1, y = 2`, `(x, y) = (1, 2)`, `f(0) = 2, f(1) = 5`.

One name, however often it comes, is taken off, and several are a mapping: it is written as a tuple of the values, in
the order of the gold's names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .notation import RELATION
from .values import readings, split_elements, take_apart

_LETTER = r"(?:\\Delta ?)?(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|tau|phi|omega|Omega|Phi))"
_EQUALS = r" ?(?:=|\\in(?![A-Za-z])|\\approx(?![A-Za-z])|≈) ?"
_NAME = (
    rf"{_LETTER}'?(?: ?_ ?\{{?\w+ ?\}}?)?(?: ?\( ?[^()=]+\))?|\( ?[A-Za-z](?: ?, ?[A-Za-z])+ ?\)"
)
_NAMED = re.compile(rf"(?P<name>{_NAME}){_EQUALS}(?P<value>.+)", re.DOTALL)
# Beside other names these are some, too: segments, angles and words.
_LONG_NAME = r"(?:m? ?\\angle ?)?[A-Z]{1,3}|\|[A-Z]{1,3}\||\\text ?\{[^{}=]+\}|[A-Za-z][a-z]{2,20}"
_NAMED_AMONG_OTHERS = re.compile(
    rf"(?P<name>{_NAME}|{_LONG_NAME}){_EQUALS}(?P<value>.+)", re.DOTALL
)
_TURNED = re.compile(rf"(?P<value>[^=]+?) ?= ?(?P<name>{_NAME})", re.DOTALL)
# What an answer may call its value where the gold is a bare one; as a gold, `m + n = 5` is an equation.
_DESCRIBED = re.compile(
    r"(?:(?:\\angle ?)?[A-Z]{2,3}|\|[A-Za-z]{1,3}\||[a-z](?: ?[-+] ?[a-z])+|\\text ?\{[A-Za-z ]+\}|[A-Za-z][a-z]{2,20})"
    r" ?= ?(?P<value>.+)",
    re.DOTALL,
)
_SOLUTION = re.compile(r"(?:[xzr]|\\lambda)_\{?\d\}?")
_PLAIN_NAME = re.compile(r"(?P<letter>[A-Za-z])(?:_\{?(?P<index>\w+)\}?)?")


@dataclass(frozen=True)
class Named:
    """The values of a text, and the name of each; a name may come several times."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.pairs))

    @property
    def is_mapping(self) -> bool:
        """Whether there are several names, and each has as many values as the others."""
        counts = {sum(name == one for one, _ in self.pairs) for name in self.names}
        return len(self.names) > 1 and len(counts) == 1 and self._groups_are_whole()

    def _groups_are_whole(self) -> bool:
        size = len(self.names)
        groups = [self.pairs[i : i + size] for i in range(0, len(self.pairs), size)]
        return all({name for name, _ in group} == set(self.names) for group in groups)

    @property
    def values(self) -> str:
        """The values as a list."""
        return ", ".join(value for _, value in self.pairs)

    def tuples(self, names: tuple[str, ...]) -> str:
        """Return the values of a mapping as a tuple in the order of `names`, or as a list of such tuples."""
        size = len(names)
        groups = (dict(self.pairs[i : i + size]) for i in range(0, len(self.pairs), size))
        return ", ".join(f"({', '.join(group[name] for name in names)})" for group in groups)


def unnamed(gold: str, answer: str) -> tuple[str, str]:
    """Return both tidy texts without the names of their values, where these are the same or one has none."""
    gold_named, answer_named = _named(gold), _named(answer)
    if gold_named is not None and gold_named.is_mapping:
        return _without_mapping(gold_named, answer, answer_named)
    if gold_named is not None and len(gold_named.names) == 1:
        return _without_name(gold, gold_named, answer, answer_named)
    if RELATION.search(gold):
        return gold, answer
    if answer_named is not None and answer_named.is_mapping:
        named_apart = not _number_solutions(answer_named.names)
        return gold, answer_named.tuples(
            _in_order(answer_named.names)
        ) if named_apart else answer_named.values
    if answer_named is not None and len(answer_named.names) == 1:
        return gold, answer_named.values
    described = _DESCRIBED.fullmatch(answer) or _TURNED.fullmatch(answer)
    if described is not None and not RELATION.search(described["value"]):
        return gold, described["value"]
    return gold, answer


def _without_mapping(gold: Named, answer: str, answer_named: Named | None) -> tuple[str, str]:
    values = gold.tuples(gold.names)
    if (
        answer_named is not None
        and answer_named.is_mapping
        and set(answer_named.names) == set(gold.names)
    ):
        return values, answer_named.tuples(gold.names)
    parts = take_apart(answer)
    if _number_solutions(gold.names) and parts is not None and parts.kind in ("", "{}"):
        return gold.values, answer
    return values, answer


def _number_solutions(names: tuple[str, ...]) -> bool:
    """Return whether names such as `x_1` and `x_2` only number the solutions of one equation."""
    return len({name.partition("_")[0] for name in names}) == 1 and all(
        map(_SOLUTION.fullmatch, names)
    )


def _without_name(
    gold: str, gold_named: Named, answer: str, answer_named: Named | None
) -> tuple[str, str]:
    (name,) = gold_named.names
    if answer_named is not None and answer_named.names == (name,):
        return gold_named.values, answer_named.values
    if not RELATION.search(answer):
        return gold_named.values, answer
    turned = _TURNED.fullmatch(answer)
    if (
        turned is not None
        and re.sub(r"[\s{}]", "", turned["name"]) == name
        and not RELATION.search(turned["value"])
    ):
        return gold_named.values, turned["value"]
    # An equation may be the answer to an equation, but not to a number that has a name.
    return (gold_named.values if _is_exact(gold_named.values) else gold), answer


def _is_exact(text: str) -> bool:
    try:
        return bool(readings(text))
    except ZeroDivisionError:
        return False


def _named(text: str) -> Named | None:
    """Return names and values of a text; None where a value has no name of its own, or is a relation."""
    if RELATION.search(text) is None:
        return None
    whole = _NAMED.fullmatch(text)
    if whole is not None and not RELATION.search(whole["value"]):
        return Named(tuple(_pairs(whole)))
    parts = [part for part in split_elements(_without_brackets(text)) if part]
    matches = [_NAMED_AMONG_OTHERS.fullmatch(part) for part in parts]
    pairs = []
    for match in matches:
        if match is None or RELATION.search(match["value"]):
            return None
        pairs += _pairs(match)
    return Named(tuple(pairs)) if len(matches) > 1 else None


def _pairs(match: re.Match[str]) -> list[tuple[str, str]]:
    """Return the names and values of `name = value`; of `(x, y) = (1, 2), (3, 4)` those of the coordinates."""
    name, value = re.sub(r"[\s{}]", "", match["name"]), match["value"].strip()
    if name.startswith("(") and (points := _points(value, name.count(",") + 1)):
        coordinates = re.findall("[A-Za-z]", name)
        return [pair for point in points for pair in zip(coordinates, point, strict=True)]
    return [(name, value)]


def _points(text: str, dimension: int) -> list[tuple[str, ...]]:
    """Return the elements of a tuple or of a list of tuples, if all have that many; none for other texts."""
    parts = take_apart(text)
    if parts is None or parts.kind not in ("", "()"):
        return []
    tuples = [parts] if parts.kind == "()" else [take_apart(element) for element in parts.elements]
    points = [point.elements for point in tuples if point is not None and point.kind == "()"]
    whole = len(points) == len(tuples) and all(len(point) == dimension for point in points)
    return points if whole else []


def _without_brackets(text: str) -> str:
    """Return a text without the brackets or set braces around all of it."""
    match = re.fullmatch(
        r"\((?P<round>[^()]*)\)|\\\{(?P<braces>(?:(?!\\[{}]).)*)\\\}", text, re.DOTALL
    )
    return text if match is None else (match["round"] or match["braces"] or "").strip()


def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names in the order that coordinates have: that of the alphabet or of their indices, else as written."""
    return tuple(sorted(names)) if all(map(_PLAIN_NAME.fullmatch, names)) else names
