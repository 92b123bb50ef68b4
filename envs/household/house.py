"""Generated houses: what they consist of, the tasks that can be set, and one house with a task.

`House` is a house with a task; `generate.draw_house` draws one. `Chore` is a task and `chores`
lists all of a type. The kinds of rooms, receptacles and things are in `chores.toml`.

All names are ALFWorld's, so an agent meets no new word. Which thing fits where is true of generated
houses only.
"""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .game import TASK_TYPES
from .pddl import Expression, Fact, PddlProblem, parse_expression

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
"""The kinds of receptacles that have to be opened."""
PAIRED = frozenset({"cabinet", "drawer", "shelf", "stoveburner"})
"""The kinds of receptacles of which two may be reached from one place."""
FOR_ONE = frozenset({"coffeemachine", "handtowelholder", "toiletpaperhanger", "towelholder"})
"""The kinds of receptacles that have room for one thing."""
APPLIANCES = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""The kind of receptacle that each verb needs."""
LAMP = "desklamp"


@dataclass(frozen=True)
class ThingKind:
    """A kind of things.

    Args:
        name: The name of the kind.
        can: `clean`, `heat`, `cool`, `slice` if that can be done with it; `cut` for knives,
            `vessel` for what can contain other things, `lamp` for what is switched on and cannot be
            picked up.
        usual: The kinds of receptacles where it is likely to lie.
        fits: All kinds of receptacles where it may be put, the usual ones first.
    """

    name: str
    can: frozenset[str]
    usual: tuple[str, ...]
    fits: tuple[str, ...]


def _make_thing_kinds(rows: dict[str, dict[str, list[str]]]) -> dict[str, ThingKind]:
    """Return the kinds of things by name, from the rows `can`, `usual` and `others` of each."""
    kinds = {}
    for name, row in rows.items():
        usual = tuple(row["usual"])
        fits = usual + tuple(row["others"])
        kinds[name] = ThingKind(name=name, can=frozenset(row["can"]), usual=usual, fits=fits)
    return kinds


TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("chores.toml").read_text("utf-8"))
ROOMS: dict[str, dict[str, int]] = TABLES["rooms"]
"""For each kind of room the most receptacles of each kind in it."""
THINGS = _make_thing_kinds(TABLES["things"])
"""The kinds of things by name."""
PORTABLE = tuple(name for name, kind in THINGS.items() if "lamp" not in kind.can)
"""The names of the kinds of things that can be picked up."""

PLACE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES
_VERBS = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
STATE_AFTER = {"clean": "clean", "heat": "hot", "cool": "cool"}
"""The state in which each verb leaves a thing."""


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
    def appliance(self) -> str:
        """The kind of receptacles to do it with, empty for none."""
        return APPLIANCES.get(self.verb, "")

    def sentence(self, form: int) -> str:
        """Return the sentence that states the task, in form 0 or 1."""
        words: str = TABLES["sentences"][self.task_type][form]
        return f"Your task is to: {words.format(thing=self.thing, target=self.target)}."

    def sources(self) -> tuple[str, ...]:
        """Return the kinds of receptacles where a wanted thing may lie first, usual ones first."""
        fits = THINGS[self.thing].fits
        return tuple(kind for kind in fits if kind not in (self.target, self.appliance))

    def goal(self) -> Expression:
        """Return the goal in PDDL."""
        goals: dict[str, str] = TABLES["goals"]
        template = goals.get(self.task_type, goals["other"])
        treated = ""
        if self.verb:
            treated = f"({self.verb}able ?o) (is{STATE_AFTER[self.verb]} ?o) "
        return parse_expression(
            template.format(thing=f"{self.thing}type", target=f"{self.target}type", treated=treated)
        )


@cache
def chores(task_type: str) -> dict[str, tuple[Chore, ...]]:
    """Return all chores of a task type, by the kind of the wanted things.

    Kinds of things without a chore are left out.
    """
    chores_by_thing = {}
    for thing_name in PORTABLE:
        possible_chores = []
        for target in _list_targets(task_type, THINGS[thing_name]):
            chore = Chore(task_type, thing=thing_name, target=target)
            # If its things could lie nowhere but at the target, it would be done at the start.
            if chore.sources():
                possible_chores.append(chore)
        if possible_chores:
            chores_by_thing[thing_name] = tuple(possible_chores)
    return chores_by_thing


def _list_targets(task_type: str, thing_kind: ThingKind) -> tuple[str, ...]:
    """Return the targets that a chore of a type can have for a kind of things; empty for none."""
    if task_type == LOOK:
        return (LAMP,)
    if task_type == TWO:
        return tuple(target for target in thing_kind.fits if target not in FOR_ONE)
    if task_type in _VERBS and _VERBS[task_type] not in thing_kind.can:
        return ()
    return thing_kind.fits


@cache
def list_hiding_places(chore: Chore, usual: bool, hidden: bool | None) -> tuple[str, ...]:
    """Return the kinds of receptacles where the wanted things of a chore may lie at a difficulty.

    Args:
        chore: The chore, whose `sources()` are narrowed down.
        usual: True for receptacles where such things usually lie, False for the others.
        hidden: True for receptacles that have to be opened, False for open ones, None for either.

    Returns:
        At least one kind, because a condition that no kind meets is ignored.
    """
    candidates = chore.sources()
    if hidden is not None:
        as_hidden_as_wanted = tuple(kind for kind in candidates if (kind in OPENABLE) == hidden)
        candidates = as_hidden_as_wanted or candidates
    usual_kinds = THINGS[chore.thing].usual
    as_usual_as_wanted = tuple(kind for kind in candidates if (kind in usual_kinds) == usual)
    return as_usual_as_wanted or candidates


AGENT = "agent1"
_ABILITY_PREDICATES = {
    "lamp": "toggleable",
    "vessel": "isreceptacleobject",
    "clean": "cleanable",
    "heat": "heatable",
    "cool": "coolable",
    "slice": "sliceable",
}
"""The predicate that states an entry of `ThingKind.can` in PDDL; knives are known by their type."""


class Receptacle(NamedTuple):
    """A receptacle of a house."""

    kind: str
    number: int  # its number in the text
    place: int  # the place from which it is reached

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


class Thing(NamedTuple):
    """A thing in a house."""

    kind: str
    number: int  # its number in the text
    inside: int  # the index of the receptacle that it is in or on
    clean: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True)
class House:
    """A house with a task.

    Args:
        chore: The task.
        form: In which of two sentences it is stated, 0 or 1.
        rooms: The rooms of the house; the text does not mention them.
        receptacles: Its receptacles. Places are numbered from 1; the agent begins at place 0.
        things: Its things, the wanted ones first.
        target: The index of the receptacle to which the walkthrough leads.
    """

    chore: Chore
    form: int
    rooms: tuple[str, ...]
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    target: int

    @property
    def task(self) -> str:
        """The sentence that states the task."""
        return self.chore.sentence(self.form)

    @property
    def signature(self) -> str:
        """A text that two houses share if and only if they set the same task, however it is worded.

        It has the chore, the receptacles and the things, as in
        `pick_and_place_simple mug desk: desk-1-2 shelf-1-1: mug-1-shelf-1-0`.
        """
        chore = self.chore
        receptacle_texts = []
        for receptacle in self.receptacles:
            receptacle_texts.append(f"{receptacle.kind}-{receptacle.number}-{receptacle.place}")
        thing_texts = []
        for thing in self.things:
            receptacle = self.receptacles[thing.inside]
            location = f"{receptacle.kind}-{receptacle.number}"
            thing_texts.append(f"{thing.kind}-{thing.number}-{location}-{thing.clean:d}")
        return (
            f"{chore.task_type} {chore.thing} {chore.target}: "
            f"{' '.join(sorted(receptacle_texts))}: {' '.join(sorted(thing_texts))}"
        )

    def problem(self) -> PddlProblem:
        """Return the house as the PDDL problem that the game plays.

        A kind such as `desk` is an object of the problem, too: `desktype`, which has the type
        `rtype` if it is a kind of receptacles and `otype` if it is a kind of things.
        """
        receptacle_ids = _make_ids(self.receptacles)
        thing_ids = _make_ids(self.things)
        last_place = max(receptacle.place for receptacle in self.receptacles)
        place_ids = [f"loc_bar_{place}" for place in range(last_place + 1)]
        receptacle_kinds = {receptacle.kind for receptacle in self.receptacles}
        thing_kinds = {thing.kind for thing in self.things}

        facts: list[Fact] = [("atlocation", AGENT, place_ids[0])]
        for receptacle, id in zip(self.receptacles, receptacle_ids):
            facts.append(("receptacletype", id, f"{receptacle.kind}type"))
            facts.append(("receptacleatlocation", id, place_ids[receptacle.place]))
            if receptacle.kind in OPENABLE:
                facts.append(("openable", id))
        for thing, id in zip(self.things, thing_ids):
            receptacle = self.receptacles[thing.inside]
            facts.append(("objecttype", id, f"{thing.kind}type"))
            facts.append(("inreceptacle", id, receptacle_ids[thing.inside]))
            facts.append(("objectatlocation", id, place_ids[receptacle.place]))
            facts += [(predicate, id) for predicate in self._list_initial_predicates(thing)]
        for thing_kind in thing_kinds:
            for receptacle_kind in receptacle_kinds.intersection(THINGS[thing_kind].fits):
                facts.append(("cancontain", f"{receptacle_kind}type", f"{thing_kind}type"))

        types = {
            AGENT: "agent",
            **dict.fromkeys(place_ids, "location"),
            **dict.fromkeys(receptacle_ids, "receptacle"),
            **dict.fromkeys(thing_ids, "object"),
            **{f"{kind}type": "rtype" for kind in receptacle_kinds},
            **{f"{kind}type": "otype" for kind in thing_kinds},
        }
        return PddlProblem(types, frozenset(facts), self.chore.goal())

    def _list_initial_predicates(self, thing: Thing) -> list[str]:
        """Return the PDDL predicates that are true of a thing at the start of the game.

        They are its abilities, such as `cleanable`, and its states, such as `isclean`.
        """
        abilities = THINGS[thing.kind].can
        predicates = []
        if "lamp" not in abilities:
            predicates.append("pickupable")
        for ability, predicate in _ABILITY_PREDICATES.items():
            if ability in abilities:
                predicates.append(predicate)
        # A wanted thing begins without a state, so it has yet to be cleaned, heated or cooled.
        if thing.kind == self.chore.thing:
            return predicates
        if thing.clean:
            predicates.append("isclean")
        # What lies in a fridge or microwave at the start is cool or hot already.
        receptacle_kind = self.receptacles[thing.inside].kind
        if receptacle_kind == "fridge" and "cool" in abilities:
            predicates.append("iscool")
        if receptacle_kind == "microwave" and "heat" in abilities:
            predicates.append("ishot")
        return predicates

    def walkthrough(self) -> list[str]:
        """Return commands that do the task, in the present form of the text.

        Each wanted thing is taken, treated (cleaned, heated or cooled) if the chore asks for that,
        and put into or onto the target. For a look it is carried to the lamp, which is turned on.
        """
        chore = self.chore
        target = self.receptacles[self.target]
        appliances = [item for item in self.receptacles if item.kind == chore.appliance]
        writer = _WalkthroughWriter()
        for thing in self.things[: chore.number]:
            source = self.receptacles[thing.inside]
            writer.go_to(source)
            writer.open(source)
            writer.commands.append(f"take {thing.name} from {source.name}")
            if chore.verb:
                appliance = appliances[0]
                writer.go_to(appliance)
                writer.commands.append(f"{chore.verb} {thing.name} with {appliance.name}")
            writer.go_to(target)
            if chore.task_type != LOOK:
                writer.open(target)
                writer.commands.append(f"move {thing.name} to {target.name}")
        if chore.task_type == LOOK:
            lamps = [thing for thing in self.things if thing.kind == chore.target]
            lamp = next(lamp for lamp in lamps if lamp.inside == self.target)
            writer.commands.append(f"use {lamp.name}")
        return writer.commands


class _WalkthroughWriter:
    """Collects the commands of a walkthrough, without a `go to` or `open` that is not needed."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.place = 0  # where the agent is; it begins at place 0, where no receptacle is
        self.opened: set[Receptacle] = set()

    def go_to(self, receptacle: Receptacle) -> None:
        if receptacle.place != self.place:
            self.commands.append(f"go to {receptacle.name}")
            self.place = receptacle.place

    def open(self, receptacle: Receptacle) -> None:
        if receptacle.kind in OPENABLE and receptacle not in self.opened:
            self.commands.append(f"open {receptacle.name}")
            self.opened.add(receptacle)


def _make_ids(objects: Sequence[Receptacle | Thing]) -> list[str]:
    """Return an id for each object of a house, such that `world.name_all` gives it its own name.

    `name_all` numbers the objects of a kind backwards in the order of their ids, so of three mugs
    `mug 1` has the id `mug_bar_02` and `mug 3` has `mug_bar_00`. It appends `basin` to the part of
    a basin's id before the first bar, so `sinkbasin 1` has the id `sink_bar_00_bar_sinkbasin`.
    """
    counts = Counter(item.kind for item in objects)
    ids = []
    for item in objects:
        position = f"bar_{counts[item.kind] - item.number:02}"
        if item.kind.endswith("basin"):
            kind_without_basin = item.kind.removesuffix("basin")
            ids.append(f"{kind_without_basin}_{position}_bar_{item.kind}")
        else:
            ids.append(f"{item.kind}_{position}")
    return ids
