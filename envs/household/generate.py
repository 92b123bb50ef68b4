"""Generated houses, fixed by an index; each has a task that can be done.

`Houses` is the set of games that the environment plays; `make_house` makes one of its houses, and
`draw_house` draws a house from random numbers.

The split of a house follows from its task: a tenth of all tasks is `valid`, a tenth `test`, the
others `train`, so no two splits ever share a task, whatever their seeds, sizes and difficulties.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..keyed_random import KeyedRandom
from ..splits import check_split, in_split
from ..tasks import check_choices, check_index, check_known
from .game import TASK_TYPES, Game
from .house import (
    LAMP,
    LOOK,
    PAIRED,
    PORTABLE,
    ROOMS,
    TABLES,
    THINGS,
    Chore,
    House,
    Receptacle,
    Thing,
    chores,
    list_hiding_places,
)
from .library import WORLDS, Games, parse_task_types
from .pddl import to_pddl
from .world import World, get_dialect, make_world

HOUSES_PER_SET = 1_000_000
ATTEMPTS = 10_000  # chores that are tried before a split is said to have no house
MOVES = 3  # how often each thing is moved, on average, before another chore is drawn
MAX_COPIES = 3  # things of one kind, except the wanted ones
_ONE_UNUSUALLY_PLACED_IN = 8  # one thing in so many lies elsewhere than usual
_ONE_CLEAN_IN = 8  # one thing in so many is clean, of those that can be cleaned
_ONE_SHARING_PLACE_IN = 6  # one receptacle in so many is at the place of the one before it


@dataclass(frozen=True)
class HouseSize:
    """How large houses are."""

    rooms: tuple[int, int]  # the least and the most rooms; likewise `receptacles` and `things`
    receptacles: tuple[int, int]
    things: tuple[int, int]
    turns: int  # how many turns an episode has: enough to look everywhere and do the chore
    shared: bool = True  # whether two receptacles may be reached from one place


@dataclass(frozen=True)
class Difficulty:
    """How hard it is to find the wanted things."""

    usual: bool  # whether they lie where such things usually do
    spare: int  # how many more than needed there are, at most
    hidden: bool | None = None  # whether something has to be opened to see them; None for either


SIZES = {name: HouseSize(**row) for name, row in TABLES["sizes"].items()}
DIFFICULTIES = {int(level): Difficulty(**row) for level, row in TABLES["difficulties"].items()}


def draw_house(task_type: str, size: str, difficulty: int, split: str, rng: KeyedRandom) -> House:
    """Draw a house of a split.

    The split of a house follows from its signature. If a drawn house belongs to another split,
    things that do not matter for the task are moved, one after the other, until it belongs to
    `split`. If that takes too many moves, another chore and house are drawn.

    Args:
        task_type: One of `TASK_TYPES`.
        size: One of `SIZES`.
        difficulty: One of `DIFFICULTIES`.
        split: `train`, `valid` or `test`.
        rng: The source of all random draws.

    Raises:
        RuntimeError: No house of the split was found.
    """
    chores_by_thing = chores(task_type)
    for _ in range(ATTEMPTS):
        thing_kind = rng.choice(tuple(chores_by_thing))
        chore = rng.choice(chores_by_thing[thing_kind])
        sketch = _HouseSketch(rng, chore, DIFFICULTIES[difficulty], SIZES[size])
        most_moves = MOVES * len(sketch.movable_things)
        for _ in range(1 + most_moves):
            house = sketch.make_house()
            if in_split(house.signature, split):
                return house
            sketch.move_a_thing()
    raise RuntimeError(
        f"{task_type} at size {size} has no house for split {split}; add variety to it"
    )


class _HouseSketch:
    """A house that is being drawn. The order of the draws from `rng` fixes what every house is.

    Attributes:
        hiding_places: The kinds of receptacles where the wanted things may lie.
        rooms: The rooms.
        receptacles: The receptacles.
        receptacles_of_kind: The indices of the receptacles of each kind.
        things: The things, the wanted ones first.
        counts: The number of things of each kind.
        movable_things: The indices of the things that do not matter for the task.
        target: The index of the receptacle to which the walkthrough leads.
    """

    def __init__(
        self, rng: KeyedRandom, chore: Chore, difficulty: Difficulty, size: HouseSize
    ) -> None:
        self.rng = rng
        self.chore = chore
        self.size = size
        self.hiding_places = list_hiding_places(chore, difficulty.usual, difficulty.hidden)
        self.form = rng.integer(0, 1)
        # Only a look needs this, but it is drawn for every task type: each draw changes the next
        # ones, and a seed has to keep its houses.
        kind_under_lamp = rng.choice(THINGS[LAMP].usual)
        target_kind = kind_under_lamp if chore.task_type == LOOK else chore.target
        needed_kinds = [target_kind, rng.choice(self.hiding_places)]
        if chore.appliance:
            needed_kinds.append(chore.appliance)

        self.rooms = self._draw_rooms(needed_kinds)
        self.receptacles: list[Receptacle] = []
        self.receptacles_of_kind: dict[str, list[int]] = {}
        self._add_receptacles(self._draw_receptacle_kinds(needed_kinds))
        self.target = rng.choice(self.receptacles_of_kind[target_kind])

        self.things: list[Thing] = []
        self.counts: Counter[str] = Counter()
        self._add_wanted_things(difficulty.spare)
        first_movable = len(self.things)
        self._add_other_things()
        self.movable_things = range(first_movable, len(self.things))

    def make_house(self) -> House:
        """Return the house as it is drawn so far."""
        return House(
            chore=self.chore,
            form=self.form,
            rooms=tuple(self.rooms),
            receptacles=tuple(self.receptacles),
            things=tuple(self.things),
            target=self.target,
        )

    def move_a_thing(self) -> None:
        """Put one of the things that do not matter for the task elsewhere, if there are any."""
        if not self.movable_things:
            return
        index = self.rng.choice(self.movable_things)
        thing = self.things[index]
        self.things[index] = thing._replace(inside=self._draw_receptacle_for(thing.kind))

    def _draw_rooms(self, needed_kinds: Iterable[str]) -> list[str]:
        """Draw rooms that can have the needed kinds of receptacles, then others up to the size.

        No room is drawn twice.
        """
        rooms: list[str] = []
        for kind in needed_kinds:
            suitable_rooms = [room for room in ROOMS if kind in ROOMS[room]]
            if not any(room in suitable_rooms for room in rooms):
                rooms.append(self.rng.choice(suitable_rooms))
        other_rooms = [room for room in ROOMS if room not in rooms]
        number_of_rooms = self.rng.integer(*self.size.rooms)
        for _ in range(number_of_rooms - len(rooms)):
            rooms.append(other_rooms.pop(self.rng.integer(0, len(other_rooms) - 1)))
        return rooms

    def _draw_receptacle_kinds(self, needed_kinds: Iterable[str]) -> Counter[str]:
        """Draw how many receptacles of each kind there are.

        There is one of each needed kind. The others are drawn among those that the rooms can have.
        """
        counts = Counter(set(needed_kinds))
        capacity: Counter[str] = Counter()  # the most receptacles of each kind in all rooms
        for room in self.rooms:
            capacity.update(ROOMS[room])
        # A kind is in the pool once for each further receptacle of it that the rooms can have.
        pool = list((capacity - counts).elements())
        number_of_receptacles = self.rng.integer(*self.size.receptacles)
        number_to_draw = min(number_of_receptacles - counts.total(), len(pool))
        for _ in range(number_to_draw):
            kind = pool.pop(self.rng.integer(0, len(pool) - 1))
            counts[kind] += 1
        return counts

    def _add_receptacles(self, counts: Counter[str]) -> None:
        """Add receptacles and draw their places.

        Places are numbered from 1, kind after kind in a random order. A receptacle of a kind in
        `PAIRED` may share the place of the one before it; any other has its own place.

        Args:
            counts: The number of receptacles of each kind.
        """
        place = 0
        remaining_kinds = sorted(counts)
        while remaining_kinds:
            kind = remaining_kinds.pop(self.rng.integer(0, len(remaining_kinds) - 1))
            self.receptacles_of_kind[kind] = []
            for number in range(1, counts[kind] + 1):
                may_share_place = number > 1 and kind in PAIRED and self.size.shared
                shares_place = may_share_place and self._draw_one_in(_ONE_SHARING_PLACE_IN)
                if not shares_place:
                    place += 1
                self.receptacles_of_kind[kind].append(len(self.receptacles))
                self.receptacles.append(Receptacle(kind, number, place))

    def _add_wanted_things(self, spare: int) -> None:
        """Add the wanted things, and for a look the lamp.

        Args:
            spare: How many more wanted things there are than needed, at most.
        """
        needed = self.chore.number
        # Spare things leave space for at least one other thing in the smallest house of this size.
        fewest_things, _ = self.size.things
        most_spare = min(spare, max(0, fewest_things - needed - 1))
        hiding_places = self._list_receptacles(self.hiding_places)
        number_of_things = needed + self.rng.integer(0, most_spare)
        for _ in range(number_of_things):
            self._add_thing(self.chore.thing, inside=self.rng.choice(hiding_places))
        if self.chore.task_type == LOOK:
            self._add_thing(LAMP, inside=self.target)

    def _add_other_things(self) -> None:
        """Add things that are not wanted, until there are as many things as drawn for the size."""
        receptacle_kinds = self.receptacles_of_kind.keys()
        kinds = []  # those that are not wanted and have a usual receptacle in this house
        for name in PORTABLE:
            has_usual_receptacle = not receptacle_kinds.isdisjoint(THINGS[name].usual)
            if name != self.chore.thing and has_usual_receptacle:
                kinds.append(name)
        number_of_things = self.rng.integer(*self.size.things)
        while kinds and len(self.things) < number_of_things:
            kind = self.rng.choice(kinds)
            can_be_cleaned = "clean" in THINGS[kind].can
            clean = can_be_cleaned and self._draw_one_in(_ONE_CLEAN_IN)
            self._add_thing(kind, inside=self._draw_receptacle_for(kind), clean=clean)
            if self.counts[kind] == MAX_COPIES:
                kinds.remove(kind)

    def _add_thing(self, kind: str, inside: int, clean: bool = False) -> None:
        self.counts[kind] += 1
        self.things.append(Thing(kind, self.counts[kind], inside, clean))

    def _draw_receptacle_for(self, kind: str) -> int:
        """Draw a receptacle for a thing: mostly one where such things usually lie, else any."""
        receptacle_kinds = THINGS[kind].usual
        if self._draw_one_in(_ONE_UNUSUALLY_PLACED_IN):
            receptacle_kinds = THINGS[kind].fits
        return self.rng.choice(self._list_receptacles(receptacle_kinds))

    def _draw_one_in(self, number: int) -> bool:
        """Draw True with probability 1 / `number`, else False."""
        return self.rng.integer(0, number - 1) == 0

    def _list_receptacles(self, kinds: Iterable[str]) -> list[int]:
        """Return the indices of the receptacles of some kinds, in the order of the kinds."""
        indices: list[int] = []
        for kind in kinds:
            indices += self.receptacles_of_kind.get(kind, [])
        return indices


class HouseOptions(NamedTuple):
    """What fixes a set of generated houses."""

    split: str
    size: str
    difficulties: tuple[int, ...]
    task_types: tuple[str, ...]
    seed: int


class Houses(Games):
    """A million generated games, each made when it is read.

    Difficulties and task types are mixed evenly. The arguments are those of `make_household`.

    Raises:
        ValueError: An argument is not one of the possible ones.
    """

    def __init__(
        self,
        split: str = "train",
        size: str = "small",
        difficulty: int | Sequence[int] = (1, 2, 3),
        task_types: str | Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        difficulties = check_choices("difficulty", difficulty, DIFFICULTIES)
        check_known(size, SIZES, f"size is {size!r}", "the sizes are")
        # The order in which task types are named must not change the houses.
        chosen_types = set(parse_task_types(task_types))
        ordered_types = tuple(name for name in TASK_TYPES if name in chosen_types)
        super().__init__("household", check_split(split), ())
        self.options = HouseOptions(split, size, difficulties, ordered_types, seed)

    def __len__(self) -> int:
        return HOUSES_PER_SET

    def __getitem__(self, i: Any) -> Any:
        return self.open(i)[0]

    def open(self, i: int, text: str | None = None) -> tuple[Game, World]:
        """Return game `i` and its house, with a cache; raise IndexError if `i` is out of range."""
        check_index(i, self, "house")
        return _open_house(i, self.options, text or "current")


def make_house(i: int, options: HouseOptions) -> tuple[str, House]:
    """Draw house `i` of a set.

    Args:
        i: The index of the house, 0 to `HOUSES_PER_SET - 1`.
        options: What fixes the set.

    Returns:
        The name of the house, such as `look_at_obj_in_light-small-1-train-0-5`, and the house.
    """
    rng = KeyedRandom("household", options.seed, i, options.split)
    task_type = rng.choice(options.task_types)
    difficulty = rng.choice(options.difficulties)
    house = draw_house(task_type, options.size, difficulty, options.split, rng)
    name = f"{task_type}-{options.size}-{difficulty}-{options.split}-{options.seed}-{i}"
    return name, house


@lru_cache(WORLDS)
def _open_house(i: int, options: HouseOptions, text: str) -> tuple[Game, World]:
    """Make house `i` of a set.

    Args:
        i: The index of the house.
        options: What fixes the set.
        text: The form of the text, `current` or `old`.

    Returns:
        The house as a game, and its world with the text in that form.
    """
    name, house = make_house(i, options)
    problem = house.problem()
    game = Game(
        id=name,
        split=options.split,
        task_type=house.chore.task_type,
        task=house.task,
        problem=to_pddl(problem),
        walkthrough=tuple(house.walkthrough()),
    )
    return game, make_world(problem, house.task, get_dialect(text))
