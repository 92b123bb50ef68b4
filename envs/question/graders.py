"""Graders made of plain functions: `grade(answer, gold)` returns True, False or a number from 0 to 1.

A `Rubric` holds several graders and functions, each with a name and a weight.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...tools import ToolFailure
from ...tools.plugins import place
from ..outcomes import EnvFailure
from ..rewards import Grade, Named, Rewards, check_weights

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

    takes_plain_answers = True  # the gold itself is a right answer

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
        reward = _called(f"grader {self.name}", self.function, answer, gold)
        return Grade(self._checked(reward), answer, self.name)

    def _checked(self, reward: Any) -> float:
        """Return a reward as a number; named rewards stay what they are. Raises EnvFailure if it is none."""
        is_number = isinstance(reward, bool | int | float | np.bool_ | np.integer | np.floating)
        if is_number and math.isfinite(reward) and 0 <= reward <= 1:
            return reward if isinstance(reward, float) else float(reward)
        hint = " (does it lack a `return`?)" if reward is None else ""
        fix = "return True, False or a number from 0 to 1"
        raise EnvFailure(f"the grader {self.name} returns {reward!r:.60}{hint}; {fix}")


class Rubric:
    """Several graders of one completion, each with a name and a weight.

    graders: By name: a `Grader`, or a function of the completion and the gold that returns a number. The first `Grader`
        says what the agent answered; where there are functions only, that is all it wrote.
    weights: What each counts, 1 where none is named.

    Raises ValueError as `Rewards` does, and TypeError where one can grade nothing.
    """

    def __init__(self, graders: Mapping[str, Any], weights: Named | None = None) -> None:
        self.weights, self.graders = check_weights(graders, weights or {}), dict(graders)
        for name, grader in graders.items():
            if not (hasattr(grader, "grade") or callable(grader)):
                takes = "a rubric takes graders, and functions of completion and gold"
                raise TypeError(f"{name} is {grader!r:.60}; {takes}")

    @property
    def takes_plain_answers(self) -> bool:
        """Whether the gold itself is a right answer: there are functions only, and none reads an answer its own way."""
        graders = [grader for grader in self.graders.values() if hasattr(grader, "grade")]
        return all(isinstance(grader, FunctionGrader) for grader in graders)

    def grade(self, *, completion: str, gold: str) -> Grade:
        """Return the verdict of all; answer and rule are those of the first grader.

        Raises EnvFailure if a function raises: such an episode has no score.
        """
        rewards: dict[str, float] = {}
        first: tuple[str | None, str] | None = None
        for name, grader in self.graders.items():
            if hasattr(grader, "grade"):
                verdict = grader.grade(completion=completion, gold=gold)
                rewards[name], first = verdict.score, first or (verdict.answer, verdict.how)
            else:
                rewards[name] = _called(f"reward {name}", grader, completion, gold)
        answer, how = first or (completion.strip() or None, "rubric")
        return Grade(Rewards(rewards, self.weights), answer, how)


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


def _called(what: str, function: Callable[[str, str], Any], answer: str, gold: str) -> Any:
    """Return what a function returns. Raises EnvFailure that says what raised, where and why, if it raises."""
    try:
        return function(answer, gold)
    except (EnvFailure, ToolFailure):
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {_without(gold, str(error))}{place(error)}"
        raise EnvFailure(f"the {what} raises {message}; it must grade any text") from error


def _without(gold: str, text: str) -> str:
    """Return the text of an error without the right answer, which no journal may hold."""
    return re.sub(rf"(?<!\w){re.escape(gold)}(?!\w)", "(the gold)", text)
