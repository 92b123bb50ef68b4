"""The constant part of the house of one game, made from a PDDL problem.

Things and receptacles are numbered in the order of their ids, which is the order in which the text lists them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from .pddl import FLAGS, Condition, PddlProblem, State, parse_goal

_USED_TO = {
    "clean": ("sinktype", "sinkbasintype"),
    "heat": ("microwavetype",),
    "cool": ("fridgetype",),
}
_KNIVES = ("knifetype", "butterknifetype")
_ABLE = (
    "pickup",
    "clean",
    "heat",
    "cool",
    "toggle",
    "slice",
)  # what a fact such as `sliceable` allows
_SIGNS = (("_bar_", "|"), ("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ","))


@dataclass(frozen=True)
class Dialect:
    """One form of the text."""

    put: str  # the verb of putting a thing down
    into: str  # the word between the thing and the receptacle
    anywhere: tuple[str, ...]  # the commands that are always there, sorted
    arrives_at_place: bool  # whether `go to` names the place (`loc 12`) instead of the receptacle


DIALECTS = {
    "current": Dialect("move", "to", ("help", "inventory", "look"), arrives_at_place=False),
    "old": Dialect("put", "in/on", ("inventory", "look"), arrives_at_place=True),
}


def get_dialect(name: str) -> Dialect:
    """Return the form of the text called `name`; raise ValueError where there is none."""
    if name not in DIALECTS:
        forms = "'current' (`move X to Y`) or 'old' (`put X in/on Y`, before alfworld 0.4)"
        raise ValueError(f"text is {name!r}; it is {forms}")
    return DIALECTS[name]


@dataclass(frozen=True, eq=False)
class World:
    """A house, its task and the form of its text; sets of things and receptacles are ints (see `State`).

    Args:
        task: The task's sentence.
        dialect: The form of the text.
        things: The names of the things.
        receptacles: The names of the receptacles.
        places: The names of the places.
        where: For each receptacle its place.
        here: For each place the receptacles there.
        fits: For each receptacle the things that may be put there.
        openable: The receptacles that open.
        used_to: The receptacles to `clean`, `heat` and `cool` with.
        inner: For each thing that can hold others the names of those it holds, which never change.
        can: The things to `pickup`, `clean`, `heat`, `cool`, `toggle`, `slice`, and those that `cut`.
        goal: The conditions of success.
        start: The state in which the game begins.
        thing: The number of each thing by name; likewise `receptacle`.
    """

    task: str
    dialect: Dialect
    things: tuple[str, ...]
    receptacles: tuple[str, ...]
    places: tuple[str, ...]
    where: tuple[int, ...]
    here: tuple[tuple[int, ...], ...]
    fits: tuple[int, ...]
    openable: int
    used_to: dict[str, int]
    inner: dict[int, tuple[str, ...]]
    can: dict[str, int]
    goal: tuple[Condition, ...]
    start: State
    thing: dict[str, int]
    receptacle: dict[str, int]

    def won(self, state: State) -> bool:
        """Return whether the task is done."""
        return all(condition.met(state) for condition in self.goal)

    def shut(self, state: State, receptacle: int) -> bool:
        """Return whether a receptacle is closed."""
        return self.openable >> receptacle & 1 == 1 and not state.opened >> receptacle & 1


def make_world(problem: PddlProblem, task: str, dialect: Dialect) -> World:
    """Return the house that a problem describes. Raises ValueError, the end of a sentence, where it is none."""
    return _Builder(problem).world(task, dialect)


class _Builder:
    def __init__(self, problem: PddlProblem) -> None:
        self.facts = problem.by_predicate
        self.goal = problem.goal
        ids = {argument for facts in self.facts.values() for fact in facts for argument in fact}
        self.names = name_all(ids)
        by_type: dict[str, list[str]] = defaultdict(list)
        for id in sorted(ids):
            by_type[problem.types.get(id, "")].append(id)
        self.things, self.receptacles = by_type["object"], by_type["receptacle"]
        self.places = by_type["location"]
        if len(by_type["agent"]) != 1 or not self.receptacles:
            raise ValueError("has no house: it needs one agent, receptacles and where they are")
        self.number = {
            id: i
            for ids in (self.things, self.receptacles, self.places)
            for i, id in enumerate(ids)
        }

    def world(self, task: str, dialect: Dialect) -> World:
        where = self._where()
        here = tuple(
            tuple(r for r, at in enumerate(where) if at == place)
            for place in range(len(self.places))
        )
        names, receptacles = self._names(self.things), self._names(self.receptacles)
        if len({*names, *receptacles}) < len(names) + len(receptacles):
            twice = next(
                name for name, count in Counter((*names, *receptacles)).items() if count > 1
            )
            raise ValueError(f"calls two things {twice!r}, and a command could mean either")
        return World(
            task=task,
            dialect=dialect,
            things=names,
            receptacles=receptacles,
            places=self._names(self.places),
            where=where,
            here=here,
            fits=self._fits(),
            openable=self._having("openable"),
            used_to={
                verb: self._having("receptacletype", *kinds) for verb, kinds in _USED_TO.items()
            },
            inner=self._inner(),
            can={"cut": self._having("objecttype", *_KNIVES)}
            | {verb: self._having(verb + "able") for verb in _ABLE},
            goal=parse_goal(self.goal, self._having, here),
            start=self._start(),
            thing={name: i for i, name in enumerate(names)},
            receptacle={name: i for i, name in enumerate(receptacles)},
        )

    def _inner(self) -> dict[int, tuple[str, ...]]:
        inner: dict[int, tuple[str, ...]] = {
            self.number[o]: () for (o,) in self.facts.get("isreceptacleobject", ())
        }
        for thing, outer in self.facts.get("inreceptacleobject", ()):
            if self.number[outer] in inner:
                inner[self.number[outer]] += (self.names[thing],)
        return inner

    def _names(self, ids: list[str]) -> tuple[str, ...]:
        return tuple(self.names[id] for id in ids)

    def _where(self) -> tuple[int, ...]:
        facts = self.facts.get("receptacleatlocation", [])
        at = {fact[0]: fact[1] for fact in facts}
        if set(at) != set(self.receptacles) or len(at) != len(facts):
            missing = sorted(set(self.receptacles) - set(at))
            raise ValueError(
                f"has receptacles without a place or with two: {', '.join(missing) or 'see :init'}"
            )
        return tuple(self.number[at[id]] for id in self.receptacles)

    def _having(self, predicate: str, *values: str) -> int:
        """Return what a predicate says one of `values` of; without a value, what has the property itself."""
        wanted = [(value,) if value else () for value in values or ("",)]
        return sum(
            {
                1 << self.number[fact[0]]
                for fact in self.facts.get(predicate, ())
                if fact[1:] in wanted
            }
        )

    def _fits(self) -> tuple[int, ...]:
        of_type: dict[str, int] = defaultdict(int)
        for thing, kind in self.facts.get("objecttype", ()):
            of_type[kind] |= 1 << self.number[thing]
        holds: dict[str, int] = defaultdict(int)
        for receptacle_type, kind in self.facts.get("cancontain", ()):
            holds[receptacle_type] |= of_type[kind]
        fits = [0] * len(self.receptacles)
        for receptacle, kind in self.facts.get("receptacletype", ()):
            fits[self.number[receptacle]] |= holds[kind]
        return tuple(fits)

    def _start(self) -> State:
        inside, around = [0] * len(self.receptacles), [0] * len(self.things)
        for thing, receptacle in self.facts.get("inreceptacle", ()):
            inside[self.number[receptacle]] |= 1 << self.number[thing]
        for thing, place in self.facts.get("objectatlocation", ()):
            around[self.number[thing]] |= 1 << self.number[place]
        at = self.facts.get("atlocation", ())
        if len(at) != 1:
            raise ValueError(f"puts the agent at {len(at)} places; it needs one")
        held = [self.number[thing] for _, thing in self.facts.get("holds", ())]
        return State(
            place=self.number[at[0][1]],
            held=held[0] if held else -1,
            inside=tuple(inside),
            around=tuple(around),
            opened=self._having("opened"),
            left=(0,) * len(inside),
            **{flag: self._having(predicate) for predicate, flag in FLAGS.items()},
        )


def name_all(ids: Iterable[str]) -> dict[str, str]:
    """Return the name of each id.

    Things of a kind are numbered backwards: the first id in order gets the highest number. An id without a position
    is its own name, with a blank behind it. (AlfredDemangler of alfworld 0.4.2 without shuffling.)
    """
    names, counts = {}, Counter[str]()
    for id in sorted(set(ids), reverse=True):
        plain = reduce(lambda text, sign: text.replace(*sign), _SIGNS, id)
        kind, bar, _ = plain.partition("|")
        kind += "basin" * ("basin" in id)
        counts[kind] += 1
        names[id] = f"{kind} {counts[kind]}" if bar else plain + " "
    return names
