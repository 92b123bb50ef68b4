"""Players that act by text: an expert that knows the gold, and a person at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..envs import TextEnv


class Player(Protocol):
    """Chooses the next action of an episode."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Return the action for what was last observed."""


class Expert:
    """Plays the environment's own gold actions: what a perfect agent would earn."""

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Return the first of the expert's remaining actions."""
        return env.gold()[0]


class Human:
    """Asks a person through `ask`, a function from the observation to what was typed."""

    def __init__(self, ask: Callable[[str], str]) -> None:
        self.ask = ask

    def act(self, env: TextEnv, observation: str, info: Mapping[str, Any]) -> str:
        """Show the observation and return what the person answers."""
        return self.ask(observation)


PLAYERS: dict[str, Callable[[], Player]] = {"expert": Expert}
