"""Promises about which episodes there are: a task is chosen by its index, and no split is another one."""

from __future__ import annotations

from typing import Any

from ...envs import TextEnv
from ...envs.registry import make, takes
from ...envs.splits import begin, has_tasks, task_count
from ...envs.tasks import SPLITS
from .episodes import Broken, Case, expert, moment

LOOKED = 16  # tasks of an environment, and of a split


def check_tasks(case: Case) -> str:
    """Choose tasks by their index, each with two seeds; compare the tasks of the splits."""
    with case.bare() as env:
        try:
            count = task_count(env)
        except ValueError as error:
            raise Broken(str(error)) from None
        if not has_tasks(env):
            return "there are no tasks: episodes begin by seed, and each split has seeds of its own"
        ids = set()
        for task in _some(count):
            one, other = (_id(env, task, seed) for seed in (case.seed, case.seed + 1))
            ids.add(one)
            if one != other:
                raise Broken(
                    f"task {task} has the id {one!r} with seed {case.seed} and {other!r} with the next; in on_reset, "
                    "begin the task options['task'] where it is given, and draw one from rng where it is not"
                )
        if count > 1 and len(ids) == len(set(_seen(env, case, count))) == 1:
            raise Broken(f"all {count} tasks are one and the same episode; in on_reset, begin the task options['task']")
    return f"{count} tasks; {_check_splits(case)}"


def _check_splits(case: Case) -> str:
    """Compare what the splits begin with; return what was found."""
    if not takes(case.env_id, "split"):
        return "without an option `split`, every tenth is for valid and every tenth for test"
    if {"split", "tasks"} & case.options.keys():
        return "the splits of these options are not compared"
    seen: dict[str, list[str]] = {}
    for split in SPLITS:
        try:
            env = make(case.env_id, **{**case.options, "split": split})
        except (ValueError, LookupError) as error:
            raise Broken(
                f"it cannot be made with split={split!r} ({type(error).__name__}: {error}); training takes train and "
                "valid, evaluation test"
            ) from error
        try:
            seen[split] = _seen(env, case, task_count(env))
        finally:
            env.close()
        same = next((other for other in seen if other != split and seen[other] == seen[split]), None)
        if same is not None and len(set(seen[split])) > 1:
            raise Broken(f"split={split!r} has the tasks of split={same!r}; choose `tasks` by the option `split`")
    return "three splits"


def _some(count: int) -> list[int]:
    return sorted({round(i * (count - 1) / (LOOKED - 1)) for i in range(LOOKED)})


def _seen(env: TextEnv, case: Case, count: int) -> list[str]:
    """Return what some tasks show and answer to the expert of the first of them, with one seed."""
    actions = expert(env, case.seed, 0)
    found = []
    for task in _some(count):
        observation, info = _begin(env, task, case.seed)
        answers = [env.step(action)[:2] for action in actions if env.live]
        found.append(moment(observation, info["messages"], answers))
    return found


def _id(env: TextEnv, task: int, seed: int) -> str:
    return str(_begin(env, task, seed)[1]["task_id"])


def _begin(env: TextEnv, task: int, seed: int) -> tuple[str, dict[str, Any]]:
    try:
        return begin(env, task, seed)
    except Exception as error:
        raise Broken(f"reset(options={{'task': {task}}}) raises {type(error).__name__}: {error}") from error
