"""PDDL as far as ALFWorld games use it: problems, goals, the state, the conditions of success.

`parse_problem` reads a problem and `to_pddl` writes one. `parse_goal` turns a goal into conditions
that are checked against a `State`.

PDDL does not distinguish upper from lower case; everything here is in lower case, as in ALFWorld's
planner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, count
from typing import NamedTuple, TypeAlias

Expression: TypeAlias = "str | list[Expression]"
"""A PDDL expression: a word, or a list for what is in parentheses."""
Fact: TypeAlias = tuple[str, ...]
"""A predicate and its arguments, such as `("inreceptacle", "mug_bar_1", "desk_bar_1")`."""

_COMMENT = re.compile(r";[^\n]*")
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class PddlProblem:
    """What a problem declares."""

    types: dict[str, str]  # the type of each declared object
    facts: frozenset[Fact]  # the initial facts
    goal: Expression

    @cached_property
    def arguments_by_predicate(self) -> dict[str, list[Fact]]:
        """The arguments of the initial facts of each predicate, sorted."""
        arguments: dict[str, list[Fact]] = {}
        for fact in sorted(self.facts):
            arguments.setdefault(fact[0], []).append(fact[1:])
        return arguments


def parse_problem(text: str) -> PddlProblem:
    """Parse a PDDL problem; costs such as `(= (total-cost) 0)` are skipped.

    Raises:
        ValueError: The text is not a problem, or lacks a section. The message is the end of a
            sentence whose subject is the problem.
    """
    # A problem is `(define (:objects ...) (:init FACT ...) (:goal EXPRESSION))`.
    definition = parse_expression(text)
    if not isinstance(definition, list) or definition[:1] != ["define"]:
        raise ValueError("is no PDDL problem: it does not begin with (define")
    sections: dict[str, list[Expression]] = {}
    for section in definition[1:]:
        if isinstance(section, list) and section and isinstance(section[0], str):
            name = section[0]
            sections[name] = section[1:]
    for name in (":objects", ":init", ":goal"):
        if name not in sections:
            raise ValueError(f"is no complete PDDL problem: it has no {name}")
    if len(sections[":goal"]) != 1:
        raise ValueError("has a :goal that is not one expression")
    facts = set()
    for expression in sections[":init"]:
        is_cost = isinstance(expression, list) and expression[:1] == ["="]
        if not is_cost:
            facts.add(_parse_fact(expression))
    types = dict(parse_typed_list(sections[":objects"]))
    return PddlProblem(types, frozenset(facts), goal=sections[":goal"][0])


def parse_typed_list(words: list[Expression]) -> list[tuple[str, str]]:
    """Return the (name, type) pairs of a typed list; a name without a type is an `object`.

    Example: the words of `?o1 ?o2 - object ?r - receptacle` give
    `[("?o1", "object"), ("?o2", "object"), ("?r", "receptacle")]`.

    Raises:
        ValueError: The list contains an expression in parentheses.
    """
    pairs: list[tuple[str, str]] = []
    untyped_names: list[str] = []
    remaining_words = iter(words)
    for word in remaining_words:
        if not isinstance(word, str):
            raise ValueError(f"has an expression in a list of names: {word!r}")
        if word == "-":  # the next word is the type of all names since the last type
            type_name = str(next(remaining_words, ""))
            pairs += [(name, type_name) for name in untyped_names]
            untyped_names = []
        else:
            untyped_names.append(word)
    return pairs + [(name, "object") for name in untyped_names]


def _parse_fact(expression: Expression) -> Fact:
    if not isinstance(expression, list) or not expression:
        raise ValueError(f"has {expression!r} where a fact should be")
    words = tuple(word for word in expression if isinstance(word, str))
    if len(words) != len(expression):
        raise ValueError(f"has an initial fact that is no plain fact: {expression!r}")
    return words


def parse_expression(text: str) -> Expression:
    """Parse the text of one PDDL expression: `(not (ishot ?o))` -> `["not", ["ishot", "?o"]]`.

    Raises:
        ValueError: The parentheses do not match. The message is the end of a sentence.
    """
    # The lists that are still open, outermost first; the first one collects whole expressions.
    open_lists: list[list[Expression]] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text.lower())):
        if token == "(":
            open_lists.append([])
        elif token == ")":
            closed_list = open_lists.pop()
            if not open_lists:
                raise ValueError("closes a parenthesis that it did not open")
            open_lists[-1].append(closed_list)
        else:
            open_lists[-1].append(token)
    if len(open_lists) > 1:
        raise ValueError("does not close its parentheses")
    expressions = open_lists[0]
    if len(expressions) != 1:
        raise ValueError("is not one PDDL expression")
    return expressions[0]


class State(NamedTuple):
    """The state of a world.

    Things, receptacles and places are indices into the tables of the `World`. A set of them is a
    bit mask: an int whose bit `i` is set if `i` is in the set.

    Args:
        place: Where the agent is.
        in_hand: The thing in its hand, -1 for none.
        inside: For each receptacle the set of things in or on it.
        known_places: For each thing the set of places where it is known to be (only `slice` and
            `look` need it).
        opened: The receptacles that are open.
        clean: The things that were cleaned, and likewise `hot`, `cool`, `sliced` and `toggled`.
        taken_from: For each receptacle the set of things that were taken from it and not put back.
    """

    place: int
    in_hand: int
    inside: tuple[int, ...]
    known_places: tuple[int, ...]
    opened: int
    clean: int
    hot: int
    cool: int
    sliced: int
    toggled: int
    taken_from: tuple[int, ...]


def iterate_bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set in `mask`, ascending: `0b1010` -> 1, 3."""
    while mask:
        lowest_bit = mask & -mask
        yield lowest_bit.bit_length() - 1
        mask ^= lowest_bit


