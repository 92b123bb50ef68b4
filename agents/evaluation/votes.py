"""Votes: which answers of a task's samples are the same, as its environment sees it.

What answers are equal is a matter of the environment (`TextEnv.same`): for a math question ½ and 0.5 are one answer.
Comparing two formulas takes tens of milliseconds, so equal texts are never compared and results are kept.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import gymnasium

Same = Callable[[str, str], bool]
KEPT = 1 << 16  # results of comparisons


def spelled_alike(first: str, second: str) -> bool:
    """Return whether two answers are the same text."""
    return first == second


def same_in(env: gymnasium.Env[str, str]) -> Same:
    """Return what says whether two answers are the same in an environment, wrapped or not; it keeps its results."""
    bare: gymnasium.Env[str, str] = env.unwrapped
    same: Same | None = getattr(bare, "same", None)
    if same is None:
        raise TypeError(
            f"{type(bare).__name__} has no `same`: only turngym.TextEnv environments can be asked"
        )
    return lru_cache(maxsize=KEPT)(same)


def classes(answers: Sequence[object], same: Same) -> list[int]:
    """Return the class of each answer, counted from 0 in the order in which the classes come first.

    An answer is of the first class whose first member is the same. Answers that are no texts are the same where they
    are written alike.
    """
    class_of: dict[str, int] = {}  # by how an answer is written
    firsts: list[object] = []
    for answer in answers:
        if repr(answer) in class_of:
            continue
        known = next(
            (number for number, first in enumerate(firsts) if _same(first, answer, same)), None
        )
        class_of[repr(answer)] = len(firsts) if known is None else known
        if known is None:
            firsts.append(answer)
    return [class_of[repr(answer)] for answer in answers]


def _same(first: object, second: object, same: Same) -> bool:
    return isinstance(first, str) and isinstance(second, str) and same(first, second)
