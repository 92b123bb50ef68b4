"""When a game is won: the goals that ALFWorld's task types state, read from PDDL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from .problem import Expression, typed
from .state import State, members

Literal: TypeAlias = tuple[str, ...]
Having: TypeAlias = Callable[[str, str], int]  # the set of things or receptacles with a fixed property, by its value

_CAN = ("cleanable", "heatable", "coolable", "toggleable", "sliceable", "pickupable")
_IS = {"isclean": "clean", "ishot": "hot", "iscool": "cool", "issliced": "sliced", "istoggled": "toggled"}


@dataclass(frozen=True)
class Placed:
    """Enough things of a kind, in the wanted state, are in or on one receptacle of a kind."""

    things: int
    receptacles: tuple[int, ...]
    flags: tuple[str, ...]
    number: int

    def met(self, state: State) -> bool:
        """Return whether it is so."""
        things = self.things
        for flag in self.flags:
            things &= getattr(state, flag)
        if not things:
            return False
        inside, number = state.inside, self.number
        return any((inside[receptacle] & things).bit_count() >= number for receptacle in self.receptacles)


@dataclass(frozen=True)
class Lit:
    """A lamp that was switched on is in or on a receptacle where the agent is.

    `here` is, for each place, the receptacles there.
    """

    lamps: int
    here: tuple[tuple[int, ...], ...]

    def met(self, state: State) -> bool:
        """Return whether it is so."""
        lamps = self.lamps & state.toggled
        return lamps != 0 and any(state.inside[receptacle] & lamps for receptacle in self.here[state.place])


@dataclass(frozen=True)
class Held:
    """The agent holds a thing of a kind."""

    things: int

    def met(self, state: State) -> bool:
        """Return whether it is so."""
        return state.held >= 0 and self.things >> state.held & 1 == 1


Condition: TypeAlias = "Placed | Lit | Held"


def parse_goal(goal: Expression, having: Having, here: tuple[tuple[int, ...], ...]) -> tuple[Condition, ...]:
    """Return the conditions that must all be met.

    Args:
        goal: The goal of a problem.
        having: Gives the things or receptacles of which a predicate says a value (`objecttype`, `bowltype`), or which
            have a property (`cleanable`, "").
        here: For each place, the receptacles there.

    Raises:
        ValueError: the goal is of no kind that ALFWorld has; the message is the end of a sentence.
    """
    conditions = []
    for part in goal[1:] if isinstance(goal, list) and goal[:1] == ["and"] else [goal]:
        types: dict[str, str] = {}
        literals = list(_flat(part, {}, types, count()))
        condition = _lit(literals, types, having, here) or _held(literals, types, having)
        conditions.append(condition or _placed(literals, types, having))
    found = tuple(condition for condition in conditions if condition is not None)
    if not found or len(found) != len(conditions):
        raise ValueError("has a goal that none of ALFWorld's six task types states")
    return found


def _flat(part: Expression, names: dict[str, str], types: dict[str, str], numbers: Iterator[int]) -> Iterator[Literal]:
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


def _placed(literals: list[Literal], types: dict[str, str], having: Having) -> Condition | None:
    into = {literal[1]: literal[2] for literal in literals if literal[0] == "inreceptacle"}
    things, receptacles = set(into), set(into.values())
    if len(receptacles) != 1 or things | receptacles != set(types):
        return None
    receptacle = receptacles.pop()
    others = [literal for literal in literals if literal[0] not in ("inreceptacle", "not")]
    apart = {frozenset(literal[2:]) for literal in literals if literal[:2] == ("not", "=")}
    pairs = {frozenset((one, other)) for one in things for other in things if one != other}
    kinds = {_kind(thing, others, having) for thing in things}
    kept = {literal[2] for literal in others if literal[0] == "receptacletype" and literal[1] == receptacle}
    plain = all(literal[1] in things or literal[:2] == ("receptacletype", receptacle) for literal in others)
    plain &= all(literal[1] == "=" for literal in literals if literal[0] == "not")
    if apart != pairs or len(kinds) != 1 or None in kinds or len(kept) != 1 or not plain:
        return None
    found = kinds.pop()
    if found is None:
        return None
    return Placed(found[0], tuple(members(having("receptacletype", kept.pop()))), found[1], len(things))


def _lit(
    literals: list[Literal], types: dict[str, str], having: Having, here: tuple[tuple[int, ...], ...]
) -> Condition | None:
    by = {literal[0]: literal[1:] for literal in literals}
    if set(by) != {"objecttype", "toggleable", "istoggled", "receptacleatlocation", "atlocation", "inreceptacle"}:
        return None
    lamp, receptacle = by["inreceptacle"]
    place = by["atlocation"][1]
    fits = by["toggleable"] == by["istoggled"] == (lamp,) and by["receptacleatlocation"] == (receptacle, place)
    if not fits or by["objecttype"][0] != lamp or len(types) != 4 or len(literals) != 6:
        return None
    return Lit(having("objecttype", by["objecttype"][1]) & having("toggleable", ""), here)


def _held(literals: list[Literal], types: dict[str, str], having: Having) -> Condition | None:
    held = [literal[2] for literal in literals if literal[0] == "holds"]
    rest = [literal for literal in literals if literal[0] != "holds"]
    if len(held) != 1 or len(types) != 2:
        return None
    found = _kind(held[0], rest, having)
    if found is None or found[1] or any(literal[1] != held[0] for literal in rest):
        return None
    return Held(found[0])


def _kind(thing: str, literals: list[Literal], having: Having) -> tuple[int, tuple[str, ...]] | None:
    """Return which things can stand for a variable, and what they have to have become; None for what is not known."""
    things, flags = -1, []
    for literal in literals:
        if literal[1] != thing:
            continue
        if literal[0] == "objecttype":
            things &= having("objecttype", literal[2])
        elif literal[0] in _CAN:
            things &= having(literal[0], "")
        elif literal[0] in _IS:
            flags.append(_IS[literal[0]])
        else:
            return None
    return (things, tuple(sorted(flags))) if things >= 0 else None
