"""The episodes of a split, how one begins, and worked examples from the training split.

An episode has a number. In an environment with `tasks` it is the task's index, elsewhere the seed
of `reset`, and every split has its own range of seeds. `open_split` makes an environment and finds
the numbers of a split's episodes; `begin` begins one of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .examples import MAX_SHOTS, Example, Examples, examples_of
from .registry import make, takes_option
from .splits import ALL, SPLITS, check_split
from .tasks import ListTasks, Message
from .text_env import TextEnv

# The split of an evaluation that names none: `test`, or all tasks of an environment without splits.
UNNAMED_SPLIT = ""
SEEDS_PER_SPLIT = 2**20  # episodes of a split in an environment without tasks
# In an environment that does not split its tasks itself, one of this many tasks is for `valid` and
# one for `test`.
FOLD_SIZE = 10
# The splits of the places in a fold; all other places are for `train`.
_SPLIT_BY_PLACE_IN_FOLD = {FOLD_SIZE - 2: "valid", FOLD_SIZE - 1: "test"}
ADVICE = (
    """def __init__(self, split="train"): self.tasks = {"train": …, "valid": …, "test": …}[split]"""
)


@dataclass(frozen=True)
class Split:
    """An environment, and the numbers of its episodes in a split.

    Args:
        env: The environment.
        tasks: The numbers of the episodes: indices of tasks, or seeds.
        note: How the episodes were chosen, if the user should know; "" otherwise.
        repeats_training: Whether these are the episodes of `train`, though another split was asked
            for, as there are too few to split.
    """

    env: TextEnv
    tasks: Sequence[int]
    note: str = ""
    repeats_training: bool = False


def open_split(env_id: str, options: Mapping[str, Any]) -> Split:
    """Make an environment, choose the episodes of a split, and check that the first one begins.

    If the environment does not take the option `split`, its tasks are split by their index, or its
    seeds if it has no tasks. The split `all` has all tasks; `UNNAMED_SPLIT` those of `test`, or all
    tasks if the environment has no splits. Of fewer than `FOLD_SIZE` tasks none are held out:
    `train` and `valid` have all of them, and there is no `test`.

    Args:
        env_id: The id of the environment.
        options: Its options. Without `split` among them, all its episodes are chosen.

    Raises:
        ValueError, TypeError: The environment cannot be made, there is no such split, or it has no
            task.
    """
    split = _make_split(env_id, options)
    try:
        test_env = split.env.fork()
    except Exception:  # it cannot be tested; callers that need forks raise their own error
        return split
    # The episode begins in a fork, so that the environment's random generator stays as it is.
    with closing(test_env):
        begin(test_env, split.tasks[0], seed=0)
    return split


def open_training(env_id: str, options: Mapping[str, Any]) -> tuple[Split, Split]:
    """Open the splits `train` and `valid` of an environment. Raises as `open_split` does.

    Returns:
        Both splits. If they have the same tasks, `valid` has a note that says so.
    """
    train = open_split(env_id, {**options, "split": "train"})
    valid = open_split(env_id, {**options, "split": "valid"})
    if takes_option(env_id, "split") and _have_same_tasks(train.env, valid.env):
        note = (
            f"train and valid of {env_id} are the same tasks, so the validation is on the training "
            "tasks: set holdout, or choose the tasks by the option `split`, to hold some out"
        )
        valid = replace(valid, note=note, repeats_training=True)
    return train, valid


def begin(env: TextEnv, task: int, seed: int | None) -> tuple[str, dict[str, Any]]:
    """Begin an episode of a split.

    Args:
        env: The environment.
        task: The number of the episode: the index of its task, or, if the environment has no tasks,
            the seed of `reset`.
        seed: Seeds an environment with tasks, for all that is random in an episode of one task.

    Returns:
        The first observation and `info`, as `reset` returns them.
    """
    if has_tasks(env):
        return env.reset(seed=seed, options={"task": task})
    return env.reset(seed=task)


def has_tasks(env: TextEnv) -> bool:
    """Return whether an environment has `tasks`; `reset(options={"task": i})` chooses one."""
    return getattr(env, "tasks", None) is not None


def task_count(env: TextEnv) -> int:
    """Return the number of an environment's tasks, or `SEEDS_PER_SPLIT` if it has no `tasks`.

    Raises:
        ValueError: `tasks` of the environment has no length, or there are none.
    """
    if not has_tasks(env):
        return SEEDS_PER_SPLIT
    tasks: Any = env.tasks  # type: ignore[attr-defined]
    if not hasattr(tasks, "__len__"):
        raise ValueError(
            f"{type(env).__name__}.tasks is a {type(tasks).__name__}, which has no length; "
            "make it a sequence that holds the tasks"
        )
    if not len(tasks):
        raise ValueError(
            f"{type(env).__name__}.tasks is empty; make it a sequence that holds the tasks"
        )
    return len(tasks)


# -- which episodes a split has
# ----------------------------------------------------------------------


def _make_split(env_id: str, options: Mapping[str, Any]) -> Split:
    """Make an environment, and choose the episodes of the split that its option `split` names."""
    if "split" not in options:
        env = make_with_examples(env_id, options)
        return Split(env, range(task_count(env)))
    if takes_option(env_id, "split"):
        return _make_split_by_option(env_id, options)
    split = options["split"]
    if split != UNNAMED_SPLIT:
        check_split(split, listed=True)
    env = make_with_examples(env_id, _without(options, "split"))
    if has_tasks(env):
        return _split_tasks(env_id, env, split)
    return _split_seeds(env_id, env, split)


def _make_split_by_option(env_id: str, options: Mapping[str, Any]) -> Split:
    """Make an environment that has an option `split`, so that it chooses the tasks itself.

    Raises:
        ValueError: The split is `all`, which the environment does not have.
    """
    options = {**options, "split": options["split"] or "test"}
    try:
        env = make_with_examples(env_id, options)
    except LookupError as error:
        if options["split"] != ALL:
            raise
        # An author may look up the tasks in a dict by the split, as in `ADVICE`: it has no "all".
        raise ValueError(
            f"split is 'all', which {env_id} does not have ({type(error).__name__}: {error}); "
            f"choose {', '.join(SPLITS)}, or let its option `split` take 'all'"
        ) from error
    return Split(env, range(task_count(env)))


def _split_seeds(env_id: str, env: TextEnv, split: str) -> Split:
    """Return the episodes of a split in an environment without tasks: a range of seeds."""
    if split == ALL:
        raise ValueError(
            f"split is 'all', but {env_id} has no tasks that can be listed; "
            f"choose {', '.join(SPLITS)}"
        )
    split = split or "test"
    first_seed = SPLITS.index(split) * SEEDS_PER_SPLIT
    seeds = range(first_seed, first_seed + SEEDS_PER_SPLIT)
    note = f"{env_id} has no tasks: {split} begins episodes by seed"
    return Split(env, seeds, note)


def _split_tasks(env_id: str, env: TextEnv, split: str) -> Split:
    """Return the episodes of a split of an environment that has tasks but no option `split`.

    Args:
        env_id: The id of the environment, for notes and errors.
        env: The environment.
        split: The split; its tasks are chosen by their index. `UNNAMED_SPLIT` has all tasks.

    Raises:
        ValueError: There are too few tasks for the split.
    """
    count = task_count(env)
    if split == ALL:
        return Split(env, range(count))
    if split == UNNAMED_SPLIT:
        note = f"{env_id} has no splits: the evaluation has all of its {count} tasks"
        if count >= FOLD_SIZE:
            note += ", also those that training has; --split test has only held-out ones"
        return Split(env, range(count), note)
    if count < FOLD_SIZE and split == "train":
        return Split(env, list(range(count)))
    if count < FOLD_SIZE and split == "valid":
        note = (
            f"{env_id} has {count} tasks and no splits, so the validation is on the training "
            f"tasks: with {FOLD_SIZE} or more, some are held out"
        )
        return Split(env, range(count), note, repeats_training=True)
    # Of every `FOLD_SIZE` tasks the last two are held out, one for valid and one for test.
    indices = [
        i for i in range(count) if _SPLIT_BY_PLACE_IN_FOLD.get(i % FOLD_SIZE, "train") == split
    ]
    if not indices:
        raise ValueError(
            f"{env_id} takes no option 'split', and its {count} tasks are too few to hold some out "
            f"for {split}: at least {FOLD_SIZE} are needed (--split all plays them all), "
            f"or a split of its own, such as: {ADVICE}"
        )
    chosen = "the others" if split == "train" else f"every {FOLD_SIZE}th, from {indices[0]}"
    note = (
        f"{env_id} takes no option 'split': "
        f"{split} has {len(indices)} of its {count} tasks, {chosen}"
    )
    return Split(env, indices, note)


def _have_same_tasks(first: TextEnv, second: TextEnv) -> bool:
    """Return whether two environments have lists of tasks, and these are equal.

    Only lists are compared: a generated set may be endless, and differs from split to split.
    """
    first_tasks = getattr(first, "tasks", None)
    second_tasks = getattr(second, "tasks", None)
    if not isinstance(first_tasks, ListTasks) or not isinstance(second_tasks, ListTasks):
        return False
    if len(first_tasks) != len(second_tasks):
        return False
    return all(first_tasks[i] == second_tasks[i] for i in range(len(first_tasks)))


# -- worked examples -----------------------------------------------------------------------------


def make_with_examples(env_id: str, options: Mapping[str, Any]) -> TextEnv:
    """Make an environment with worked examples in front of its questions, if `shots` asks for them.

    Args:
        env_id: The id of the environment.
        options: Its options. `shots` is the number of examples, which an expert plays on the last
            tasks of the split `train`, or a JSONL file of conversations; 0 for none.

    Raises:
        ValueError, TypeError, OSError: The environment cannot be made, `shots` is neither, or the
            environment has no expert to play the examples.
    """
    plain_options = _without(options, "shots")
    env = make(env_id, **plain_options)
    shots = options.get("shots", 0)
    if shots == 0:
        return env
    if type(shots) is int and 1 <= shots <= MAX_SHOTS:
        env.examples = _play_examples(env_id, plain_options, shots)
    elif isinstance(shots, str | Path):
        env.examples = examples_of(Path(shots).expanduser())
    else:
        raise ValueError(
            f"shots is {shots!r}; give a number from 1 to {MAX_SHOTS}, "
            "or a JSONL file of `messages`"
        )
    if env.spec is not None:
        env.spec.kwargs["shots"] = shots
    return env


def _play_examples(env_id: str, options: Mapping[str, Any], shots: int) -> Examples:
    """Return worked examples: an expert's play of the last tasks of the split `train`.

    One more than `shots` is played, if there are as many tasks: if the question is itself one of
    them, the others are enough.
    """
    train = open_split(env_id, {**options, "split": "train"})
    example_count = min(shots + 1, len(train.tasks))
    conversations = []
    with closing(train.env):
        for places_from_end in range(1, example_count + 1):
            task = train.tasks[-places_from_end]
            conversations.append(_play_expert(train.env, task))
    return Examples(tuple(conversations), shots)


def _play_expert(env: TextEnv, task: int) -> Example:
    """Play an episode to its end with the environment's expert.

    Returns:
        The messages of user, assistant and tools, without the system prompt.
    """
    observation, info = begin(env, task, seed=0)
    conversation: list[Message] = [
        message for message in info["messages"] if message["role"] != "system"
    ]
    # Some environments have a player, which sees only what the agent sees. The others list the gold
    # actions for the rest of an episode.
    player: Any = env.expert() if hasattr(env, "expert") else None
    while env.live:
        action = player.act(observation) if player else env.gold()[0]
        conversation.append({"role": "assistant", "content": action})
        observation, _, _, _, info = env.step(action)
        if env.live:
            conversation += info["messages"]
    return tuple(conversation)


def _without(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return options without the one of this name."""
    return {key: value for key, value in options.items() if key != name}
