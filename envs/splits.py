"""The episodes of a split, and how one begins: by its task where an environment has `tasks`, else by its seed.

An episode has a number. In an environment with `tasks` it is the task's index, elsewhere the seed of `reset`, and every
split has seeds of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from .core import TextEnv
from .registry import make, takes
from .tasks import SPLITS, check_split

SEEDS = 2**20  # episodes of a split where there are no tasks
FOLD = 10  # of so many tasks one is for `valid` and one for `test`, where an environment does not split them itself
ADVICE = """def __init__(self, split="train"): self.tasks = {"train": …, "valid": …, "test": …}[split]"""


@dataclass(frozen=True)
class Split:
    """An environment and the numbers of its episodes in a split; `note` says how they were chosen for it."""

    env: TextEnv
    tasks: Sequence[int]
    note: str = ""


def open_split(env_id: str, options: Mapping[str, Any]) -> Split:
    """Make an environment for the split that is among its options, and try whether an episode begins.

    One that does not take the option `split` has its tasks split by their index, or its seeds where it has no tasks.

    Raises:
        ValueError, TypeError: it cannot be made, there is no such split, or no task is left for it.
    """
    split = _open(env_id, options)
    try:
        twin = split.env.fork()
    except Exception:  # what needs forks says so
        return split
    with closing(twin):
        begin(twin, split.tasks[0], 0)
    return split


def _open(env_id: str, options: Mapping[str, Any]) -> Split:
    if "split" not in options or takes(env_id, "split"):
        env = make(env_id, **options)
        return Split(env, range(task_count(env)))
    split = check_split(options["split"])
    env = make(env_id, **{name: value for name, value in options.items() if name != "split"})
    count = task_count(env)
    if not has_tasks(env):
        first = SPLITS.index(split) * SEEDS
        return Split(env, range(first, first + SEEDS), f"{env_id} has no tasks: {split} begins episodes by seed")
    tasks = [i for i in range(count) if split == {FOLD - 2: "valid", FOLD - 1: "test"}.get(i % FOLD, "train")]
    if not tasks:
        raise ValueError(
            f"{env_id} takes no option 'split', and its {count} tasks are too few to hold some out for {split}: at "
            f"least {FOLD} are needed, or a split of its own, such as: {ADVICE}"
        )
    place = "the others" if split == "train" else f"every {FOLD}th, from {tasks[0]}"
    return Split(
        env, tasks, f"{env_id} takes no option 'split': {split} has {len(tasks)} of its {count} tasks, {place}"
    )


def begin(env: TextEnv, task: int, seed: int | None) -> tuple[str, dict[str, Any]]:
    """Begin the episode `task`, as `reset` does; where there are tasks, `seed` decides all else that is random."""
    if has_tasks(env):
        return env.reset(seed=seed, options={"task": task})
    return env.reset(seed=task)


def has_tasks(env: TextEnv) -> bool:
    """Return whether an environment has `tasks`, one of which `reset(options={"task": i})` chooses."""
    return getattr(env, "tasks", None) is not None


def task_count(env: TextEnv) -> int:
    """Return how many episodes there are to choose from.

    Raises:
        ValueError: `tasks` has no length, or there are none.
    """
    if not has_tasks(env):
        return SEEDS
    tasks: Any = env.tasks  # type: ignore[attr-defined]
    if not hasattr(tasks, "__len__") or not len(tasks):
        what = "is empty" if hasattr(tasks, "__len__") else f"is a {type(tasks).__name__}, which has no length"
        raise ValueError(f"{type(env).__name__}.tasks {what}; make it a sequence that holds the tasks")
    return len(tasks)
