"""Which environment ids exist and what makes them; importing `turngym` registers them with Gymnasium."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from .core import TextEnv


@dataclass(frozen=True)
class Entry:
    """One registered environment: its id, what makes it, and a line for `turngym envs`."""

    id: str
    entry_point: str
    summary: str
    play: dict[str, Any] = field(default_factory=dict)  # options that make it comfortable for a person at a terminal


ENVS = (
    Entry("turngym/Math-v0", "turngym.envs.math:make_math", "math questions answered in one turn"),
    Entry(
        "turngym/MathPython-v0",
        "turngym.envs.math:make_math_python",
        "math questions with a Python tool, several turns",
        play={"format": "python-tag"},
    ),
)


def register_all() -> None:
    """Register every environment of `ENVS` that Gymnasium does not know yet."""
    for entry in ENVS:
        if entry.id not in gymnasium.registry:
            gymnasium.register(entry.id, entry_point=entry.entry_point)


def play_options(env_id: str) -> dict[str, Any]:
    """Return the options with which a person plays `env_id`."""
    return next((dict(entry.play) for entry in ENVS if entry.id == env_id), {})


def make(env_id: str, **kwargs: Any) -> TextEnv:
    """Make the bare environment (no wrappers) for rollouts, evaluation and play.

    Raises:
        ValueError: the id is unknown, or the environment does not take one of `kwargs`.
        TypeError: the environment is not a `TextEnv`.
    """
    spec = gymnasium.registry.get(env_id)
    if spec is None or spec.entry_point is None:
        known = ", ".join(entry.id for entry in ENVS)
        raise ValueError(f"unknown environment {env_id!r}; {_nearest(env_id, gymnasium.registry)}turngym has {known}")
    creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    options = inspect.signature(creator).parameters
    for name in kwargs:
        if name not in options:
            hint = _nearest(name, options)
            raise ValueError(f"{env_id} takes no option {name!r}; {hint}its options are {', '.join(options)}")
    try:
        env = creator(**{**spec.kwargs, **kwargs})
    except TypeError as error:
        raise ValueError(f"{env_id} cannot be made with {kwargs}: {error}") from error
    if not isinstance(env, TextEnv):
        raise TypeError(f"{env_id} makes a {type(env).__name__}; turngym acts in TextEnv environments only")
    return env


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""
