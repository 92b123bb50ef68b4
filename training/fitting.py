"""Recipes for other policies and environments than those that they are made for.

What a shipped recipe sets was found with one small policy. A model that turngym did not make takes the defaults for
models instead, and an environment takes no options that were meant for another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..agents.settings import flat
from ..agents.source import find, max_tokens
from .config import TrainConfig, from_mapping, recipe_keys, recipe_values

OF_ENV = ("tasks", "difficulty", "option")  # settings that belong to a recipe's environment
OF_POLICY = ("difficulty", "option")  # those of them that make it hard or easy
GRADED = ("turngym/Math-v0", "turngym/MathPython-v0")  # where models have a difficulty of their own


@dataclass(frozen=True)
class Fitted:
    """A config that fits its policy and its environment, and lines that say what was taken from where."""

    config: TrainConfig
    lines: tuple[str, ...] = ()


def fitted(recipe: str, changes: Mapping[str, Any], allowed: Collection[str] = ()) -> Fitted:
    """Return the config of a recipe with `changes`, fitted to its policy and environment.

    Raises as `config.read_recipe` and `fit` do; `allowed` is as there.
    """
    values = recipe_keys(recipe, allowed)
    return fit(from_mapping({**values, **changes}, recipe), recipe, changes)


def fit(config: TrainConfig, recipe: str, named: Collection[str]) -> Fitted:
    """Return the config of a recipe, fitted to its policy and environment; the command has set what is `named`.

    A model that turngym did not make takes the defaults of its size, except what is named, or set by a recipe file of
    the user's own.

    Raises:
        ValueError, OSError: there is no such recipe or policy, or it is damaged.
    """
    values, source = recipe_values(recipe)[0], find(config.policy)
    elsewhere, own = config.env != values.get("env", TrainConfig.env), recipe.endswith(".toml")
    row = {**source.defaults()}
    if config.env not in GRADED or config.environment.tasks is not None:
        row.pop("difficulty", None)
    away = {*(OF_ENV if elsewhere else ()), *(OF_POLICY if row and not own else ())} - {*named}
    dropped = {name: value for name, value in values.items() if name in away}
    kept = {*named, *(values if own else ())} - dropped.keys()
    taken = {name: value for name, value in row.items() if name not in kept}
    defaults = flat(TrainConfig())
    config = config.changed(**{**{name: defaults[name] for name in dropped}, **taken})
    if config.sampling.max_tokens is None or "max_tokens" in taken:
        config = config.changed(max_tokens=max_tokens(source))  # a run's own, where it goes on from one
    lines, policy = list[str](), values.get("policy", TrainConfig.policy)
    if taken:
        found = ", ".join(f"{name} {_shown(flat(config)[name])}" for name in taken)
        why = f"{recipe} leaves them out" if own else f"the recipe {recipe} is made for the policy {policy}"
        lines = [f"from the defaults for models, as {why}: {found}"]
    if gone := ", ".join(f"{name} {_shown(value)}" for name, value in dropped.items() if name not in taken):
        other = f"the environment {values.get('env', TrainConfig.env)}" if elsewhere else f"the policy {policy}"
        lines.append(f"not taken from the recipe {recipe}, as they are for {other}: {gone}")
    return Fitted(config, tuple(lines))


def _shown(value: Any) -> str:
    """Return a value as commands and recipes have it."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
