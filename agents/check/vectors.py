"""The promise that vectors of environments, made with Gymnasium's default arguments, are what single ones are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing import TimeoutError as Late
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, VectorEnv

from .episodes import Broken, Case, Plan, moment, same

MODES = ("sync", "async")
SECONDS = 120.0  # that an asynchronous vector may take for a turn

Vector = VectorEnv[Any, Any, Any]


def check_vector(case: Case) -> str:
    """Play two episodes at once, each begun again where it ends, in sync and in async mode."""
    plans = case.plans[1:3]
    rounds = max(len(plan.actions) for plan in plans) + 2
    singles = [_single(case, plan, rounds) for plan in plans]
    for mode in MODES:
        for plan, single, seen in zip(plans, singles, _vector(case, plans, rounds, mode), strict=True):
            same(single, seen, f"seed {plan.seed} is another episode in a vector in {mode} mode")
    return f"{rounds} rounds of 2 environments in {len(MODES)} modes"


def _single(case: Case, plan: Plan, rounds: int) -> list[str]:
    """Return what is seen of an environment by itself that is reset instead of stepped after the end of an episode."""
    with case.wrapped() as env:
        seen, over = [_moment(*env.reset(seed=plan.seed))], False
        for turn in range(rounds):
            if over:
                observation, info = env.reset()
                seen.append(_moment(observation, 0.0, False, False, info))
                over = False
            else:
                observation, reward, terminated, truncated, info = env.step(_action(plan, turn))
                seen.append(_moment(observation, reward, terminated, truncated, info))
                over = terminated or truncated
    return seen


def _vector(case: Case, plans: Sequence[Plan], rounds: int, mode: str) -> list[list[str]]:
    envs = gymnasium.make_vec(case.env_id, len(plans), vectorization_mode=mode, **case.options)
    whole = False
    try:
        opening, info = _reset(envs, [plan.seed for plan in plans])
        seen = [[_moment(opening[i], _pick(info, i))] for i in range(len(plans))]
        for turn in range(rounds):
            observations, *numbers, info = _step(envs, tuple(_action(plan, turn) for plan in plans))
            for i in range(len(plans)):
                seen[i].append(_moment(observations[i], *(values[i] for values in numbers), _pick(info, i)))
        whole = True
    except Late:
        raise Broken(f"a vector in {mode} mode did not answer within {SECONDS:g} s") from None
    finally:
        envs.close(**({} if whole or mode == "sync" else {"terminate": True}))
    return seen


def _reset(envs: Vector, seeds: Any) -> Any:
    if not isinstance(envs, AsyncVectorEnv):
        return envs.reset(seed=seeds)
    envs.reset_async(seed=seeds)
    return envs.reset_wait(timeout=SECONDS)


def _step(envs: Vector, actions: tuple[str, ...]) -> Any:
    if not isinstance(envs, AsyncVectorEnv):
        return envs.step(actions)
    envs.step_async(actions)
    return envs.step_wait(timeout=SECONDS)


def _action(plan: Plan, turn: int) -> str:
    return plan.actions[turn] if turn < len(plan.actions) else "more"


def _pick(info: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return the info of environment `i`: a vector holds an array of each value and a mask `_name` beside it."""
    return {
        name: _pick(values, i) if isinstance(values, dict) else values[i]
        for name, values in info.items()
        if f"_{name}" in info and info[f"_{name}"][i]
    }


def _moment(*seen: Any) -> str:
    return moment(*(_plain(value) for value in seen))


def _plain(value: Any) -> Any:
    """Return a value as text, flags and floats, as a vector may hold them in an array of another type."""
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, np.generic):
        value = value.item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
