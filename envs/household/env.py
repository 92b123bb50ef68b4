"""`ALFWorld-v0` and `Household-v0`: official games and generated houses, one command a turn."""

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
from .play import NOTHING_HAPPENS, TEXTS, commands, intro, step
from .world import World, get_dialect

SYSTEM: str = TEXTS["system"]
SHORT: str = TEXTS["short"]

_ACTION_TAG = re.compile(r"<action>(.*?)(?:</action>|\Z)", re.DOTALL)  # the last tag may be cut off
_MAX_QUOTED_CHARACTERS = 60  # of a wrong command, repeated in the error


class ALFWorldEnv(TextEnv):
    """Play games of a set; success earns 1 and ends the episode.

    An action is one command: the whole reply, or the content of its first `<action>…</action>`. A
    reply of several lines is answered with an error; a command that the game does not allow with
    the game's own `Nothing happens.`

    Args:
        games: The games; `reset(options={"task": i})` picks one, else the environment's generator
            draws it.
        admissible: Whether every observation ends with the admissible commands.
        text: `current`, or `old` for the text before alfworld 0.4 (`put X in/on Y`); that of the
            game's file if left out.
        max_turns: Turn limit.
        system: The system prompt; a list of the commands if left out.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "game", "world", "state"}
    # Whether `fork` may copy only the fields of this class. A derived class, which may have further
    # state, does not inherit this: it has to say so itself.
    quick: ClassVar[bool] = True

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
            get_dialect(text)  # raises ValueError if there is no such form of text
        self.tasks = games
        self.admissible = admissible
        self.text = text
        self.system = system
        self.game: Game | None = None
        self.world: World | None = None
        self.state: State | None = None

    def expert(self) -> Expert:
        """Return a player that solves games from the observations only."""
        return Expert()

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        index = choose_index(rng, options, self.tasks, "game")
        self.game, self.world = self.tasks.open(index, self.text)
        self.state = self.world.start
        self.task_id = self.game.id
        self.category = self.game.task_type
        return self._add_admissible_commands(intro(self.world))

    def on_step(self, text: str) -> Reply:
        """Give the command in an action to the game and return its answer.

        A reply without a single command leaves the game as it is and is answered with an error.
        """
        world, state = self._get_world_and_state()
        command, error = extract_command(text)
        if error:
            observation = self._add_admissible_commands(f"Error: {error}")
            return Reply(observation, info={"command": None}, valid=False)
        self.state, answer = step(world, state, command)
        won = world.is_won(self.state)
        allowed = answer != NOTHING_HAPPENS
        return Reply(
            self._add_admissible_commands(answer),
            reward=float(won),
            stop=StopReason.GOAL if won else None,
            info={"command": command, "allowed": allowed, "won": won},
            valid=allowed,
        )

    def gold(self) -> list[str]:
        """Return commands of the walkthrough that succeed from the present state.

        If the agent followed the walkthrough so far, these are its remaining commands. Otherwise
        they are as few of its last commands as succeed, or all of it if none do.
        """
        world, state = self._get_world_and_state()
        assert self.game is not None
        walkthrough = self.game.walk(self.text)
        remaining_commands = walkthrough[self.turn :]
        suffixes = [walkthrough[i:] for i in reversed(range(len(walkthrough)))]  # shortest first
        for candidate in [remaining_commands, *suffixes]:
            if _succeeds(world, state, candidate):
                return candidate
        return walkthrough

    def admissible_commands(self) -> list[str]:
        """Return the commands that the game allows now, sorted."""
        return commands(*self._get_world_and_state())

    def messages(self, observation: str) -> list[Message]:
        """Return the messages that begin an episode: the system prompt and the observation."""
        system = self.system
        if system is None:
            world, _ = self._get_world_and_state()
            dialect = world.dialect
            system = SYSTEM.format(
                put=dialect.put, into=dialect.into, anywhere=" | ".join(dialect.anywhere)
            )
        return [{"role": "system", "content": system}, {"role": "user", "content": observation}]

    def fork(self) -> Self:
        """Return a live, independent copy; a game's state is immutable, so little is copied."""
        # An inherited `quick` does not count, since a derived class may have further state.
        own_attributes = vars(type(self))
        if not own_attributes.get("quick"):
            return super().fork()
        forked = copy.copy(self)
        forked._turns = [*self._turns]
        if self._np_random is not None:
            forked._np_random = _copy_generator(self._np_random)
        return forked

    def _get_world_and_state(self) -> tuple[World, State]:
        if self.world is None or self.state is None:
            raise RuntimeError("there is no game: call reset() first")
        return self.world, self.state

    def _add_admissible_commands(self, text: str) -> str:
        """Return `text`, and below it the admissible commands if observations list them."""
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
    """Make the environment over official games.

    The first three arguments are those of `open_games`, the others those of `ALFWorldEnv`.
    """
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
        size: `tiny` (4 to 6 receptacles, 3 to 5 things), `small`, `medium` (as in ALFWorld) or
            `large`.
        difficulty: One level or several, from 1 (the wanted things lie open, where one looks first)
            to 5 (hidden in unlikely places).
        task_types: The task types to choose from, a sequence or a text with commas; all six if left
            out.
        max_turns: Turn limit; if left out 20, 50, 50 or 100, depending on the size, which is enough
            to look everywhere.
        seed: Chooses which houses there are, and their order.
        system: The system prompt; if left out that of `ALFWorld-v0`, or a short one for `tiny`.

    The other arguments are those of `ALFWorldEnv`.
    """
    get_dialect(text)  # raises ValueError if there is no such form of text
    houses = Houses(split, size, difficulty, task_types, seed)
    if max_turns is None:
        max_turns = SIZES[size].turns
    if system is None and size == "tiny":
        system = SHORT
    return ALFWorldEnv(houses, admissible, text, max_turns, system)


def _succeeds(world: World, state: State, walkthrough: Sequence[str]) -> bool:
    """Return whether the task is done after some or all of the commands, given from a state."""
    for command in walkthrough:
        state, _ = step(world, state, command)
        if world.is_won(state):
            return True
    return False


def _copy_generator(rng: np.random.Generator) -> np.random.Generator:
    """Return a copy of a generator; three times as fast as a deep copy."""
    source = rng.bit_generator
    if not isinstance(source, np.random.PCG64):
        return copy.deepcopy(rng)
    twin = np.random.PCG64(0)  # any seed: nothing here spawns further generators from it
    twin.state = source.state
    return np.random.Generator(twin)


def extract_command(text: str, example: str = "look") -> tuple[str, str]:
    """Return the command of a reply and an error for the agent, one of which is empty.

    Args:
        text: The reply: a command of one line, or any text with `<action>command</action>` in it.
        example: A command that the error suggests if the tags are empty.
    """
    tag = _ACTION_TAG.search(text)
    command = text.strip() if tag is None else tag[1].strip()
    if tag is not None and not command:
        error = (
            f"this reply has no command in its tags. Answer with one command, such as: {example}"
        )
        return "", error
    # Other characters that end a line, such as a carriage return, are left to the game to refuse.
    lines = command.split("\n")
    if len(lines) > 1:
        first_line = lines[0][:_MAX_QUOTED_CHARACTERS]
        error = (
            f"this reply has {len(lines)} lines, and nothing was done. "
            f"Answer with one command, such as: {first_line}"
        )
        return "", error
    return command, ""
