"""Household worlds: the official ALFWorld games, played without ALFWorld, and generated houses.

- env: `ALFWorld-v0` and `Household-v0`, one command a turn
- play: the rules: what a command does, how the game answers, which commands are admissible
- world: the constant part of the house of one game, made from a PDDL problem
- pddl: PDDL problems and goals, read and written; the state, as an immutable value, and the
  conditions of success
- game: one game, from an official file or a JSON row
- library: where games are found; large files are indexed once
- generate: generated houses, fixed by an index
- house: what generated houses consist of (`chores.toml`), what tasks can be set, and one house with
  its PDDL problem
- expert: an agent that plays well from the observations alone, and what it knows of the task and
  the house
"""

from .env import ALFWorldEnv, make_alfworld, make_household
from .expert import Expert
from .game import SPLITS, TASK_TYPES, Game, game_of_row, read_game
from .library import Games, open_games
from .pddl import State
from .play import commands, intro, step
from .world import World

__all__ = [
    "SPLITS",
    "TASK_TYPES",
    "ALFWorldEnv",
    "Expert",
    "Game",
    "Games",
    "State",
    "World",
    "commands",
    "game_of_row",
    "intro",
    "make_alfworld",
    "make_household",
    "open_games",
    "read_game",
    "step",
]
