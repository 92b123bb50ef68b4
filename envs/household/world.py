"""The constant part of the house of one game, made from a PDDL problem by `make_world`.

Things and receptacles are numbered in the order of their ids, which is the order in which the text
lists them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from .pddl import FLAG_BY_PREDICATE, Condition, Fact, PddlProblem, State, parse_goal

_APPLIANCE_TYPES = {
    "clean": ("sinktype", "sinkbasintype"),
    "heat": ("microwavetype",),
    "cool": ("fridgetype",),
}
_KNIFE_TYPES = ("knifetype", "butterknifetype")
# How ALFWorld spells signs in ids: `mug_bar__minus_01_dot_50` stands for `mug|-01.50`.
_SIGN_SPELLINGS = {"_bar_": "|", "_minus_": "-", "_plus_": "+", "_dot_": ".", "_comma_": ","}


@dataclass(frozen=True)
class Dialect:
    """One form of the text."""

    put: str  # the verb of putting a thing down
    into: str  # the word between the thing and the receptacle
    anywhere: tuple[str, ...]  # the commands that are always admissible, sorted
    arrives_at_place: bool  # whether `go to` names the place (`loc 12`) instead of the receptacle


DIALECTS = {
    "current": Dialect("move", "to", ("help", "inventory", "look"), arrives_at_place=False),
    "old": Dialect("put", "in/on", ("inventory", "look"), arrives_at_place=True),
}


def get_dialect(name: str) -> Dialect:
    """Return the form of the text called `name`; raise ValueError if there is none."""
    if name not in DIALECTS:
        raise ValueError(
            f"text is {name!r}; it is 'current' (`move X to Y`) "
            "or 'old' (`put X in/on Y`, before alfworld 0.4)"
        )
    return DIALECTS[name]


@dataclass(frozen=True, eq=False)
class World:
    """A house, its task and the form of its text.

    Things, receptacles and places are indices; sets of them are bit masks (see `State`).

    Args:
        task: The sentence that states the task.
        dialect: The form of the text.
        thing_names: The name of each thing.
        receptacle_names: The name of each receptacle.
        place_names: The name of each place.
        place_of: The place of each receptacle.
        receptacles_at: For each place the receptacles there.
        accepts: For each receptacle the set of things that may be put there.
        openable: The set of receptacles that open.
        appliances: For `clean`, `heat` and `cool` the set of receptacles to do it with.
        inner_names: For each thing that can contain others, the names of its contents, which never
            change.
        pickupable: The set of things that can be picked up.
        toggleable: The set of things that can be switched on.
        sliceable: The set of things that can be sliced.
        knives: The set of things to slice with.
        treatable: For `clean`, `heat` and `cool` the set of things with which it can be done.
        goal: The conditions of success.
        start: The state in which the game begins.
        thing_by_name: The index of each thing.
        receptacle_by_name: The index of each receptacle.
    """

    task: str
    dialect: Dialect
    thing_names: tuple[str, ...]
    receptacle_names: tuple[str, ...]
    place_names: tuple[str, ...]
    place_of: tuple[int, ...]
    receptacles_at: tuple[tuple[int, ...], ...]
    accepts: tuple[int, ...]
    openable: int
    appliances: dict[str, int]
    inner_names: dict[int, tuple[str, ...]]
    pickupable: int
    toggleable: int
    sliceable: int
    knives: int
    treatable: dict[str, int]
    goal: tuple[Condition, ...]
    start: State
    thing_by_name: dict[str, int]
    receptacle_by_name: dict[str, int]

    def is_won(self, state: State) -> bool:
        """Return whether the task is done."""
        return all(condition.is_met(state) for condition in self.goal)

    def is_closed(self, state: State, receptacle: int) -> bool:
        """Return whether a receptacle has to be opened before its contents are seen."""
        receptacle_bit = 1 << receptacle  # sets of receptacles are bit masks
        is_openable = self.openable & receptacle_bit != 0
        return is_openable and not state.opened & receptacle_bit


def make_world(problem: PddlProblem, task: str, dialect: Dialect) -> World:
    """Return the house that a problem describes.

    Args:
        problem: The problem; it fixes the house, the initial state and the goal.
        task: The sentence that states the task.
        dialect: The form of the text.

    Raises:
        ValueError: The problem describes no house. The message is the end of a sentence whose
            subject is the problem.
    """
    return _WorldBuilder(problem).build(task, dialect)


class _WorldBuilder:
    """Numbers the objects of a problem and looks up its initial facts.

    Attributes:
        facts: For each predicate the arguments of its facts.
        things: The ids of all things, sorted; an id's position is its index. Likewise `receptacles`
            and `places`.
        index: The index of each thing, receptacle and place by id.
        names: The name of each id in the text.
    """

    def __init__(self, problem: PddlProblem) -> None:
        self.facts = problem.arguments_by_predicate
        self.goal = problem.goal
        ids: set[str] = set()
        for argument_lists in self.facts.values():
            for arguments in argument_lists:
                ids.update(arguments)
        self.names = name_all(ids)

        ids_by_type: dict[str, list[str]] = defaultdict(list)
        for id in sorted(ids):
            declared_type = problem.types.get(id, "")
            ids_by_type[declared_type].append(id)
        self.things = ids_by_type["object"]
        self.receptacles = ids_by_type["receptacle"]
        self.places = ids_by_type["location"]
        if len(ids_by_type["agent"]) != 1 or not self.receptacles:
            raise ValueError("has no house: it needs one agent, receptacles and where they are")

        # Things, receptacles and places are numbered separately, each from 0.
        self.index: dict[str, int] = {}
        for ids_of_type in (self.things, self.receptacles, self.places):
            self.index.update({id: index for index, id in enumerate(ids_of_type)})

    def build(self, task: str, dialect: Dialect) -> World:
        """Return the world, with its task and its goal in terms of indices.

        Args:
            task: The sentence that states the task.
            dialect: The form of the text.

        Raises:
            ValueError: The facts describe no house. The message is the end of a sentence.
        """
        place_of = self._find_places()
        receptacle_groups = []  # the receptacles at each place
        for place in range(len(self.places)):
            receptacles = range(len(self.receptacles))
            receptacles_here = [item for item in receptacles if place_of[item] == place]
            receptacle_groups.append(tuple(receptacles_here))
        receptacles_at = tuple(receptacle_groups)

        thing_names = tuple(self.names[id] for id in self.things)
        receptacle_names = tuple(self.names[id] for id in self.receptacles)
        _check_unique((*thing_names, *receptacle_names))
        return World(
            task=task,
            dialect=dialect,
            thing_names=thing_names,
            receptacle_names=receptacle_names,
            place_names=tuple(self.names[id] for id in self.places),
            place_of=place_of,
            receptacles_at=receptacles_at,
            accepts=self._find_accepted_things(),
            openable=self._find_by_property("openable"),
            appliances={
                verb: self._find_by_property("receptacletype", *types)
                for verb, types in _APPLIANCE_TYPES.items()
            },
            inner_names=self._find_inner_names(),
            knives=self._find_by_property("objecttype", *_KNIFE_TYPES),
            pickupable=self._find_by_property("pickupable"),
            treatable={verb: self._find_by_property(f"{verb}able") for verb in _APPLIANCE_TYPES},
            toggleable=self._find_by_property("toggleable"),
            sliceable=self._find_by_property("sliceable"),
            goal=parse_goal(self.goal, self._find_by_property, receptacles_at),
            start=self._make_start(),
            thing_by_name={name: thing for thing, name in enumerate(thing_names)},
            receptacle_by_name={
                name: receptacle for receptacle, name in enumerate(receptacle_names)
            },
        )

    def _find_inner_names(self) -> dict[int, tuple[str, ...]]:
        """Return, for each thing that can contain others, the names of its contents."""
        inner_names: dict[int, tuple[str, ...]] = {}
        for (container,) in self.facts.get("isreceptacleobject", ()):
            inner_names[self.index[container]] = ()
        for thing, container in self.facts.get("inreceptacleobject", ()):
            if self.index[container] in inner_names:
                inner_names[self.index[container]] += (self.names[thing],)
        return inner_names

    def _find_places(self) -> tuple[int, ...]:
        """Return the index of the place of each receptacle.

        Raises:
            ValueError: A receptacle is at no place or at several.
        """
        facts = self.facts.get("receptacleatlocation", [])
        place_id_by_receptacle = {fact[0]: fact[1] for fact in facts}
        has_duplicates = len(place_id_by_receptacle) != len(facts)
        if has_duplicates or set(place_id_by_receptacle) != set(self.receptacles):
            missing = sorted(set(self.receptacles) - set(place_id_by_receptacle))
            raise ValueError(
                f"has receptacles without a place or with two: {', '.join(missing) or 'see :init'}"
            )
        return tuple(self.index[place_id_by_receptacle[id]] for id in self.receptacles)

    def _find_by_property(self, predicate: str, *values: str) -> int:
        """Return the set of things or receptacles with a property, as a bit mask of indices.

        Args:
            predicate: The property, such as `openable` or `objecttype`.
            values: For a property with a value, such as `objecttype`, the values that count, such
                as `mugtype`. For one without, such as `openable`, nothing or an empty string.
        """
        # The facts `(openable ID)` have no argument after the id, `(objecttype ID TYPE)` have one.
        wanted_arguments: list[Fact] = [()]
        if any(values):
            wanted_arguments = [(value,) for value in values]
        mask = 0
        for fact in self.facts.get(predicate, ()):
            if fact[1:] in wanted_arguments:
                id = fact[0]
                mask |= 1 << self.index[id]
        return mask

    def _find_accepted_things(self) -> tuple[int, ...]:
        """Return for each receptacle the set of things that fit into or onto it, as a bit mask.

        The facts say it by type: `(cancontain cabinettype mugtype)`.
        """
        things_of_type: dict[str, int] = defaultdict(int)
        for thing, thing_type in self.facts.get("objecttype", ()):
            things_of_type[thing_type] |= 1 << self.index[thing]
        accepted_by_type: dict[str, int] = defaultdict(int)
        for receptacle_type, thing_type in self.facts.get("cancontain", ()):
            accepted_by_type[receptacle_type] |= things_of_type[thing_type]
        accepts = [0] * len(self.receptacles)
        for receptacle, receptacle_type in self.facts.get("receptacletype", ()):
            accepts[self.index[receptacle]] |= accepted_by_type[receptacle_type]
        return tuple(accepts)

    def _make_start(self) -> State:
        """Return the state that the initial facts describe.

        Raises:
            ValueError: The facts do not put the agent at exactly one place.
        """
        # Sets of things and of places are bit masks.
        inside = [0] * len(self.receptacles)
        for thing, receptacle in self.facts.get("inreceptacle", ()):
            inside[self.index[receptacle]] |= 1 << self.index[thing]
        known_places = [0] * len(self.things)
        for thing, place_id in self.facts.get("objectatlocation", ()):
            known_places[self.index[thing]] |= 1 << self.index[place_id]
        agent_facts = self.facts.get("atlocation", ())
        if len(agent_facts) != 1:
            raise ValueError(f"puts the agent at {len(agent_facts)} places; it needs one")
        things_in_hand = [self.index[thing] for _, thing in self.facts.get("holds", ())]
        place = self.index[agent_facts[0][1]]
        opened = self._find_by_property("opened")
        flags = {
            flag: self._find_by_property(predicate) for predicate, flag in FLAG_BY_PREDICATE.items()
        }
        return State(
            place=place,
            in_hand=things_in_hand[0] if things_in_hand else -1,
            inside=tuple(inside),
            known_places=tuple(known_places),
            opened=opened,
            taken_from=(0,) * len(self.receptacles),
            **flags,
        )


def _check_unique(names: Iterable[str]) -> None:
    for name, occurrences in Counter(names).items():
        if occurrences > 1:
            raise ValueError(f"calls two things {name!r}, and a command could mean either")


def name_all(ids: Iterable[str]) -> dict[str, str]:
    """Return the name of each id, as AlfredDemangler of alfworld 0.4.2 does without shuffling.

    An id is a kind and a position: `mug_bar__minus_01_dot_50` stands for `mug|-01.50`. Its name is
    the kind and a number: `mug 2`. The numbers of a kind run backwards: of `mug_bar_1` and
    `mug_bar_2`, the first is `mug 2`. An id without a position is its own name with a blank behind
    it: `desktype` -> `desktype `.
    """
    names: dict[str, str] = {}
    counts = Counter[str]()
    for id in sorted(set(ids), reverse=True):
        plain_id = id
        for spelling, sign in _SIGN_SPELLINGS.items():
            plain_id = plain_id.replace(spelling, sign)
        kind, position_mark, _ = plain_id.partition("|")
        if "basin" in id:  # `sink_bar_1_bar_sinkbasin` is a `sinkbasin`
            kind += "basin"
        counts[kind] += 1
        names[id] = f"{kind} {counts[kind]}" if position_mark else f"{plain_id} "
    return names
