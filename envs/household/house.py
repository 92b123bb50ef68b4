"""A generated house with its task: its content, its PDDL problem and a walkthrough."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .chores import LOOK, OPENABLE, THINGS, Chore
from .pddl import Fact, Problem

AGENT = "agent1"
_ABLE = {"clean": "cleanable", "heat": "heatable", "cool": "coolable", "slice": "sliceable", "lamp": "toggleable"}
_ABLE |= {"vessel": "isreceptacleobject"}


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
    receptacles: tuple[Receptacle, ...]  # its receptacles; places are numbered from 1, the agent begins at place 0
    things: tuple[Thing, ...]  # its things, the wanted ones first
    target: int  # the receptacle to which the walkthrough leads

    @property
    def signature(self) -> str:
        """A text that is the same for two houses exactly if their tasks are, however they are worded."""
        receptacles = " ".join(sorted(f"{kind}-{number}-{place}" for kind, number, place in self.receptacles))
        where = [f"{receptacle.kind}-{receptacle.number}" for receptacle in self.receptacles]
        things = sorted(f"{kind}-{number}-{where[inside]}-{clean:d}" for kind, number, inside, clean in self.things)
        return f"{self.chore.task_type} {self.chore.thing} {self.chore.target}: {receptacles}: {' '.join(things)}"

    def problem(self) -> Problem:
        """Return the house as the PDDL problem that the engine plays."""
        ids = _ids([(receptacle.kind, receptacle.number) for receptacle in self.receptacles])
        things = _ids([(thing.kind, thing.number) for thing in self.things])
        places = [f"loc_bar_{place}" for place in range(max(receptacle.place for receptacle in self.receptacles) + 1)]
        types = {AGENT: "agent", **dict.fromkeys(places, "location"), **dict.fromkeys(ids, "receptacle")}
        types |= dict.fromkeys(things, "object")
        facts: list[Fact] = [("atlocation", AGENT, places[0])]
        for receptacle, id in zip(self.receptacles, ids):
            facts.append(("receptacletype", id, f"{receptacle.kind}type"))
            facts.append(("receptacleatlocation", id, places[receptacle.place]))
            if receptacle.kind in OPENABLE:
                facts.append(("openable", id))
        for thing, id in zip(self.things, things):
            at = self.receptacles[thing.inside]
            facts.append(("objecttype", id, f"{thing.kind}type"))
            facts.append(("inreceptacle", id, ids[thing.inside]))
            facts.append(("objectatlocation", id, places[at.place]))
            facts.extend((fact, id) for fact in self._properties(thing, at.kind))
        kinds, held = {receptacle.kind for receptacle in self.receptacles}, {thing.kind for thing in self.things}
        room = [(fit, kind) for kind in held for fit in THINGS[kind].fits if fit in kinds]
        facts.extend(("cancontain", f"{fit}type", f"{kind}type") for fit, kind in room)
        types |= {f"{kind}type": "rtype" for kind in kinds} | {f"{kind}type": "otype" for kind in held}
        return Problem(types, frozenset(facts), self.chore.goal())

    def _properties(self, thing: Thing, at: str) -> Iterator[str]:
        """Yield the predicates of a thing alone; no wanted thing is in the state that the task asks for."""
        can = THINGS[thing.kind].can
        if "lamp" not in can:
            yield "pickupable"
        yield from (fact for able, fact in _ABLE.items() if able in can)
        if thing.kind == self.chore.thing:
            return
        if thing.clean:
            yield "isclean"
        if at == "fridge" and "cool" in can:
            yield "iscool"
        if at == "microwave" and "heat" in can:
            yield "ishot"

    def walkthrough(self) -> tuple[str, ...]:
        """Return commands that do the task, in the present form of the text."""
        return tuple(_Walk(self).commands())

    @property
    def task(self) -> str:
        return self.chore.sentence(self.form)


class _Walk:
    def __init__(self, house: House) -> None:
        self.house = house
        self.place, self.opened = 0, set[int]()

    def commands(self) -> Iterator[str]:
        house, chore = self.house, self.house.chore
        for thing in house.things[: chore.number]:
            yield from self._to(thing.inside, inside=True)
            yield f"take {thing.name} from {house.receptacles[thing.inside].name}"
            if chore.verb:
                tool = next(i for i, receptacle in enumerate(house.receptacles) if receptacle.kind == chore.tool)
                yield from self._to(tool, inside=False)
                yield f"{chore.verb} {thing.name} with {house.receptacles[tool].name}"
            yield from self._to(house.target, inside=chore.task_type != LOOK)
            if chore.task_type != LOOK:
                yield f"move {thing.name} to {house.receptacles[house.target].name}"
        if chore.task_type == LOOK:
            lamp = next(thing for thing in house.things if thing.kind == chore.target and thing.inside == house.target)
            yield f"use {lamp.name}"

    def _to(self, i: int, inside: bool) -> Iterator[str]:
        receptacle = self.house.receptacles[i]
        if receptacle.place != self.place:
            yield f"go to {receptacle.name}"
            self.place = receptacle.place
        if inside and receptacle.kind in OPENABLE and i not in self.opened:
            yield f"open {receptacle.name}"
            self.opened.add(i)


def _ids(named: list[tuple[str, int]]) -> list[str]:
    """Return ids that get these names: the engine numbers things of a kind backwards in the order of their ids."""
    counts = Counter(kind for kind, _ in named)
    return [_id(kind, counts[kind] - number) for kind, number in named]


def _id(kind: str, place: int) -> str:
    if kind.endswith("basin"):  # its name is the part before the bar, and `basin`
        return f"{kind.removesuffix('basin')}_bar_{place:02}_bar_{kind}"
    return f"{kind}_bar_{place:02}"
