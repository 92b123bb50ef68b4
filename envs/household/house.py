"""Generated houses: kinds of rooms, receptacles and things, the chores that can be asked for, and a house with one.

All names are ALFWorld's, so agents meet no new word. Which thing fits where holds for generated houses only.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .game import TASK_TYPES
from .pddl import Expression, Fact, PddlProblem, nested

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
PAIRED = frozenset(
    {"cabinet", "drawer", "shelf", "stoveburner"}
)  # two of them may be reached from one place
FOR_ONE = frozenset({"coffeemachine", "handtowelholder", "toiletpaperhanger", "towelholder"})
TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
LAMP = "desklamp"


@dataclass(frozen=True)
class ThingKind:
    """A kind of things.

    `can` holds `clean`, `heat`, `cool`, `slice` where that can be done with it; `cut` for knives, `vessel` for what can
    hold other things, `lamp` for what is switched on and cannot be picked up.
    """

    name: str
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
BECOMES = {"clean": "clean", "heat": "hot", "cool": "cool"}


@dataclass(frozen=True)
class Chore:
    """A task: what has to be done with one or two things of a kind."""

    task_type: str  # one of `TASK_TYPES`
    thing: str  # the kind of the wanted things
    target: str  # the kind of receptacles where they belong; for a look the kind of the lamp

    @property
    def number(self) -> int:  # of wanted things
        return 2 if self.task_type == TWO else 1

    @property
    def verb(self) -> str:
        """What has to be done with the thing first: `clean`, `heat`, `cool` or nothing."""
        return _VERBS.get(self.task_type, "")

    @property
    def tool(self) -> str:  # the kind of receptacles that do it
        return TOOLS.get(self.verb, "")

    def sentence(self, form: int) -> str:
        """Return the sentence that states the task, in form 0 or 1."""
        words: str = TABLES["sentences"][self.task_type][form]
        return f"Your task is to: {words.format(thing=self.thing, target=self.target)}."

    def sources(self) -> tuple[str, ...]:
        """Return the kinds of receptacles where a wanted thing may lie in the beginning, the usual ones first."""
        return tuple(
            kind for kind in THINGS[self.thing].fits if kind not in (self.target, self.tool)
        )

    def goal(self) -> Expression:
        """Return the goal as PDDL in nested lists."""
        form = TABLES["goals"].get(self.task_type, TABLES["goals"]["other"])
        able = f"({self.verb}able ?o) (is{BECOMES[self.verb]} ?o) " if self.verb else ""
        return nested(
            form.format(thing=f"{self.thing}type", target=f"{self.target}type", able=able)
        )


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
        possible = tuple(
            chore
            for chore in (Chore(task_type, name, target) for target in targets)
            if chore.sources()
        )
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


AGENT = "agent1"
_FACTS = {"lamp": "toggleable", "vessel": "isreceptacleobject"} | {
    verb: verb + "able" for verb in (*TOOLS, "slice")
}


class Receptacle(NamedTuple):
    """A receptacle: its kind, its number in the text, and the place from which it is reached."""

    kind: str
    number: int
    place: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


class Thing(NamedTuple):
    """A thing: its kind, its number in the text, the index of its receptacle, and whether it is clean."""

    kind: str
    number: int
    inside: int
    clean: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True)
class House:
    """A house with a task."""

    chore: Chore  # what is to be done
    form: int  # in which of two sentences the task is stated
    rooms: tuple[str, ...]  # the rooms of the house; the text does not tell of them
    receptacles: tuple[
        Receptacle, ...
    ]  # its receptacles; places are numbered from 1, the agent begins at place 0
    things: tuple[Thing, ...]  # its things, the wanted ones first
    target: int  # the receptacle to which the walkthrough leads

    @property
    def signature(self) -> str:
        """A text that is the same for two houses exactly if their tasks are, however they are worded."""
        receptacles = " ".join(
            sorted(f"{kind}-{number}-{place}" for kind, number, place in self.receptacles)
        )
        where = [f"{receptacle.kind}-{receptacle.number}" for receptacle in self.receptacles]
        things = sorted(
            f"{kind}-{number}-{where[inside]}-{clean:d}"
            for kind, number, inside, clean in self.things
        )
        return f"{self.chore.task_type} {self.chore.thing} {self.chore.target}: {receptacles}: {' '.join(things)}"

    def problem(self) -> PddlProblem:
        """Return the house as the PDDL problem that the engine plays."""
        ids, things = _ids(self.receptacles), _ids(self.things)
        places = [
            f"loc_bar_{place}"
            for place in range(max(receptacle.place for receptacle in self.receptacles) + 1)
        ]
        types = {
            AGENT: "agent",
            **dict.fromkeys(places, "location"),
            **dict.fromkeys(ids, "receptacle"),
        }
        types |= dict.fromkeys(things, "object")
        facts: list[Fact] = [("atlocation", AGENT, places[0])]
        for one, id in zip(self.receptacles, ids):
            facts += (
                ("receptacletype", id, f"{one.kind}type"),
                ("receptacleatlocation", id, places[one.place]),
            )
            if one.kind in OPENABLE:
                facts.append(("openable", id))
        for thing, id in zip(self.things, things):
            at = self.receptacles[thing.inside]
            facts += (
                ("objecttype", id, f"{thing.kind}type"),
                ("inreceptacle", id, ids[thing.inside]),
            )
            facts.append(("objectatlocation", id, places[at.place]))
            facts.extend((fact, id) for fact in self._properties(thing, at.kind))
        kinds, held = (
            {receptacle.kind for receptacle in self.receptacles},
            {thing.kind for thing in self.things},
        )
        room = [(fit, kind) for kind in held for fit in THINGS[kind].fits if fit in kinds]
        facts.extend(("cancontain", f"{fit}type", f"{kind}type") for fit, kind in room)
        types |= {f"{kind}type": "rtype" for kind in kinds} | {
            f"{kind}type": "otype" for kind in held
        }
        return PddlProblem(types, frozenset(facts), self.chore.goal())

    def _properties(self, thing: Thing, at: str) -> Iterator[str]:
        """Yield the predicates of a thing alone; no wanted thing is in the state that the task asks for."""
        can = THINGS[thing.kind].can
        if "lamp" not in can:
            yield "pickupable"
        yield from (fact for able, fact in _FACTS.items() if able in can)
        if thing.kind == self.chore.thing:
            return
        if thing.clean:
            yield "isclean"
        if at == "fridge" and "cool" in can:
            yield "iscool"
        if at == "microwave" and "heat" in can:
            yield "ishot"

    def walkthrough(self) -> Iterator[str]:
        """Yield commands that do the task, in the present form of the text."""
        chore, place, opened = self.chore, 0, set[int]()

        def reach(i: int, inside: bool) -> Iterator[str]:
            nonlocal place
            receptacle = self.receptacles[i]
            if receptacle.place != place:
                yield f"go to {receptacle.name}"
                place = receptacle.place
            if inside and receptacle.kind in OPENABLE and i not in opened:
                yield f"open {receptacle.name}"
                opened.add(i)

        for thing in self.things[: chore.number]:
            yield from reach(thing.inside, inside=True)
            yield f"take {thing.name} from {self.receptacles[thing.inside].name}"
            if chore.verb:
                tool = next(
                    i
                    for i, receptacle in enumerate(self.receptacles)
                    if receptacle.kind == chore.tool
                )
                yield from reach(tool, inside=False)
                yield f"{chore.verb} {thing.name} with {self.receptacles[tool].name}"
            yield from reach(self.target, inside=chore.task_type != LOOK)
            if chore.task_type != LOOK:
                yield f"move {thing.name} to {self.receptacles[self.target].name}"
        if chore.task_type == LOOK:
            lamp = next(
                thing
                for thing in self.things
                if thing.kind == chore.target and thing.inside == self.target
            )
            yield f"use {lamp.name}"

    @property
    def task(self) -> str:
        return self.chore.sentence(self.form)


def _ids(named: Iterable[Receptacle | Thing]) -> list[str]:
    """Return ids that get these names: the engine numbers things of a kind backwards in the order of their ids."""
    left, ids = Counter(one.kind for one in named), []
    for kind, number, *_ in named:
        place = f"bar_{left[kind] - number:02}"  # a basin's name is the part before the bar, and `basin`
        ids.append(
            f"{kind[:-5]}_{place}_bar_{kind}" if kind.endswith("basin") else f"{kind}_{place}"
        )
    return ids
