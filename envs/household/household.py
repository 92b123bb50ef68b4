"""`turngym/Household-v0`: made-up houses as a text environment, with the text and the commands of ALFWorld."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from ..core import Message
from ..tasks import KeyedRandom, check_choices, check_index, check_split
from .alfworld import ALFWorldEnv
from .game import TASK_TYPES, Game
from .generate import LEVELS, SIZES, generate
from .grammar import get_dialect
from .house import House, pddl
from .library import WORLDS, Games, task_types_of
from .world import World, make_world

SHORT = "You are in a house and have a task. Answer with one command."


@dataclass(frozen=True)
class Plan:
    """What houses are to be like: see `Houses`."""

    split: str
    size: str
    difficulty: tuple[int, ...]
    task_types: tuple[str, ...]
    seed: int

    def house(self, i: int) -> tuple[str, House]:
        """Return house `i` with its name."""
        rng = KeyedRandom("household", self.seed, i, self.split)
        task_type, difficulty = rng.choice(self.task_types), rng.choice(self.difficulty)
        name = f"{task_type}-{self.size}-{difficulty}-{self.split}-{self.seed}-{i}"
        return name, generate(task_type, self.size, difficulty, self.split, rng)


class Houses(Games):
    """Made-up games; each is made when it is asked for.

    Args:
        split: `train`, `valid` or `test`.
        size: A name from `SIZES`.
        difficulty: 1 (the wanted things lie open, where one looks first) to 5 (hidden in unlikely places), one level or
            several mixed evenly.
        task_types: Some of `TASK_TYPES`, mixed evenly; a sequence or a text with commas, all when left out.
        seed: Chooses which houses there are, and their order.
        number: How many there are.

    Raises:
        ValueError: An argument is none of these.
    """

    def __init__(
        self,
        split: str = "train",
        size: str = "small",
        difficulty: int | Sequence[int] = (1, 2, 3),
        task_types: str | Sequence[str] | None = None,
        seed: int = 0,
        number: int = 1_000_000,
    ) -> None:
        levels = check_choices("difficulty", difficulty, LEVELS)
        if size not in SIZES:
            raise ValueError(f"size is {size!r}; the sizes are {', '.join(SIZES)}")
        if number < 1:
            raise ValueError(f"number is {number}; a task set needs at least one house")
        kinds = set(task_types_of(task_types))
        chosen = tuple(kind for kind in TASK_TYPES if kind in kinds)
        super().__init__("household", check_split(split), ())
        self.plan = Plan(split, size, levels, chosen, seed)
        self._number = number

    def __len__(self) -> int:
        """Return the number of houses."""
        return self._number

    def __getitem__(self, i: Any) -> Any:
        """Return game `i`; raise IndexError out of range."""
        return self.open(i)[0]

    def open(self, i: int, text: str | None = None) -> tuple[Game, World]:
        """Return game `i` and its house; those that were opened last are kept. Raise IndexError out of range."""
        check_index(i, self, "house")
        return _opened(self.plan, i, text or "current")


class HouseholdEnv(ALFWorldEnv):
    """Play made-up houses as `ALFWorldEnv` plays games.

    Args:
        system: The system prompt; that of `ALFWorldEnv` when left out.

    The other arguments are those of `ALFWorldEnv`.
    """

    quick: ClassVar[bool] = True

    def __init__(
        self,
        games: Games,
        admissible: bool = False,
        text: str | None = None,
        max_turns: int = 50,
        system: str | None = None,
    ) -> None:
        super().__init__(games, admissible, text, max_turns)
        self.system = system

    def messages(self, observation: str) -> list[Message]:
        """Open with how to act, then the game's own first text."""
        if self.system is None:
            return super().messages(observation)
        return [{"role": "system", "content": self.system}, {"role": "user", "content": observation}]


def make_household(
    split: str = "train",
    size: str = "small",
    difficulty: int | Sequence[int] = (1, 2, 3),
    task_types: str | Sequence[str] | None = None,
    admissible: bool = False,
    text: str = "current",
    max_turns: int | None = None,
    seed: int = 0,
    system: str | None = None,
) -> HouseholdEnv:
    """Make the environment over made-up houses.

    Args:
        split: `train`, `valid` or `test`; no two share a task.
        size: `tiny` (4 to 6 receptacles, 3 to 5 things), `small`, `medium` (as in ALFWorld) or `large`.
        difficulty: 1 (the wanted things lie open, where one looks first) to 5 (hidden in unlikely places), one level or
            several.
        task_types: Task types to keep, with commas; all six when left out.
        admissible: Whether every observation ends with the admissible commands.
        text: `current` or `old`.
        max_turns: Turn limit; when left out 20, 50, 50 and 100 by size, enough to look everywhere.
        seed: Chooses which houses there are, and their order.
        system: The system prompt; that of ALFWorld-v0, or a short one for `tiny`, when left out.
    """
    get_dialect(text)
    houses = Houses(split, size, difficulty, task_types, seed)
    if max_turns is None:
        max_turns = SIZES[size].turns
    if system is None and size == "tiny":
        system = SHORT
    return HouseholdEnv(houses, admissible, text, max_turns, system)


@lru_cache(WORLDS)
def _opened(plan: Plan, i: int, text: str) -> tuple[Game, World]:
    name, house = plan.house(i)
    problem = house.problem()
    game = Game(name, plan.split, house.chore.task_type, house.task, pddl(problem), house.walkthrough())
    return game, make_world(problem, house.task, get_dialect(text))
