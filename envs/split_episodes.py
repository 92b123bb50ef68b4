"""The episodes of a split, how one begins: by its task where an environment has `tasks`, else by its seed; examples.

An episode has a number. In an environment with `tasks` it is the task's index, elsewhere the seed of `reset`, and every
split has seeds of its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .examples import MOST, Example, Examples, examples_of
from .registry import make, takes_option
from .splits import ALL, SPLITS, check_split
from .tasks import ListTasks
from .text_env import TextEnv

UNNAMED = ""  # the split of an evaluation that names none: `test`, or all tasks of an environment without splits
SEEDS = 2**20  # episodes of a split where there are no tasks
FOLD = 10  # of so many tasks one is for `valid` and one for `test`, where an environment does not split them itself
ADVICE = (
    """def __init__(self, split="train"): self.tasks = {"train": …, "valid": …, "test": …}[split]"""
)


@dataclass(frozen=True)
class Split:
    """An environment and the numbers of its episodes in a split.

    Args:
        note: How they were chosen for the split.
        repeats_training: They are those of `train`, though another split was asked for: there are too few to split.
    """

    env: TextEnv
    tasks: Sequence[int]
    note: str = ""
    repeats_training: bool = False


def open_split(env_id: str, options: Mapping[str, Any]) -> Split:
    """Make an environment for the split that is among its options, and try whether an episode begins.

    One that does not take the option `split` has its tasks split by their index, or its seeds where it has no tasks.
    The split `all` is that of all tasks, `UNNAMED` that of `test`, or of all tasks if the environment has no splits. Of
    fewer than `FOLD` tasks none are held out: `train` and `valid` are all of them, and there is no `test`.

    Raises ValueError, TypeError where it cannot be made, there is no such split, or no task is left for it.
    """
    split = _open(env_id, options)
    try:
        twin = split.env.fork()
    except Exception:  # what needs forks says so
        return split
    with closing(twin):
        begin(twin, split.tasks[0], 0)
    return split


def open_training(env_id: str, options: Mapping[str, Any]) -> tuple[Split, Split]:
    """Open the splits `train` and `valid`; the note of the second says it if they are the same tasks.

    Raises as `open_split` does.
    """
    train = open_split(env_id, {**options, "split": "train"})
    valid = open_split(env_id, {**options, "split": "valid"})
    if takes_option(env_id, "split") and _same_list(train.env, valid.env):
        fix = "set holdout, or choose the tasks by the option `split`, to hold some out"
        note = f"train and valid of {env_id} are the same tasks, so the validation is on the training tasks: {fix}"
        valid = replace(valid, note=note, repeats_training=True)
    return train, valid


def _same_list(first: TextEnv, second: TextEnv) -> bool:
    """Return whether the tasks of two environments are lists, and the same ones."""
    tasks, others = getattr(first, "tasks", None), getattr(second, "tasks", None)
    if (
        not isinstance(tasks, ListTasks)
        or not isinstance(others, ListTasks)
        or len(tasks) != len(others)
    ):
        return False
    return all(tasks[place] == others[place] for place in range(len(tasks)))


def make_with_examples(env_id: str, options: Mapping[str, Any]) -> TextEnv:
    """Make an environment whose option `shots` asks for worked examples: a number of them, or a file.

    An expert plays the last tasks of the split `train`.

    Raises ValueError, TypeError, OSError where it cannot be made, there is no expert, or no such number or file.
    """
    plain = {name: value for name, value in options.items() if name != "shots"}
    env = make(env_id, **plain)
    if (shots := options.get("shots", 0)) == 0:
        return env
    if type(shots) is int and 1 <= shots <= MOST:
        train = open_split(env_id, {**plain, "split": "train"})
        with closing(train.env):
            last = range(len(train.tasks) - 1, max(len(train.tasks) - shots - 2, -1), -1)
            env.examples = Examples(
                tuple(_played(train.env, train.tasks[place]) for place in last), shots
            )
    elif isinstance(shots, str | Path):
        env.examples = examples_of(Path(shots).expanduser())
    else:
        raise ValueError(
            f"shots is {shots!r}; give a number from 1 to {MOST}, or a JSONL file of `messages`"
        )
    if env.spec is not None:
        env.spec.kwargs["shots"] = shots
    return env


def _played(env: TextEnv, task: int) -> Example:
    observation, info = begin(env, task, 0)
    talk = [message for message in info["messages"] if message["role"] != "system"]
    expert: Any = env.expert() if hasattr(env, "expert") else None  # sees what the agent sees
    while env.live:
        say = expert.act(observation) if expert else env.gold()[0]
        talk.append({"role": "assistant", "content": say})
        observation, _, _, _, info = env.step(say)
        talk += info["messages"] if env.live else ()
    return tuple(talk)


def _open(env_id: str, options: Mapping[str, Any]) -> Split:
    if "split" not in options:
        env = make_with_examples(env_id, options)
        return Split(env, range(task_count(env)))
    if takes_option(env_id, "split"):
        return _open_own(env_id, options)
    split = (
        options["split"]
        if options["split"] == UNNAMED
        else check_split(options["split"], listed=True)
    )
    env = make_with_examples(
        env_id, {name: value for name, value in options.items() if name != "split"}
    )
    count = task_count(env)
    if has_tasks(env) and split in (UNNAMED, ALL):
        training = (
            ", also those that training has; --split test has only held-out ones"
            if count >= FOLD
            else ""
        )
        note = f"{env_id} has no splits: the evaluation has all of its {count} tasks{training}"
        return Split(env, range(count), note if split == UNNAMED else "")
    if split == ALL:
        raise ValueError(
            f"split is 'all', but {env_id} has no tasks that can be listed; choose {', '.join(SPLITS)}"
        )
    split = split or "test"
    if not has_tasks(env):
        first = SPLITS.index(split) * SEEDS
        return Split(
            env,
            range(first, first + SEEDS),
            f"{env_id} has no tasks: {split} begins episodes by seed",
        )
    if count < FOLD and split == "valid":
        what = (
            f"{env_id} has {count} tasks and no splits, so the validation is on the training tasks"
        )
        return Split(
            env,
            range(count),
            f"{what}: with {FOLD} or more, some are held out",
            repeats_training=True,
        )
    if count < FOLD and split == "train":
        return Split(env, list(range(count)))
    tasks = [
        i
        for i in range(count)
        if split == {FOLD - 2: "valid", FOLD - 1: "test"}.get(i % FOLD, "train")
    ]
    lacks = f"{env_id} takes no option 'split'"
    if not tasks:
        needed = f"at least {FOLD} are needed (--split all plays them all), or a split of its own, such as: {ADVICE}"
        raise ValueError(
            f"{lacks}, and its {count} tasks are too few to hold some out for {split}: {needed}"
        )
    place = "the others" if split == "train" else f"every {FOLD}th, from {tasks[0]}"
    return Split(env, tasks, f"{lacks}: {split} has {len(tasks)} of its {count} tasks, {place}")


def _open_own(env_id: str, options: Mapping[str, Any]) -> Split:
    """Open a split of an environment that chooses its tasks by the option `split`."""
    options = {**options, "split": options["split"] or "test"}
    try:
        env = make_with_examples(env_id, options)
    except LookupError as error:
        if options["split"] != ALL:
            raise
        fix = f"choose {', '.join(SPLITS)}, or let its option `split` take 'all'"
        raise ValueError(
            f"split is 'all', which {env_id} does not have ({type(error).__name__}: {error}); {fix}"
        ) from error
    return Split(env, range(task_count(env)))


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

    Raises ValueError where `tasks` has no length, or there are none.
    """
    if not has_tasks(env):
        return SEEDS
    tasks: Any = env.tasks  # type: ignore[attr-defined]
    if not hasattr(tasks, "__len__") or not len(tasks):
        what = (
            "is empty"
            if hasattr(tasks, "__len__")
            else f"is a {type(tasks).__name__}, which has no length"
        )
        raise ValueError(
            f"{type(env).__name__}.tasks {what}; make it a sequence that holds the tasks"
        )
    return len(tasks)