def replace_item(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    """Return a copy of `values` with `value` at `index`."""
    return (*values[:index], value, *values[index + 1 :])


@dataclass(frozen=True)
class PlacedCondition:
    """Enough things of a kind, in the wanted states, are in or on one receptacle of a kind."""

    things: int  # the set of things of the kind
    receptacles: tuple[int, ...]  # the receptacles of the kind
    flags: tuple[str, ...]  # the wanted states, fields of `State` such as `hot`
    number: int  # of things that must be in or on the same receptacle

    def is_met(self, state: State) -> bool:
        """Return whether a receptacle has enough of the things that are in the wanted states."""
        # Sets of things are bit masks.
        things = self.things
        for flag in self.flags:
            things &= getattr(state, flag)
        if not things:
            return False
        inside = state.inside
        number = self.number
        return any(
            (inside[receptacle] & things).bit_count() >= number for receptacle in self.receptacles
        )


@dataclass(frozen=True)
class LampCondition:
    """A switched-on lamp is in or on a receptacle at the agent's place."""

    lamps: int  # the set of lamps of the wanted kind
    receptacles_at: tuple[tuple[int, ...], ...]  # for each place the receptacles there

    def is_met(self, state: State) -> bool:
        """Return whether such a lamp is on where the agent is; sets of lamps are bit masks."""
        lamps_on = self.lamps & state.toggled
        if not lamps_on:
            return False
        return any(
            state.inside[receptacle] & lamps_on for receptacle in self.receptacles_at[state.place]
        )


@dataclass(frozen=True)
class InHandCondition:
    """The agent has a thing of a kind in its hand."""

    things: int  # the set of things of the kind

    def is_met(self, state: State) -> bool:
        return state.in_hand >= 0 and self.things >> state.in_hand & 1 == 1


Condition: TypeAlias = "PlacedCondition | LampCondition | InHandCondition"

FindByProperty: TypeAlias = Callable[[str, str], int]
"""Returns the set of things or receptacles with a fixed property: `("objecttype", "mugtype")` gives
all mugs, `("cleanable", "")` gives all things that can be cleaned."""

_ABILITIES = ("cleanable", "heatable", "coolable", "toggleable", "sliceable", "pickupable")
FLAG_BY_PREDICATE = {f"is{flag}": flag for flag in ("clean", "hot", "cool", "sliced", "toggled")}
"""The field of `State` that says whether a predicate is true, such as `hot` for `ishot`."""


class _Conjunction(NamedTuple):
    """A subgoal without its nesting: all literals must be true for some choice of variables."""

    literals: list[Fact]  # a negated one begins with `not`
    variable_types: dict[str, str]  # the type of each variable


def parse_goal(
    goal: Expression, find_by_property: FindByProperty, receptacles_at: tuple[tuple[int, ...], ...]
) -> tuple[Condition, ...]:
    """Return the conditions of a goal, all of which must be met.

    Args:
        goal: The goal of one of ALFWorld's six task types.
        find_by_property: Returns the things or receptacles with a property, as a bit mask.
        receptacles_at: For each place the receptacles there.

    Raises:
        ValueError: ALFWorld has no such goal. The message is the end of a sentence.
    """
    # Some goals are a conjunction of two subgoals: a lamp is on, and a thing is in the hand.
    subgoals: list[Expression] = [goal]
    if isinstance(goal, list) and goal[:1] == ["and"] and len(goal) > 1:
        subgoals = goal[1:]
    conditions = []
    for subgoal in subgoals:
        conjunction = _flatten_subgoal(subgoal)
        condition: Condition | None = _read_lamp_condition(
            conjunction, find_by_property, receptacles_at
        )
        if condition is None:
            condition = _read_in_hand_condition(conjunction, find_by_property)
        if condition is None:
            condition = _read_placed_condition(conjunction, find_by_property)
        if condition is None:
            raise ValueError("has a goal that none of ALFWorld's six task types states")
        conditions.append(condition)
    return tuple(conditions)


def _flatten_subgoal(subgoal: Expression) -> _Conjunction:
    """Return the literals of nested `and`, `exists` and `not`; each variable gets a unique name.

    Example: `(exists (?o - object) (and (ishot ?o) (not (= ?o x))))` has the literals
    `("ishot", "?o0")` and `("not", "=", "?o0", "x")`, and `?o0` is an `object`.

    Raises:
        ValueError: The subgoal has another form.
    """
    variable_types: dict[str, str] = {}  # by the unique name of each variable
    variable_numbers = count()

    def collect_literals(expression: Expression, unique_names: dict[str, str]) -> list[Fact]:
        """Return the literals; `unique_names` renames the variables that are in scope."""
        if not isinstance(expression, list) or not expression:
            raise ValueError(f"has {expression!r} in its goal")
        literals: list[Fact] = []
        operator = expression[0]
        if operator == "and":
            for operand in expression[1:]:
                literals += collect_literals(operand, unique_names)
            return literals
        if operator == "exists" and len(expression) == 3 and isinstance(expression[1], list):
            inner_names = dict(unique_names)
            for variable, type_name in parse_typed_list(expression[1]):
                unique_name = f"{variable}{next(variable_numbers)}"
                inner_names[variable] = unique_name
                variable_types[unique_name] = type_name
            return collect_literals(expression[2], inner_names)
        if operator == "not" and len(expression) == 2:
            positive_literals = collect_literals(expression[1], unique_names)
            return [("not", *literal) for literal in positive_literals]
        words = [word for word in expression if isinstance(word, str)]
        if len(words) != len(expression):
            raise ValueError(f"has {expression!r} in its goal")
        return [tuple(unique_names.get(word, word) for word in words)]

    literals = collect_literals(subgoal, unique_names={})
    return _Conjunction(literals, variable_types)


def _read_placed_condition(
    conjunction: _Conjunction, find_by_property: FindByProperty
) -> PlacedCondition | None:
    """Return the condition that one or several things of a kind are in a kind of receptacle.

    Its literals, in any order, for two hot mugs in one cabinet:

        (objecttype ?o1 mugtype) (ishot ?o1) (inreceptacle ?o1 ?r)
        (objecttype ?o2 mugtype) (ishot ?o2) (inreceptacle ?o2 ?r)
        (receptacletype ?r cabinettype)
        (not = ?o1 ?o2)

    Returns:
        The condition; None if the literals are others than these.
    """
    literals, variable_types = conjunction
    negations = []
    receptacle_of = {}  # the variable of the receptacle, by the variable of each thing
    properties = []
    for literal in literals:
        if literal[0] == "not":
            negations.append(literal)
        elif literal[0] == "inreceptacle":
            receptacle_of[literal[1]] = literal[2]
        else:
            properties.append(literal)

    # The variables are things and the one receptacle that all of them are in.
    things = set(receptacle_of)
    receptacles = set(receptacle_of.values())
    if len(receptacles) != 1 or things | receptacles != set(variable_types):
        return None
    receptacle = receptacles.pop()

    # The literals must ask the same of each thing: one kind, the same states.
    wanted_things = {_read_wanted_things(thing, properties, find_by_property) for thing in things}
    receptacle_kinds = set()
    for literal in properties:
        if literal[:2] == ("receptacletype", receptacle):
            receptacle_kinds.add(literal[2])
        elif literal[1] not in things:
            return None
    if len(wanted_things) != 1 or len(receptacle_kinds) != 1:
        return None
    wanted = wanted_things.pop()
    if wanted is None:
        return None

    # No two variables stand for the same thing, and nothing else is negated.
    if any(literal[1] != "=" for literal in negations):
        return None
    different_pairs = {frozenset(literal[2:]) for literal in negations}
    all_pairs = {frozenset(pair) for pair in combinations(things, 2)}
    if different_pairs != all_pairs:
        return None

    receptacles_of_kind = find_by_property("receptacletype", receptacle_kinds.pop())
    return PlacedCondition(
        things=wanted.things,
        receptacles=tuple(iterate_bits(receptacles_of_kind)),
        flags=wanted.flags,
        number=len(things),
    )


_LAMP_PREDICATES = {
    "objecttype",
    "toggleable",
    "istoggled",
    "inreceptacle",
    "receptacleatlocation",
    "atlocation",
}


def _read_lamp_condition(
    conjunction: _Conjunction,
    find_by_property: FindByProperty,
    receptacles_at: tuple[tuple[int, ...], ...],
) -> LampCondition | None:
    """Return the condition that a lamp is on at the agent's place.

    Its literals, in any order:

        (objecttype ?lamp desklamptype) (toggleable ?lamp) (istoggled ?lamp)
        (inreceptacle ?lamp ?receptacle) (receptacleatlocation ?receptacle ?place)
        (atlocation ?agent ?place)

    Args:
        conjunction: A part of a goal.
        find_by_property: Returns the things with a property, as a bit mask.
        receptacles_at: For each place the receptacles there.

    Returns:
        The condition; None if the literals are others than these.
    """
    literals, variable_types = conjunction
    arguments = {literal[0]: literal[1:] for literal in literals}
    if set(arguments) != _LAMP_PREDICATES:
        return None
    lamp, receptacle = arguments["inreceptacle"]
    place = arguments["atlocation"][1]
    if arguments["toggleable"] != (lamp,) or arguments["istoggled"] != (lamp,):
        return None
    if arguments["receptacleatlocation"] != (receptacle, place):
        return None
    if arguments["objecttype"][0] != lamp:
        return None
    # Each predicate once, and no variable besides lamp, receptacle, agent and place.
    if len(literals) != len(_LAMP_PREDICATES) or len(variable_types) != 4:
        return None
    lamp_kind = arguments["objecttype"][1]
    lamps = find_by_property("objecttype", lamp_kind) & find_by_property("toggleable", "")
    return LampCondition(lamps, receptacles_at)


def _read_in_hand_condition(
    conjunction: _Conjunction, find_by_property: FindByProperty
) -> InHandCondition | None:
    """Return the condition that the agent has a thing of a kind in its hand.

    Its literals, in any order: `(holds ?agent ?thing)`, `(objecttype ?thing mugtype)` and maybe
    abilities such as `(cleanable ?thing)`.

    Returns:
        The condition; None if the literals are others than these.
    """
    literals, variable_types = conjunction
    things_in_hand = [literal[2] for literal in literals if literal[0] == "holds"]
    other_literals = [literal for literal in literals if literal[0] != "holds"]
    if len(things_in_hand) != 1 or len(variable_types) != 2:
        return None
    thing = things_in_hand[0]
    wanted = _read_wanted_things(thing, other_literals, find_by_property)
    if wanted is None or wanted.flags:
        return None
    if any(literal[1] != thing for literal in other_literals):
        return None
    return InHandCondition(wanted.things)


class _WantedThings(NamedTuple):
    """The things that a variable of a goal can stand for, and the states that they must have."""

    things: int  # the set of things
    flags: tuple[str, ...]  # fields of `State` such as `hot`, sorted


def _read_wanted_things(
    variable: str, literals: list[Fact], find_by_property: FindByProperty
) -> _WantedThings | None:
    """Return which things a variable of a goal can stand for, and the states they must have.

    Args:
        variable: The variable, such as `?o0`. Literals about other variables are ignored.
        literals: Literals such as `("objecttype", "?o0", "mugtype")` for the kind,
            `("cleanable", "?o0")` for an ability and `("ishot", "?o0")` for a state.
        find_by_property: Returns the things with a property, as a bit mask.

    Returns:
        The things; None if a literal states anything else, or none a kind or ability.
    """
    things = -1  # the set of all things: every bit is set
    flags = []
    for literal in literals:
        if literal[1] != variable:
            continue
        predicate = literal[0]
        if predicate == "objecttype":
            things &= find_by_property("objecttype", literal[2])
        elif predicate in _ABILITIES:
            things &= find_by_property(predicate, "")
        elif predicate in FLAG_BY_PREDICATE:
            flags.append(FLAG_BY_PREDICATE[predicate])
        else:
            return None
    if things == -1:
        return None
    return _WantedThings(things, tuple(sorted(flags)))


def to_pddl(problem: PddlProblem) -> str:
    """Return a problem as PDDL text; equal problems have equal texts."""
    object_lines = [f"    {id} - {type_name}" for id, type_name in sorted(problem.types.items())]
    fact_lines = []
    for predicate, argument_lists in problem.arguments_by_predicate.items():
        for arguments in argument_lists:
            fact_lines.append(f"    ({predicate} {' '.join(arguments)})")
    lines = [
        "(define (problem house)",
        "  (:domain alfred)",
        "  (:objects",
        "\n".join(object_lines),
        "  )",
        "  (:init",
        "    (= (total-cost) 0)",
        "\n".join(fact_lines),
        "  )",
        f"  (:goal {_format_expression(problem.goal)})",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _format_expression(expression: Expression) -> str:
    if isinstance(expression, str):
        return expression
    return f"({' '.join(_format_expression(operand) for operand in expression)})"
