"""Household worlds: the official ALFWorld games, played word for word without ALFWorld, and houses made up."""

from __future__ import annotations

from .alfworld import ALFWorldEnv, make_alfworld
from .commands import commands
from .expert import Expert
from .game import SPLITS, TASK_TYPES, Game, game_of_row, read_game
from .household import HouseholdEnv, make_household
from .library import Games, open_games
from .play import intro, step
from .state import State
from .world import World

__all__ = [
    "SPLITS",
    "TASK_TYPES",
    "ALFWorldEnv",
    "Expert",
    "Game",
    "Games",
    "HouseholdEnv",
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
