"""Promises about an environment by itself: Gymnasium's own, its gold, its randomness."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from ...envs import TextEnv
from .elsewhere import NoOtherProcess, episodes_elsewhere
from .episodes import Broken, Case, Plan, episode, moment, same, task_count

GOLDS = 8  # tasks whose gold is played
SEEDS = 16  # of which not all may give the same episode


def check_gymnasium(case: Case) -> str:
    """Run Gymnasium's own check, and an episode with its passive checker; no warning may be given."""
    plan, level = case.plans[0], gymnasium.logger.min_level
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # these come whenever the collector runs, and from anyone
        gymnasium.logger.min_level = gymnasium.logger.WARN
        try:
            with case.wrapped() as env:
                check_env(env.unwrapped)
                episode(env, plan)
        finally:
            gymnasium.logger.min_level = level
    if caught:
        raise Broken(f"check_env gives {len(caught)} warnings; the first is: {caught[0].message}")
    return ""


def check_gold(case: Case) -> str:
    """Play the gold of some tasks, as it is at the start and as it is at every turn."""
    with case.bare() as env:
        for seed in range(case.seed, case.seed + GOLDS):
            env.reset(seed=seed)
            plan = list(env.gold())
            if plan != list(env.gold()):
                raise Broken(f"seed {seed}: gold() called again is not {plan!r}; it must leave the episode as it is")
            _earn(env, f"seed {seed}: the gold {plan!r}", iter(plan))
            env.reset(seed=seed)
            _earn(env, f"seed {seed}: the first of gold() at every turn", (env.gold()[0] for _ in iter(int, 1)))
    return f"{GOLDS} tasks"


def _earn(env: TextEnv, what: str, actions: Iterator[str]) -> None:
    total = 0.0
    while env.live:
        action = next(actions, None)
        if action is None:
            raise Broken(f"{what} does not end the episode; gold() must hold an action for every turn left")
        _, reward, _, _, info = env.step(action)
        total += reward
    if not abs(total - 1) < 1e-9:
        raise Broken(f"{what} earns {total} and ends with {info.get('stop')!r}; it must earn 1")


def check_seeds(case: Case) -> str:
    """Compare an episode with itself, in a fresh environment and in one that has played before; compare seeds."""
    with case.bare() as used:
        for plan in case.plans:
            first = _and_next(used, plan)
            with case.bare() as fresh:
                again = _and_next(fresh, plan)
            advice = "draw randomness only from the rng of on_reset and self.np_random, and begin afresh in on_reset"
            same(first, again, f"seed {plan.seed} is another episode in a fresh environment ({advice})")
            same(
                first, _and_next(used, plan), f"seed {plan.seed} is another episode when it is played again ({advice})"
            )
        tried = [Plan(case.seed + i, case.plans[2].actions) for i in range(SEEDS)]
        seen = len({tuple(episode(used, plan)) for plan in tried})
        if seen == 1 and not (hasattr(used, "tasks") and task_count(used) == 1):
            raise Broken(f"{SEEDS} seeds give one and the same episode; on_reset must draw from its rng")
    return f"{len(case.plans)} episodes; {SEEDS} seeds give {seen} different ones"


def _and_next(env: TextEnv, plan: Plan) -> list[str]:
    """Return what is seen of an episode, and of the opening that a reset without a seed gives after it."""
    return [*episode(env, plan), moment(*env.reset())]


def check_process(case: Case) -> str:
    """Compare episodes with those of a second process."""
    try:
        found = episodes_elsewhere(case, case.plans)
    except NoOtherProcess as reason:
        return f"not checked: {reason}"
    for plan, seen in zip(case.plans, found, strict=True):
        what = f"seed {plan.seed} is another episode in a second process (does it use hash() or the order of a set?)"
        same(case.episode(plan), seen, what)
    return f"{len(found)} episodes"


def check_generators(case: Case) -> str:
    """Look whether episodes moved a generator that everyone shares, or set its seed."""
    plans, generators = case.plans, (random.getstate(), np.random.get_state())
    try:
        # A state that no environment sets by itself: one that seeds with 0 would leave that of 0 as it is.
        random.seed(f"turngym {case.seed}")
        np.random.seed([case.seed, 0x7A11])
        before = random.getstate(), repr(np.random.get_state())
        with case.bare() as env:
            for plan in plans:
                episode(env, plan)
        moved = ["random"] if random.getstate() != before[0] else []
        moved += ["numpy.random"] if repr(np.random.get_state()) != before[1] else []
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])
    if moved:
        raise Broken(f"episodes draw from the generator of the module {' and '.join(moved)}; use self.np_random")
    return ""


def check_threads(case: Case) -> str:
    """Step several environments in turn, each from a thread of its own."""
    plans = case.plans
    with ExitStack() as stack:
        envs = [stack.enter_context(case.bare()) for _ in plans]
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in plans]
        actors = list(zip(envs, pools, plans, strict=True))
        found = [[moment(*pool.submit(env.reset, seed=plan.seed).result())] for env, pool, plan in actors]
        for turn in range(max(len(plan.actions) for plan in plans)):
            for (env, pool, plan), seen in zip(actors, found, strict=True):
                if turn < len(plan.actions) and env.live:
                    seen.append(moment(*pool.submit(env.step, plan.actions[turn]).result()))
    for plan, seen in zip(plans, found, strict=True):
        what = f"seed {plan.seed} is another episode beside others, each on a thread of its own (do they share state?)"
        same(case.episode(plan), seen, what)
    return f"{len(plans)} environments"
