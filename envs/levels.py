"""How the tools of an environment are isolated, and whether this machine can do it."""

from __future__ import annotations

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
