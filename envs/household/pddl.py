"""PDDL as far as ALFWorld games use it: objects, initial facts, a goal, and the states that meet its conditions.

PDDL does not tell upper from lower case; everything here is in lower case, as the planner of ALFWorld reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple, TypeAlias

Expression: TypeAlias = "str | list[Expression]"
Fact: TypeAlias = tuple[str, ...]

_COMMENT = re.compile(r";[^\n]*")
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class PddlProblem:
    """What a problem declares."""

    types: dict[str, str]  # the type of each declared object
    facts: frozenset[Fact]  # the initial facts, each a predicate and its arguments
    goal: Expression  # the goal as nested lists

    @cached_property
    def by_predicate(self) -> dict[str, list[Fact]]:
        """The arguments of the facts of each predicate, sorted."""
        found: dict[str, list[Fact]] = {}
        for fact in sorted(self.facts):
            found.setdefault(fact[0], []).append(fact[1:])
        return found


def parse_problem(text: str) -> PddlProblem:
    """Read a PDDL problem, not its costs. ValueError, the end of a sentence, where it is none or lacks a part."""
    define = nested(text)
    if not isinstance(define, list) or not define or define[0] != "define":
        raise ValueError("is no PDDL problem: it does not begin with (define")
    parts = {
        part[0]: part[1:]
        for part in define[1:]
        if isinstance(part, list) and part and isinstance(part[0], str)
    }
    for name in (":objects", ":init", ":goal"):
        if name not in parts:
            raise ValueError(f"is no complete PDDL problem: it has no {name}")
    if len(parts[":goal"]) != 1:
        raise ValueError("has a :goal that is not one expression")
    facts = frozenset(
        _fact(part) for part in parts[":init"] if not isinstance(part, list) or part[:1] != ["="]
    )
    return PddlProblem(dict(typed(parts[":objects"])), facts, parts[":goal"][0])


def typed(words: list[Expression]) -> list[tuple[str, str]]:
    """Return the pairs of a typed list such as `?o1 ?o2 - object ?r - receptacle`."""
    pairs: list[tuple[str, str]] = []
    waiting: list[str] = []
    rest = iter(words)
    for word in rest:
        if not isinstance(word, str):
            raise ValueError(f"has an expression in a list of names: {word!r}")
        if word == "-":
            kind = str(next(rest, ""))
            pairs += [(name, kind) for name in waiting]
            waiting = []
        else:
            waiting.append(word)
    return pairs + [(name, "object") for name in waiting]


def _fact(expression: Expression) -> Fact:
    if not isinstance(expression, list) or not expression:
        raise ValueError(f"has {expression!r} where a fact should be")
    words = tuple(word for word in expression if isinstance(word, str))
    if len(words) != len(expression):
        raise ValueError(f"has an initial fact that is no plain fact: {expression!r}")
    return words


def nested(text: str) -> Expression:
    """Return PDDL text as nested lists; raise ValueError, the end of a sentence, where parentheses do not match."""
    stack: list[list[Expression]] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text.lower())):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            if not stack:
                raise ValueError("closes a parenthesis that it did not open")
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError(
            "does not close its parentheses" if len(stack) > 1 else "is not one PDDL expression"
        )
    return stack[0][0]


class State(NamedTuple):
    """The state of a world.

    Things, receptacles and places are numbers of the world's tables; a set of them is an int whose bit `i` is set
    where `i` is in it.

    Args:
        place: Where the agent is.
        held: The thing in its hand, -1 for none.
        inside: For each receptacle the set of things in or on it.
        around: For each thing the set of places it is known to be at (only `slice` and `look` ask for it).
        opened: The receptacles that are open.
        clean: The things that were cleaned, and likewise `hot`, `cool`, `sliced` and `toggled`.
        left: For each receptacle the set of things that were taken from it and not put back.
    """

    place: int
    held: int
    inside: tuple[int, ...]
    around: tuple[int, ...]
    opened: int
    clean: int
    hot: int
    cool: int
    sliced: int
    toggled: int
    left: tuple[int, ...]


def members(set_: int) -> Iterator[int]:
    """Iterate over a set of numbers, in order."""
    while set_:
        lowest = set_ & -set_
        yield lowest.bit_length() - 1
        set_ ^= lowest


def changed(values: tuple[int, ...], i: int, value: int) -> tuple[int, ...]:
    """Return `values` with `value` at `i`."""
    return (*values[:i], value, *values[i + 1 :])


@dataclass(frozen=True)
class Placed:
    """Enough things of a kind, in the wanted state, are in or on one receptacle of a kind."""

    things: int
    receptacles: tuple[int, ...]
    flags: tuple[str, ...]
    number: int

    def met(self, state: State) -> bool:
        things = self.things
        for flag in self.flags:
            things &= getattr(state, flag)
        if not things:
            return False
        inside, number = state.inside, self.number
        return any(
            (inside[receptacle] & things).bit_count() >= number for receptacle in self.receptacles
        )


@dataclass(frozen=True)
class Lit:
    """A switched-on lamp is in or on a receptacle where the agent is; `here` are the receptacles of each place."""

    lamps: int
    here: tuple[tuple[int, ...], ...]

    def met(self, state: State) -> bool:
        lamps = self.lamps & state.toggled
        return lamps != 0 and any(
            state.inside[receptacle] & lamps for receptacle in self.here[state.place]
        )


@dataclass(frozen=True)
class Held:
    """The agent holds a thing of a kind."""

    things: int

    def met(self, state: State) -> bool:
        return state.held >= 0 and self.things >> state.held & 1 == 1


Condition: TypeAlias = "Placed | Lit | Held"


Having: TypeAlias = Callable[
    [str, str], int
]  # the set of things or receptacles with a fixed property, by its value

_CAN = ("cleanable", "heatable", "coolable", "toggleable", "sliceable", "pickupable")
FLAGS = {
    f"is{flag}": flag for flag in ("clean", "hot", "cool", "sliced", "toggled")
}  # by predicate


def parse_goal(
    goal: Expression, having: Having, here: tuple[tuple[int, ...], ...]
) -> tuple[Condition, ...]:
    """Return the conditions that must all be met.

    `having` gives the things or receptacles of which a predicate says a value (`objecttype`, `bowltype`), or which have
    a property (`cleanable`, ""); `here` is, for each place, the receptacles there.

    Raises ValueError where the goal is of no kind that ALFWorld has; the message is the end of a sentence.
    """
    conditions = []
    for part in (goal[1:] if isinstance(goal, list) and goal[:1] == ["and"] else []) or [goal]:
        types: dict[str, str] = {}
        literals = list(_flat(part, {}, types, count()))
        found = (
            _lit(literals, types, having, here)
            or _held(literals, types, having)
            or _placed(literals, types, having)
        )
        if found is None:
            raise ValueError("has a goal that none of ALFWorld's six task types states")
        conditions.append(found)
    return tuple(conditions)


def _flat(
    part: Expression, names: dict[str, str], types: dict[str, str], numbers: Iterator[int]
) -> Iterator[Fact]:
    """Yield the literals of nested `and` and `exists`, every variable under a name of its own."""
    if not isinstance(part, list) or not part:
        raise ValueError(f"has {part!r} in its goal")
    if part[0] == "and":
        for inner in part[1:]:
            yield from _flat(inner, names, types, numbers)
    elif part[0] == "exists" and len(part) == 3 and isinstance(part[1], list):
        names = dict(names)
        for variable, kind in typed(part[1]):
            names[variable] = f"{variable}{next(numbers)}"
            types[names[variable]] = kind
        yield from _flat(part[2], names, types, numbers)
    elif part[0] == "not" and len(part) == 2:
        yield from (("not", *literal) for literal in _flat(part[1], names, types, numbers))
    else:
        words = [word for word in part if isinstance(word, str)]
        if len(words) != len(part):
            raise ValueError(f"has {part!r} in its goal")
        yield tuple(names.get(word, word) for word in words)


def _placed(literals: list[Fact], types: dict[str, str], having: Having) -> Condition | None:
    into = {literal[1]: literal[2] for literal in literals if literal[0] == "inreceptacle"}
    things, receptacles = set(into), set(into.values())
    if len(receptacles) != 1 or things | receptacles != set(types):
        return None
    receptacle = receptacles.pop()
    others = [literal for literal in literals if literal[0] not in ("inreceptacle", "not")]
    apart = {frozenset(literal[2:]) for literal in literals if literal[:2] == ("not", "=")}
    pairs = {frozenset((one, other)) for one in things for other in things if one != other}
    kinds = {_kind(thing, others, having) for thing in things}
    kept = {
        literal[2]
        for literal in others
        if literal[0] == "receptacletype" and literal[1] == receptacle
    }
    plain = all(
        literal[1] in things or literal[:2] == ("receptacletype", receptacle) for literal in others
    )
    plain &= all(literal[1] == "=" for literal in literals if literal[0] == "not")
    found = kinds.pop() if apart == pairs and len(kinds) == len(kept) == 1 and plain else None
    if found is None:
        return None
    return Placed(
        found[0], tuple(members(having("receptacletype", kept.pop()))), found[1], len(things)
    )


def _lit(
    literals: list[Fact], types: dict[str, str], having: Having, here: tuple[tuple[int, ...], ...]
) -> Condition | None:
    by = {literal[0]: literal[1:] for literal in literals}
    if set(by) != {
        "objecttype",
        "toggleable",
        "istoggled",
        "receptacleatlocation",
        "atlocation",
        "inreceptacle",
    }:
        return None
    lamp, receptacle = by["inreceptacle"]
    place = by["atlocation"][1]
    fits = by["toggleable"] == by["istoggled"] == (lamp,) and by["receptacleatlocation"] == (
        receptacle,
        place,
    )
    if not fits or by["objecttype"][0] != lamp or len(types) != 4 or len(literals) != 6:
        return None
    return Lit(having("objecttype", by["objecttype"][1]) & having("toggleable", ""), here)


def _held(literals: list[Fact], types: dict[str, str], having: Having) -> Condition | None:
    held = [literal[2] for literal in literals if literal[0] == "holds"]
    rest = [literal for literal in literals if literal[0] != "holds"]
    if len(held) != 1 or len(types) != 2:
        return None
    found = _kind(held[0], rest, having)
    if found is None or found[1] or any(literal[1] != held[0] for literal in rest):
        return None
    return Held(found[0])


def _kind(thing: str, literals: list[Fact], having: Having) -> tuple[int, tuple[str, ...]] | None:
    """Return which things can stand for a variable, and what they have to have become; None for what is not known."""
    things, flags = -1, []
    for literal in literals:
        if literal[1] != thing:
            continue
        if literal[0] == "objecttype":
            things &= having("objecttype", literal[2])
        elif literal[0] in _CAN:
            things &= having(literal[0], "")
        elif literal[0] in FLAGS:
            flags.append(FLAGS[literal[0]])
        else:
            return None
    return (things, tuple(sorted(flags))) if things >= 0 else None


def to_pddl(problem: PddlProblem) -> str:
    """Return a problem as PDDL text, in one fixed order."""
    objects = "\n".join(f"    {id} - {kind}" for id, kind in sorted(problem.types.items()))
    listed = problem.by_predicate.items()
    facts = "\n".join(
        f"    ({name} {' '.join(words)})" for name, found in listed for words in found
    )
    return (
        f"(define (problem house)\n  (:domain alfred)\n  (:objects\n{objects}\n  )\n"
        f"  (:init\n    (= (total-cost) 0)\n{facts}\n  )\n  (:goal {_shown(problem.goal)})\n)\n"
    )


def _shown(expression: Expression) -> str:
    return expression if isinstance(expression, str) else f"({' '.join(map(_shown, expression))})"
