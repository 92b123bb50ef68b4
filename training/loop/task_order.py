"""In which order a run takes its tasks: shuffled by epoch, from a key."""

from collections.abc import Callable, Sequence, Set
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray


def next_tasks(
    seed: int,
    total: int,
    cursor: int,
    count: int,
    used: Set[int],
    order: Callable[[int], Sequence[int]] | None = None,
) -> tuple[list[int], int]:
    """Return the next `count` of `total` tasks, which leave out those in `used`, and the cursor behind them.

    `cursor` is how many the run has used so far. Each pass through the tasks has an order of its own, by the run's
    `seed`, or takes `total` of them in the `order` that is given.
    """
    tasks = list[int]()
    taken: Callable[[int], Any] = cache(
        order or partial(shuffled, seed, total=total)
    )  # by the number of a pass
    while len(tasks) < count:
        epoch, place = divmod(cursor, total)
        task, cursor = int(taken(epoch)[place]), cursor + 1
        if task not in used and task not in tasks:
            tasks.append(task)
    return tasks, cursor


@lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    """Return all tasks in the order of a pass."""
    return np.random.default_rng((seed, epoch)).permutation(total)
