"""Which tasks come next: all in shuffled order, pass after pass, or those that a control takes, in its order."""

from collections.abc import Callable, Sequence, Set
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


def next_tasks(
    seed: int, total: int, cursor: int, count: int, used: Set[int], order: Callable[[int], Sequence[int]] | None = None
) -> tuple[list[int], int]:
    """Return the next `count` of `total` tasks in shuffled order, and the cursor behind them.

    Each pass through the tasks has an order of its own, by the run's `seed`. `cursor` is how many the run has used so
    far; those in `used` are left out, and `count` is at most the others. `order` is what a pass takes in place of all
    tasks in shuffled order: `total` of them.
    """
    tasks, passes = list[int](), dict[int, Any]()
    while len(tasks) < count:
        epoch, place = divmod(cursor, total)
        if epoch not in passes:
            passes[epoch] = order(epoch) if order else shuffled(seed, epoch, total)
        task = int(passes[epoch][place])
        cursor += 1
        if task not in used and task not in tasks:
            tasks.append(task)
    return tasks, cursor


@lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    """Return all tasks in the order of a pass."""
    return np.random.default_rng((seed, epoch)).permutation(total)
