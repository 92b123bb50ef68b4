"""`ALFWorld-v0` and `Household-v0`: the official ALFWorld games and generated houses, one command a turn."""

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ..outcomes import Reply, StopReason
from ..tasks import Message, choose_index, strict
from ..text_env import TextEnv
from .expert import Expert
from .game import Game
from .generate import SIZES, Houses
from .library import Games, open_games
from .pddl import State
from .play import NOTHING, TEXTS, commands, intro, step
from .world import World, get_dialect

SYSTEM: str = TEXTS["system"]
SHORT: str = TEXTS["short"]

_ACTION = re.compile(r"<action>(.*?)(?:</action>|\Z)", re.DOTALL)
_SHOWN = 60  # characters of a wrong command that its error repeats


class ALFWorldEnv(TextEnv):
    """Play games of a set; success earns 1 and ends the episode.

    An action is one command: the whole reply, or what is in its first `<action>…</action>`. A reply that is no single
    line is answered with an error; a command that the game does not allow with the game's own `Nothing happens.`.

    Args:
        games: The games; `reset(options={"task": i})` picks one, else the environment's generator draws it.
        admissible: Whether every observation ends with the admissible commands.
        text: `current`, or `old` for the text before alfworld 0.4 (`put X in/on Y`); as the game's file when left out.
        max_turns: Turn limit.
        system: The system prompt; a list of the commands when left out.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "game", "world", "state"}
    quick: ClassVar[bool] = (
        True  # a class that has state of its own, and does not say so too, forks as any other
    )

    def __init__(
        self,
        games: Games,
        admissible: bool = False,
        text: str | None = None,
        max_turns: int = 50,
        system: str | None = None,
    ) -> None:
        super().__init__(max_turns)
        if text is not None:
            get_dialect(text)
        self.tasks, self.admissible, self.text, self.system = games, admissible, text, system
        self.game: Game | None = None
        self.world: World | None = None
        self.state: State | None = None

    def expert(self) -> Expert:
        """Return a player that solves games from what it is shown."""
        return Expert()

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        index = choose_index(rng, options, self.tasks, "game")
        self.game, self.world = self.tasks.open(index, self.text)
        self.state = self.world.start
        self.task_id, self.category = self.game.id, self.game.task_type
        return self._shown(intro(self.world))

    def on_step(self, text: str) -> Reply:
        world, state = self._playing()
        command, fault = one_command(text)
        if fault:
            return Reply(self._shown(f"Error: {fault}"), info={"command": None}, valid=False)
        self.state, answer = step(world, state, command)
        won = world.won(self.state)
        allowed = answer != NOTHING
        info = {"command": command, "allowed": allowed, "won": won}
        return Reply(
            self._shown(answer),
            float(won),
            StopReason.GOAL if won else None,
            info=info,
            valid=allowed,
        )

    def gold(self) -> list[str]:
        """Return the rest of the walkthrough, or its shortest end that still succeeds from the present state."""
        world, start = self._playing()
        assert self.game is not None
        walk = self.game.walk(self.text)
        for rest in (walk[self.turn :], *(walk[i:] for i in reversed(range(len(walk))))):
            state = start
            for command in rest:
                state, _ = step(world, state, command)
                if world.won(state):
                    return rest
        return walk

    def admissible_commands(self) -> list[str]:
        """Return the commands that the game allows now, sorted."""
        return commands(*self._playing())

    def messages(self, observation: str) -> list[Message]:
        system = self.system
        if system is None:
            dialect = self._playing()[0].dialect
            system = SYSTEM.format(
                put=dialect.put, into=dialect.into, anywhere=" | ".join(dialect.anywhere)
            )
        return [{"role": "system", "content": system}, {"role": "user", "content": observation}]

    def fork(self) -> Self:
        """Return a live, independent copy: the state is a value, so little has to be copied."""
        if not vars(type(self)).get("quick"):
            return super().fork()
        twin = copy.copy(self)
        twin._turns = [*self._turns]
        if self._np_random is not None:
            twin._np_random = _same(self._np_random)
        return twin

    def _playing(self) -> tuple[World, State]:
        if self.world is None or self.state is None:
            raise RuntimeError("there is no game: call reset() first")
        return self.world, self.state

    def _shown(self, text: str) -> str:
        if not self.admissible:
            return text
        return text + "\n\nAdmissible commands:\n" + "\n".join(self.admissible_commands())


@strict
def make_alfworld(
    games: str | Path | None = None,
    split: str = "train",
    task_types: str | Sequence[str] | None = None,
    admissible: bool = False,
    text: str | None = None,
    max_turns: int = 50,
) -> ALFWorldEnv:
    """Make the environment over games that `open_games` finds, whose arguments come first; then `ALFWorldEnv`'s."""
    return ALFWorldEnv(open_games(games, split, task_types), admissible, text, max_turns)


@strict
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
) -> ALFWorldEnv:
    """Make the environment over generated houses.

    Args:
        split: `train`, `valid` or `test`; no two share a task.
        size: `tiny` (4 to 6 receptacles, 3 to 5 things), `small`, `medium` (as in ALFWorld) or `large`.
        difficulty: 1 (the wanted things lie open, where one looks first) to 5 (hidden in unlikely places), one level or
            several.
        task_types: Task types to keep, with commas; all six when left out.
        max_turns: Turn limit; when left out 20, 50, 50 and 100 by size, enough to look everywhere.
        seed: Chooses which houses there are, and their order.
        system: The system prompt; that of ALFWorld-v0, or a short one for `tiny`, when left out.

    The other arguments are those of `ALFWorldEnv`.
    """
    get_dialect(text)
    houses = Houses(split, size, difficulty, task_types, seed)
    if max_turns is None:
        max_turns = SIZES[size].turns
    if system is None and size == "tiny":
        system = SHORT
    return ALFWorldEnv(houses, admissible, text, max_turns, system)


def _same(rng: np.random.Generator) -> np.random.Generator:
    """Return a copy of a generator; three times as fast as a deep copy."""
    source = rng.bit_generator
    if not isinstance(source, np.random.PCG64):
        return copy.deepcopy(rng)
    twin = np.random.PCG64(0)  # any seed: nothing here spawns further generators from it
    twin.state = source.state
    return np.random.Generator(twin)


def one_command(text: str, example: str = "look") -> tuple[str, str]:
    """Return the command of a reply, and what is wrong with it if it has none."""
    tagged = _ACTION.search(text)
    command = (tagged[1] if tagged else text).strip()
    if tagged and not command:
        return (
            "",
            f"this reply has no command in its tags. Answer with one command, such as: {example}",
        )
    lines = command.split("\n")  # other signs that end lines are for the game to refuse
    if len(lines) > 1:
        shown = lines[0][:_SHOWN]
        return (
            "",
            f"this reply has {len(lines)} lines, and nothing was done. Answer with one command, such as: {shown}",
        )
    return command, ""
