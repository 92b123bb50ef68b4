"""Kinds of rooms, receptacles and things in generated houses, and the chores that can be asked for.

All names are ALFWorld's, so agents meet no new word. Which thing fits where holds for generated houses only.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .game import TASK_TYPES
from .pddl import Expression, nested

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
PAIRED = frozenset({"cabinet", "drawer", "shelf", "stoveburner"})  # two of them may be reached from one place
FOR_ONE = frozenset({"coffeemachine", "handtowelholder", "toiletpaperhanger", "towelholder"})
TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
LAMP = "desklamp"


@dataclass(frozen=True)
class ThingKind:
    """A kind of things.

    can: What can be done with it: `clean`, `heat`, `cool`, `slice`; `cut` for knives, `vessel` for what can hold
        other things, `lamp` for what is switched on and cannot be picked up.
    """

    name: str  # its name
    can: frozenset[str]
    usual: tuple[str, ...]  # the kinds of receptacles where it is likely to lie
    fits: tuple[str, ...]  # these and the others where it may be put


def _thing(line: str) -> ThingKind:
    head, _, places = line.partition(":")
    name, *can = head.split()
    usual, _, others = places.partition(";")
    return ThingKind(name, frozenset(can), tuple(usual.split()), (*usual.split(), *others.split()))


TABLES = tomllib.loads(Path(__file__).with_name("chores.toml").read_text("utf-8"))
ROOMS: dict[str, dict[str, int]] = TABLES["rooms"]
THINGS = {kind.name: kind for kind in map(_thing, TABLES["things"].strip().splitlines())}
PICKED_UP = tuple(name for name, kind in THINGS.items() if "lamp" not in kind.can)


PLACE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES
_VERBS = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
_BECOMES = {"clean": "clean", "heat": "hot", "cool": "cool"}


@dataclass(frozen=True)
class Chore:
    """A task: what has to be done with one or two things of a kind."""

    task_type: str  # one of `TASK_TYPES`
    thing: str  # the kind of the wanted things
    target: str  # the kind of receptacles where they belong; for a look the kind of the lamp

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
        words: str = TABLES["sentences"][self.task_type][form]
        return f"Your task is to: {words.format(thing=self.thing, target=self.target)}."

    def sources(self) -> tuple[str, ...]:
        """Return the kinds of receptacles where a wanted thing may lie in the beginning, the usual ones first."""
        return tuple(kind for kind in THINGS[self.thing].fits if kind not in (self.target, self.tool))

    def goal(self) -> Expression:
        """Return the goal as PDDL in nested lists."""
        form = TABLES["goals"].get(self.task_type, TABLES["goals"]["other"])
        able = f"({self.verb}able ?o) (is{_BECOMES[self.verb]} ?o) " if self.verb else ""
        return nested(form.format(thing=f"{self.thing}type", target=f"{self.target}type", able=able))


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
    """Return the kinds of receptacles where the wanted things may be: those of `chore.sources()` that fit, or else all.

    They are where such things usually are or not, and hidden in what has to be opened or not; None is for either.
    """
    kinds = chore.sources()
    if hidden is not None:
        kinds = tuple(kind for kind in kinds if (kind in OPENABLE) == hidden) or kinds
    return tuple(kind for kind in kinds if (kind in THINGS[chore.thing].usual) == usual) or kinds
