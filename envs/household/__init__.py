"""Household worlds: the official ALFWorld games, played word for word without ALFWorld, and houses made up.

- env: `ALFWorld-v0` and `Household-v0`, one command a turn
- play: what a command does, what the game says to it, which commands it offers
- world: the house of one game, made from a PDDL problem; what never changes
- state: what changes, as an immutable value, and the conditions of success
- pddl: PDDL problems and goals, read and written
- game: one game, from an official file or a JSON row
- library: where games are found; large files are indexed once
- generate: made-up houses, fixed by an index
- house: one made-up house, its PDDL problem and its walkthrough
- chores: kinds of rooms, receptacles and things, and what can be asked for
- expert: an agent that plays well from what it is shown
- memory: what such an agent knows from the texts
"""

from .env import ALFWorldEnv, make_alfworld, make_household
from .expert import Expert
from .game import SPLITS, TASK_TYPES, Game, game_of_row, read_game
from .library import Games, open_games
from .play import commands, intro, step
from .state import State
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
