"""Graders made of plain functions: `grade(answer, gold)` returns True, False or a number from 0 to 1."""

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..tools.plugins import place
from .core import EnvFailure
from .rewards import Grade

FORM = "def grade(answer, gold), which returns True, False or a number from 0 to 1"
_GOLD_NAMES = (
    "gold",
    "target",
    "expected",
    "truth",
    "ground_truth",
    "reference",
    "label",
    "correct",
)


class FunctionGrader:
    """Grades with a function of the agent's answer and the right one, both text.

    The answer is the whole final reply, without thoughts and without blanks around it. A reply that is empty earns 0,
    and the function is not asked.

    Args:
        function: Takes `(answer, gold)` and returns True, False or a number from 0 to 1.

    Raises TypeError if the function cannot be called so.
    """

    def __init__(self, function: Callable[[str, str], Any]) -> None:
        self.function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))
        _check_signature(function, self.name)

    def grade(self, *, completion: str, gold: str) -> Grade:
        """Return the verdict.

        Raises EnvFailure if the function raises, or returns no number from 0 to 1: such an episode has no score.
        """
        answer = completion.strip()
        if not answer:
            return Grade(0.0, None, "no-answer")
        try:
            reward = self.function(answer, gold)
        except EnvFailure:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {_without(gold, str(error))}{place(error)}"
            raise EnvFailure(
                f"the grader {self.name} raises {message}; it must grade any text"
            ) from error
        return Grade(self._checked(reward), answer, self.name)

    def _checked(self, reward: Any) -> float:
        """Return a reward as a number; named rewards stay what they are. Raises EnvFailure if it is none."""
        is_number = isinstance(reward, bool | int | float | np.bool_ | np.integer | np.floating)
        if is_number and math.isfinite(reward) and 0 <= reward <= 1:
            return reward if isinstance(reward, float) else float(reward)
        hint = " (does it lack a `return`?)" if reward is None else ""
        fix = "return True, False or a number from 0 to 1"
        raise EnvFailure(f"the grader {self.name} returns {reward!r:.60}{hint}; {fix}")


def as_grader(grader: Any) -> Any:
    """Return a grader as it is, and a function as a `FunctionGrader`. Raises TypeError for anything else."""
    if inspect.isclass(grader):
        raise TypeError(f"the grader is the class {grader.__name__}; make one: {grader.__name__}()")
    if callable(getattr(grader, "grade", None)):
        return grader
    if callable(grader):
        return FunctionGrader(grader)
    raise TypeError(f"the grader is {grader!r:.60}; write a function: {FORM}")


def _check_signature(function: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"the grader {name} is async; write it as a plain function: {FORM}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C have none
        return
    try:
        signature.bind("answer", "gold")
    except TypeError:
        raise TypeError(
            f"the grader {name} takes {signature}; it is called with two texts: {FORM}"
        ) from None
    first, second, *_ = [*signature.parameters, "", ""]
    if first in _GOLD_NAMES and second not in _GOLD_NAMES:
        raise TypeError(
            f"the grader {name} takes {signature}; the answer comes first, then the gold: {FORM}"
        )


def _without(gold: str, text: str) -> str:
    """Return the text of an error without the right answer, which no journal may hold."""
    return re.sub(rf"(?<!\w){re.escape(gold)}(?!\w)", "(the gold)", text)
