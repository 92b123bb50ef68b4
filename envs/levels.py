"""How the tools of an environment are isolated, and whether this machine can do it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..tools.python.levels import LEVELS, require
from .core import TextEnv
from .question import QuestionEnv


def levels_of(env: TextEnv) -> dict[str, str]:
    """Return the isolation levels of the tools of `env` that have one, by the tools' names."""
    return env.toolbox.levels if isinstance(env, QuestionEnv) else {}


def check_levels(env: TextEnv) -> None:
    """Find out before an episode begins whether this machine can isolate the tools of `env` as asked.

    Raises:
        LevelRefused: it cannot; the message says why and how to allow a weaker level.
    """
    for level in levels_of(env).values():
        if level in LEVELS:  # a tool of another package has its own
            require(level)


def weaker_levels(options: Mapping[str, Any]) -> list[str]:
    """Return the isolation levels below the default among the values of environment options."""
    return [value for value in options.values() if isinstance(value, str) and value in LEVELS[1:]]


def refuse_weaker(options: Mapping[str, Any], allowed: Collection[str], where: str) -> None:
    """Refuse options from data (a journal, a run folder, a recipe) that weaken the isolation of the code they bring.

    Args:
        options: Environment options as the data has them.
        allowed: Levels below the default that the present caller names himself.
        where: Names the data in the error.

    Raises:
        ValueError: the data asks for a level below the default that is not among `allowed`.
    """
    for level in weaker_levels(options):
        if level not in allowed:
            raise ValueError(
                f"{where} asks for isolation level {level!r}, which is weaker than the default {LEVELS[0]!r}; "
                f"data cannot choose that: if you trust the code it runs, say --option level={level} yourself"
            )
