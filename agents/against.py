"""An evaluation beside an earlier one: the difference in success, paired by task, so that samples of a task are one."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from statistics import fmean

from ..envs import TextEnv
from ..envs.splits import begin
from .episodes import TREES, read_result
from .journal import origin_of, read_origin, read_trees
from .scores import Episode, from_trees, grouped
from .significance import Mean, mean_of, t_test

SAME_TASKS = {"system", "format", "answers", "shots", "max_turns"}  # options that leave the tasks as they are


def read_against(folder: Path, env: TextEnv, tasks: Collection[int]) -> list[Episode]:
    """Return the episodes of an earlier evaluation of `tasks`, which are to be played in `env`.

    Raises:
        ValueError, OSError: it is none, is not finished, is one of another environment or of other texts, or has fewer
            than two of the tasks with a score.
    """
    read_result(folder, "against")
    journal, ours = folder / TREES, origin_of(env)
    theirs, what = read_origin(journal), f"the evaluation in {folder}, against which to compare,"
    if theirs.env != ours.env:
        raise ValueError(f"{what} is one of {theirs.env}, this one of {ours.env}; choose one of that")
    for name in sorted((theirs.options.keys() | ours.options.keys()) - SAME_TASKS):
        if (other := theirs.options.get(name)) != (own := ours.options.get(name)):
            raise ValueError(f"{what} has {name} {other!r}, this one {own!r}; compare evaluations of the same tasks")
    trees = [tree for tree in read_trees(journal) if tree.task in tasks]
    episodes = [one for one in from_trees(trees) if one.rewarded]
    if (shared := len({one.task for one in episodes})) < 2:
        raise ValueError(f"{what} shares {shared} of {len(tasks)} tasks with this one; at least 2 are needed")
    with closing(env.fork()) as twin:
        for tree in trees:
            if tree.turns[0].info and begin(twin, tree.task, tree.key[0])[0] != tree.turns[0].text:
                raise ValueError(
                    f"{what} asked task {tree.task} ({tree.task_id}) in another text; evaluate that one again"
                )
    return episodes


def difference(ours: Iterable[Episode], theirs: Iterable[Episode]) -> str:
    """Return the mean difference of success (points) over shared tasks, its 95 % interval, and p of Student's t."""
    own, other = _by_task(ours), _by_task(theirs)
    shared = sorted(own.keys() & other.keys())
    mean = mean_of(100 * (own[task] - other[task]) for task in shared)
    if mean is None or mean.half is None:
        return f"{len(shared)} tasks have a score in both; at least 2 are needed"
    low, high = mean.value - mean.half, mean.value + mean.half
    return f"{mean.value:+.1f} points [{low:+.1f}, {high:+.1f}], {_chance(mean)} ({len(shared)} tasks)"


def _chance(mean: Mean) -> str:
    p = t_test(mean)
    return "p < 0.001" if p is not None and p < 0.001 else f"p {p:.3f}"


def _by_task(episodes: Iterable[Episode]) -> Mapping[int, float]:
    scored = grouped((one for one in episodes if one.rewarded), lambda one: one.task)
    return {task: fmean(one.won for one in own) for task, own in scored.items()}
