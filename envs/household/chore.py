"""A chore: what is to be done with things of one kind, as one of ALFWorld's six task types says and checks it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .game import TASK_TYPES
from .kinds import FOR_ONE, LAMP, OPENABLE, PICKED_UP, THINGS, TOOLS
from .problem import Expression

PLACE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES
_VERBS = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
_BECOMES = {"clean": "clean", "heat": "hot", "cool": "cool"}
_SENTENCES = {
    PLACE: ("put a {thing} in {target}", "put some {thing} on {target}"),
    LOOK: ("look at {thing} under the {target}", "examine the {thing} with the {target}"),
    CLEAN: ("put a clean {thing} in {target}", "clean some {thing} and put it in {target}"),
    HEAT: ("put a hot {thing} in {target}", "heat some {thing} and put it in {target}"),
    COOL: ("put a cool {thing} in {target}", "cool some {thing} and put it in {target}"),
    TWO: ("put two {thing} in {target}", "find two {thing} and put them in {target}"),
}


@dataclass(frozen=True)
class Chore:
    """What is to be done.

    Args:
        task_type: One of `TASK_TYPES`.
        thing: The kind of the wanted things.
        target: The kind of receptacles where they belong; for a look the kind of the lamp.
    """

    task_type: str
    thing: str
    target: str

    @property
    def number(self) -> int:
        """How many things are wanted."""
        return 2 if self.task_type == TWO else 1

    @property
    def verb(self) -> str:
        """What has to be done with the thing first: `clean`, `heat`, `cool` or nothing."""
        return _VERBS.get(self.task_type, "")

    @property
    def tool(self) -> str:
        """The kind of receptacles that do it."""
        return TOOLS.get(self.verb, "")

    def sentence(self, form: int) -> str:
        """Return the sentence that states the task, in form 0 or 1."""
        return f"Your task is to: {_SENTENCES[self.task_type][form].format(thing=self.thing, target=self.target)}."

    def sources(self) -> tuple[str, ...]:
        """Return the kinds of receptacles where a wanted thing may lie in the beginning, the usual ones first."""
        return tuple(kind for kind in THINGS[self.thing].fits if kind not in (self.target, self.tool))

    def goal(self) -> Expression:
        """Return the goal as PDDL in nested lists."""
        thing, target = f"{self.thing}type", f"{self.target}type"
        if self.task_type == LOOK:
            return ["and", _lit(target), _held(thing)]
        if self.task_type == TWO:
            return ["and", _two(thing, target)]
        states: list[Expression] = []
        if self.verb:
            states = [[f"{self.verb}able", "?o"], [f"is{_BECOMES[self.verb]}", "?o"]]
        return [
            "and",
            _some("?r", "receptacle", _some("?o", "object", ["and", *states, *_placed("?o", thing, target)])),
        ]


@cache
def chores(task_type: str) -> dict[str, tuple[Chore, ...]]:
    """Return every chore of a type, by the kind of the wanted things."""
    found = {}
    for name in PICKED_UP:
        kind = THINGS[name]
        if task_type == LOOK:
            targets: tuple[str, ...] = (LAMP,)
        elif task_type == TWO:
            targets = tuple(target for target in kind.fits if target not in FOR_ONE)
        else:
            targets = kind.fits if _VERBS.get(task_type, "") in ("", *kind.can) else ()
        possible = tuple(chore for chore in (Chore(task_type, name, target) for target in targets) if chore.sources())
        if possible:
            found[name] = possible
    return found


@cache
def hiding(chore: Chore, usual: bool, hidden: bool | None) -> tuple[str, ...]:
    """Return where the wanted things may lie: `chore.sources()`, as far as there are any of the kind asked for.

    usual: whether they lie where such things do. hidden: whether that has to be opened; None for either.
    """
    kinds = chore.sources()
    if hidden is not None:
        kinds = tuple(kind for kind in kinds if (kind in OPENABLE) == hidden) or kinds
    return tuple(kind for kind in kinds if (kind in THINGS[chore.thing].usual) == usual) or kinds


def _some(variable: str, kind: str, what: Expression) -> Expression:
    return ["exists", [variable, "-", kind], what]


def _placed(variable: str, thing: str, target: str) -> list[Expression]:
    return [["objecttype", variable, thing], ["receptacletype", "?r", target], ["inreceptacle", variable, "?r"]]


def _two(thing: str, target: str) -> Expression:
    other: Expression = ["and", ["not", ["=", "?o1", "?o2"]], *_placed("?o2", thing, target)]
    first: Expression = ["and", *_placed("?o1", thing, target), _some("?o2", "object", other)]
    return _some("?r", "receptacle", _some("?o1", "object", first))


def _lit(lamp: str) -> Expression:
    variables: Expression = ["?ot", "-", "object", "?r", "-", "receptacle", "?a", "-", "agent", "?l", "-", "location"]
    facts: list[Expression] = [["objecttype", "?ot", lamp], ["toggleable", "?ot"], ["istoggled", "?ot"]]
    facts += [["receptacleatlocation", "?r", "?l"], ["atlocation", "?a", "?l"], ["inreceptacle", "?ot", "?r"]]
    return ["exists", variables, ["and", *facts]]


def _held(thing: str) -> Expression:
    return [
        "exists",
        ["?o", "-", "object", "?a", "-", "agent"],
        ["and", ["objecttype", "?o", thing], ["holds", "?a", "?o"]],
    ]
