"""Generated houses, fixed by an index; each has a task that can be done.

What makes a house's task decides its split: a tenth of all tasks is `valid`, a tenth `test`, the others `train`, so no
two splits ever share a task, whatever their seeds, sizes and difficulties.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..keyed_random import KeyedRandom
from ..splits import check_split, in_split
from ..tasks import check_choices, check_index, check_known
from .game import TASK_TYPES, Game
from .house import (
    LAMP,
    LOOK,
    PAIRED,
    PICKED_UP,
    ROOMS,
    TABLES,
    THINGS,
    Chore,
    House,
    Receptacle,
    Thing,
    chores,
    hiding,
)
from .library import WORLDS, Games, task_types_of
from .pddl import to_pddl
from .world import World, get_dialect, make_world

NUMBER = 1_000_000  # houses of a set
ATTEMPTS = 10_000
MOVES = 3  # times that a thing is put elsewhere, on average, before a house is given up
COPIES = 3  # things of one kind, the wanted ones aside
_ODD = 8  # one thing in so many lies elsewhere than usual
_SHARED = 6  # one receptacle in so many is reached from the place of the one before it


@dataclass(frozen=True)
class HouseSize:
    """How large houses are."""

    rooms: tuple[int, int]  # the least and the most of rooms; likewise `receptacles` and `things`
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


def generate(task_type: str, size: str, difficulty: int, split: str, rng: KeyedRandom) -> House:
    """Return a house of a split, drawn with `rng`."""
    by_thing = chores(task_type)
    for _ in range(ATTEMPTS):
        chore = rng.choice(by_thing[rng.choice(tuple(by_thing))])
        sketch = _Sketch(rng, chore, DIFFICULTIES[difficulty], SIZES[size])
        for _ in range(1 + MOVES * len(sketch.others)):
            house = sketch.house()
            if in_split(house.signature, split):
                return house
            sketch.move()
    raise RuntimeError(
        f"{task_type} at size {size} has no house for split {split}; add variety to it"
    )


class _Sketch:
    def __init__(self, rng: KeyedRandom, chore: Chore, level: Difficulty, size: HouseSize) -> None:
        self.rng, self.chore, self.size = rng, chore, size
        self.wanted = hiding(chore, level.usual, level.hidden)
        self.form = rng.integer(0, 1)
        lamp_at = rng.choice(THINGS[LAMP].usual)
        final = lamp_at if chore.task_type == LOOK else chore.target
        needed = [final, rng.choice(self.wanted), *([chore.tool] if chore.tool else [])]
        self.rooms = self._rooms(needed)
        self._add_receptacles(self._kinds(needed))
        self.counts: Counter[str] = Counter()
        self.things: list[Thing] = []
        self.target = rng.choice(self.of_kind[final])
        self._add_wanted(level.spare)
        fixed = len(self.things)
        self._add_others()
        self.others = range(fixed, len(self.things))

    def house(self) -> House:
        return House(
            self.chore,
            self.form,
            tuple(self.rooms),
            tuple(self.receptacles),
            tuple(self.things),
            self.target,
        )

    def move(self) -> None:
        if self.others:
            i = self.rng.choice(self.others)
            self.things[i] = self.things[i]._replace(inside=self._somewhere(self.things[i].kind))

    def _rooms(self, needed: Iterable[str]) -> list[str]:
        rooms: list[str] = []
        for kind in needed:
            if not any(kind in ROOMS[room] for room in rooms):
                rooms.append(self.rng.choice([room for room in ROOMS if kind in ROOMS[room]]))
        others = [room for room in ROOMS if room not in rooms]
        for _ in range(self.rng.integer(*self.size.rooms) - len(rooms)):
            rooms.append(others.pop(self.rng.integer(0, len(others) - 1)))
        return rooms

    def _kinds(self, needed: Iterable[str]) -> Counter[str]:
        kinds = Counter(set(needed))
        pool = list(
            (sum((Counter(ROOMS[room]) for room in self.rooms), Counter[str]()) - kinds).elements()
        )
        for _ in range(min(self.rng.integer(*self.size.receptacles) - kinds.total(), len(pool))):
            kinds[pool.pop(self.rng.integer(0, len(pool) - 1))] += 1
        return kinds

    def _add_receptacles(self, kinds: Counter[str]) -> None:
        self.receptacles: list[Receptacle] = []
        self.of_kind: dict[str, list[int]] = {}
        places = 0
        order = sorted(kinds)
        while order:  # places are numbered in a random order of kinds
            kind = order.pop(self.rng.integer(0, len(order) - 1))
            self.of_kind[kind] = []
            for number in range(1, kinds[kind] + 1):
                beside = (
                    number > 1
                    and kind in PAIRED
                    and self.size.shared
                    and not self.rng.integer(0, _SHARED - 1)
                )
                places += not beside
                self.of_kind[kind].append(len(self.receptacles))
                self.receptacles.append(Receptacle(kind, number, places))

    def _add(self, kind: str, inside: int, clean: bool = False) -> None:
        self.counts[kind] += 1
        self.things.append(Thing(kind, self.counts[kind], inside, clean))

    def _add_wanted(self, spare: int) -> None:
        needed = self.chore.number
        room = max(0, self.size.things[0] - needed - 1)
        there = [i for kind in self.wanted for i in self.of_kind.get(kind, ())]
        for _ in range(needed + self.rng.integer(0, min(spare, room))):
            self._add(self.chore.thing, self.rng.choice(there))
        if self.chore.task_type == LOOK:
            self._add(LAMP, self.target)

    def _add_others(self) -> None:
        there = self.of_kind.keys()
        kinds = [
            name
            for name in PICKED_UP
            if name != self.chore.thing and not there.isdisjoint(THINGS[name].usual)
        ]
        number = self.rng.integer(*self.size.things)
        while kinds and len(self.things) < number:
            kind = self.rng.choice(kinds)
            clean = "clean" in THINGS[kind].can and not self.rng.integer(0, _ODD - 1)
            self._add(kind, self._somewhere(kind), clean)
            if self.counts[kind] == COPIES:
                kinds.remove(kind)

    def _somewhere(self, kind: str) -> int:
        usual, fits = THINGS[kind].usual, THINGS[kind].fits
        kinds = fits if not self.rng.integer(0, _ODD - 1) else usual
        return self.rng.choice([i for name in kinds for i in self.of_kind.get(name, ())])


class Houses(Games):
    """A million generated games, each made when it is read; difficulties and task types are mixed evenly.

    The arguments are those of `make_household`. Raises ValueError where one of them cannot be.
    """

    def __init__(
        self,
        split: str = "train",
        size: str = "small",
        difficulty: int | Sequence[int] = (1, 2, 3),
        task_types: str | Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        levels = check_choices("difficulty", difficulty, DIFFICULTIES)
        check_known(size, SIZES, f"size is {size!r}", "the sizes are")
        kinds = set(task_types_of(task_types))
        chosen = tuple(kind for kind in TASK_TYPES if kind in kinds)
        super().__init__("household", check_split(split), ())
        self.options = split, size, levels, chosen, seed

    def __len__(self) -> int:
        return NUMBER

    def __getitem__(self, i: Any) -> Any:
        return self.open(i)[0]

    def open(self, i: int, text: str | None = None) -> tuple[Game, World]:
        """Return game `i` and its house; those that were opened last are kept. Raise IndexError out of range."""
        check_index(i, self, "house")
        return _opened(i, text or "current", *self.options)


def house_of(
    i: int, split: str, size: str, levels: tuple[int, ...], task_types: tuple[str, ...], seed: int
) -> tuple[str, House]:
    """Return house `i` of `Houses.options` with its name."""
    rng = KeyedRandom("household", seed, i, split)
    task_type, difficulty = rng.choice(task_types), rng.choice(levels)
    house = generate(task_type, size, difficulty, split, rng)
    return f"{task_type}-{size}-{difficulty}-{split}-{seed}-{i}", house


@lru_cache(WORLDS)
def _opened(i: int, text: str, split: str, *options: Any) -> tuple[Game, World]:
    name, house = house_of(i, split, *options)
    problem = house.problem()
    game = Game(
        name, split, house.chore.task_type, house.task, to_pddl(problem), tuple(house.walkthrough())
    )
    return game, make_world(problem, house.task, get_dialect(text))
