"""What comes when in a run: how many steps there are, when it validates, the learning rate, and the order of tasks."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..agents.settings import check_least


@dataclass(frozen=True)
class Schedule:
    """The length of a run, its validations, and its learning rate."""

    steps: int = 80
    """Number of training steps. A step is a rollout and one or more optimizer steps on it."""
    token_budget: int = 0
    """The run ends after the step in which training has drawn this many tokens. 0 means no limit."""
    updates: int = 1
    """Number of optimizer steps on each rollout. Each uses the whole rollout."""
    eval_every: int = 20
    """Steps between validations."""
    lr_end: float = 0.1
    """The learning rate falls linearly to this share of `--lr` at the last step, or when the token budget is spent, if
    that is earlier."""

    def check(self) -> None:
        """Raise ValueError for a value out of range."""
        check_least(self, 1, "steps", "updates", "eval_every")
        check_least(self, 0, "token_budget")
        if not 0 <= self.lr_end <= 1:
            raise ValueError(f"lr_end is {self.lr_end!r}; it must lie in [0, 1]")

    def over(self, step: int, tokens: int) -> bool:
        """Return whether a run ends that has taken `step` steps and drawn `tokens` tokens."""
        return step >= self.steps or 0 < self.token_budget <= tokens

    def lr_share(self, step: int, tokens: int) -> float:
        """Return the share of the learning rate after `step` steps and `tokens` tokens."""
        spent = tokens / self.token_budget if self.token_budget else 0.0
        return 1 - (1 - self.lr_end) * max(step / max(self.steps - 1, 1), spent)


def next_tasks(seed: int, total: int, cursor: int, count: int, used: Set[int]) -> tuple[list[int], int]:
    """Return the next `count` of `total` tasks in shuffled order, and the cursor behind them.

    Args:
        seed: Of the run; each pass through the tasks has an order of its own.
        total: Number of tasks.
        cursor: Tasks that the run has used so far.
        count: How many; at most those that are not in `used`.
        used: Tasks to leave out.
    """
    tasks: list[int] = []
    while len(tasks) < count:
        epoch, place = divmod(cursor, total)
        task = int(_order(seed, epoch, total)[place])
        cursor += 1
        if task not in used and task not in tasks:
            tasks.append(task)
    return tasks, cursor


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, epoch)).permutation(total)
