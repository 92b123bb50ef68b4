"""Kinds of rooms, receptacles and things in generated houses, and the chores that can be asked for.

All names are ALFWorld's, so agents meet no new word. Which thing fits where holds for generated houses only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from .game import TASK_TYPES
from .pddl import Expression

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})
PAIRED = frozenset({"cabinet", "drawer", "shelf", "stoveburner"})  # two of them may be reached from one place
FOR_ONE = frozenset({"coffeemachine", "handtowelholder", "toiletpaperhanger", "towelholder"})
TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
LAMP = "desklamp"

# room: what may stand in it, and at most how many of each
_ROOMS = {
    "kitchen": "cabinet 12, drawer 8, countertop 3, stoveburner 4, shelf 3, diningtable 1, sidetable 1, fridge 1, "
    "microwave 1, sinkbasin 1, coffeemachine 1, garbagecan 1",
    "livingroom": "sofa 2, armchair 3, coffeetable 2, sidetable 3, shelf 4, drawer 6, cabinet 4, diningtable 1, "
    "dresser 1, desk 1, ottoman 1, safe 1, garbagecan 1",
    "bedroom": "bed 2, drawer 8, shelf 6, sidetable 2, desk 1, dresser 1, armchair 1, laundryhamper 1, safe 1, "
    "garbagecan 1",
    "bathroom": "cabinet 4, drawer 4, sinkbasin 2, shelf 2, countertop 1, bathtubbasin 1, toilet 1, "
    "toiletpaperhanger 1, towelholder 2, handtowelholder 2, cart 1, laundryhamper 1, garbagecan 1",
    "study": "shelf 8, drawer 6, desk 2, cabinet 4, sidetable 2, armchair 1, sofa 1, coffeetable 1, safe 1, "
    "garbagecan 1",
}

# thing: what can be done with it beyond picking it up; where it usually lies; where else it may be put
_THINGS = """
apple        clean heat cool slice: countertop diningtable fridge; sinkbasin garbagecan microwave sidetable
bread        heat cool slice: countertop diningtable fridge; microwave garbagecan sidetable cabinet
egg          clean heat cool slice: fridge countertop; diningtable sinkbasin microwave garbagecan sidetable
lettuce      clean cool slice: fridge countertop; diningtable sinkbasin garbagecan sidetable
potato       clean heat cool slice: countertop fridge; diningtable sinkbasin microwave garbagecan cabinet sidetable
tomato       clean heat cool slice: countertop fridge diningtable; sinkbasin microwave garbagecan sidetable
bowl         clean cool vessel: cabinet countertop diningtable; fridge sinkbasin shelf microwave coffeetable sidetable
cup          clean heat cool vessel: cabinet countertop; diningtable sinkbasin fridge microwave shelf sidetable
mug          clean heat cool vessel: cabinet countertop coffeemachine; desk sinkbasin fridge microwave shelf diningtable
plate        clean heat cool vessel: cabinet diningtable countertop; sinkbasin fridge microwave shelf coffeetable
pan          clean cool vessel: stoveburner countertop cabinet; fridge sinkbasin diningtable
pot          clean cool vessel: stoveburner cabinet; countertop fridge sinkbasin diningtable shelf
kettle       clean: stoveburner countertop; cabinet diningtable sinkbasin shelf sidetable
butterknife  clean cut: drawer countertop; diningtable sinkbasin sidetable
knife        clean cut: drawer countertop; diningtable sinkbasin sidetable
fork         clean: drawer diningtable; countertop sinkbasin sidetable
spoon        clean: drawer diningtable; countertop sinkbasin sidetable
ladle        clean: drawer countertop; cabinet diningtable sinkbasin
spatula      clean: drawer countertop; diningtable sinkbasin stoveburner
dishsponge   clean: sinkbasin countertop; drawer cabinet garbagecan cart toilet bathtubbasin
saltshaker   : countertop cabinet diningtable; drawer shelf sidetable
peppershaker : countertop cabinet diningtable; drawer shelf sidetable
winebottle   cool: cabinet diningtable fridge; countertop garbagecan shelf sidetable
glassbottle  : cabinet countertop; diningtable fridge sinkbasin garbagecan shelf
candle       : coffeetable shelf toilet; drawer cabinet dresser sidetable countertop diningtable cart
cloth        clean: bathtubbasin laundryhamper sinkbasin; drawer cabinet countertop garbagecan shelf dresser cart toilet
handtowel    : handtowelholder; drawer cabinet countertop bathtubbasin sinkbasin laundryhamper cart shelf
towel        : towelholder; bathtubbasin laundryhamper bed cabinet
soapbar      clean: sinkbasin bathtubbasin; drawer cabinet countertop toilet shelf garbagecan cart
soapbottle   : countertop sinkbasin toilet; cabinet drawer shelf garbagecan cart
spraybottle  : cabinet countertop; drawer shelf toilet garbagecan cart dresser
toiletpaper  : toiletpaperhanger toilet; drawer cabinet countertop shelf garbagecan cart
tissuebox    : sidetable toilet coffeetable; desk dresser shelf drawer countertop diningtable cabinet garbagecan cart
alarmclock   : sidetable desk; dresser shelf diningtable drawer
book         : bed desk shelf; sofa armchair coffeetable diningtable sidetable dresser drawer ottoman cabinet
box          : sofa coffeetable diningtable; armchair desk dresser shelf sidetable ottoman cabinet
cd           : desk drawer shelf; dresser sidetable safe garbagecan cabinet
cellphone    : bed desk sofa; armchair sidetable coffeetable dresser drawer safe countertop diningtable ottoman shelf
creditcard   : desk sidetable; sofa armchair dresser shelf drawer safe coffeetable countertop diningtable ottoman
keychain     : sidetable coffeetable; desk dresser drawer safe sofa armchair shelf diningtable countertop ottoman
laptop       : desk bed sofa; coffeetable diningtable dresser armchair sidetable ottoman countertop safe
newspaper    : coffeetable sofa armchair; sidetable diningtable dresser drawer garbagecan shelf ottoman cabinet
pen          : desk drawer; sidetable dresser shelf coffeetable diningtable garbagecan countertop
pencil       : desk drawer; sidetable dresser shelf coffeetable diningtable garbagecan countertop
pillow       : bed sofa armchair; ottoman laundryhamper cabinet
remotecontrol: coffeetable sofa armchair; sidetable dresser drawer diningtable desk ottoman shelf
statue       : shelf dresser; coffeetable sidetable desk diningtable countertop cabinet
vase         : shelf coffeetable diningtable; cabinet sidetable dresser desk countertop
watch        : sidetable drawer; dresser desk shelf coffeetable diningtable safe
wateringcan  : sidetable shelf; coffeetable diningtable cabinet drawer dresser
desklamp     lamp: desk sidetable; dresser shelf
"""


@dataclass(frozen=True)
class ThingKind:
    """A kind of things.

    Args:
        name: Its name.
        can: What can be done with it: `clean`, `heat`, `cool`, `slice`; `cut` for knives, `vessel` for what can hold
            other things, `lamp` for what is switched on and cannot be picked up.
        usual: The kinds of receptacles where it is likely to lie.
        fits: These and the others where it may be put.
    """

    name: str
    can: frozenset[str]
    usual: tuple[str, ...]
    fits: tuple[str, ...]


def _room(words: str) -> dict[str, int]:
    return {kind: int(number) for kind, number in map(str.split, words.split(","))}


def _thing(line: str) -> ThingKind:
    head, _, places = line.partition(":")
    name, *can = head.split()
    usual, _, others = places.partition(";")
    return ThingKind(name, frozenset(can), tuple(usual.split()), (*usual.split(), *others.split()))


ROOMS = {name: _room(words) for name, words in _ROOMS.items()}
THINGS = {kind.name: kind for kind in map(_thing, _THINGS.strip().splitlines())}
PICKED_UP = tuple(name for name, kind in THINGS.items() if "lamp" not in kind.can)


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
    """A task: what has to be done with one or two things of a kind.

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
    """Return the kinds of receptacles where the wanted things may be: those of `chore.sources()` that fit, or else all.

    Args:
        chore: The task.
        usual: Whether the things are where such things usually are.
        hidden: Whether the receptacle has to be opened; None for either.
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
