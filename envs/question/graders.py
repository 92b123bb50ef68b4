"""Graders from plain functions: `grade(answer, gold)` returns True, False or a number from 0 to 1.

A `Rubric` holds several graders and functions, each with a name and a weight.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...tools import ToolFailure
from ...tools.plugins import user_code_place
from ..outcomes import EnvFailure
from ..rewards import Grade, Named, Rewards, check_weights

EXPECTED_FUNCTION = "def grade(answer, gold), which returns True, False or a number from 0 to 1"
# Names that a parameter for the right answer often has.
_GOLD_PARAMETER_NAMES = (
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
    """Grades with a function of the agent's answer and the right answer, both text.

    The answer is the whole final reply, without thoughts and surrounding whitespace. An empty reply
    scores 0 without calling the function.

    Args:
        function: Takes `(answer, gold)` and returns True, False or a number from 0 to 1.

    Raises:
        TypeError: The function cannot be called with two texts.
    """

    takes_plain_answers = True  # the gold itself is a right answer

    def __init__(self, function: Callable[[str, str], Any]) -> None:
        self.function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))
        _check_signature(function, self.name)

    def grade(self, *, completion: str, gold: str) -> Grade:
        """Return the function's verdict on a completion.

        Raises:
            EnvFailure: The function raises, or does not return a number from 0 to 1. The episode
                then has no score.
        """
        answer = completion.strip()
        if not answer:
            return Grade(0.0, None, "no-answer")
        reward = _call_grader(f"grader {self.name}", self.function, answer, gold)
        return Grade(self._as_score(reward), answer, self.name)

    def _as_score(self, reward: Any) -> float:
        """Return what the function returned as a float; raise EnvFailure unless it is 0 to 1."""
        is_number = isinstance(reward, bool | int | float | np.bool_ | np.integer | np.floating)
        if not is_number or not math.isfinite(reward) or not 0 <= reward <= 1:
            hint = " (does it lack a `return`?)" if reward is None else ""
            raise EnvFailure(
                f"the grader {self.name} returns {reward!r:.60}{hint}; "
                "return True, False or a number from 0 to 1"
            )
        # A float is returned as it is: it may be a `Rewards`, a subclass with named parts.
        return reward if isinstance(reward, float) else float(reward)


class Rubric:
    """Grades a completion with several named graders; the reward is their weighted sum.

    Args:
        graders: By name, each a `Grader`, or a function of the completion and the gold that returns
            a number. The first `Grader` decides which part of the completion is the answer; if
            there are only functions, all of it is.
        weights: The weights by name; 1 if a grader has none.

    Raises:
        ValueError: A weight cannot be used, as in `Rewards`.
        TypeError: A grader is neither a `Grader` nor a function.
    """

    def __init__(self, graders: Mapping[str, Any], weights: Named | None = None) -> None:
        self.weights = check_weights(graders, weights or {})
        self.graders = dict(graders)
        for name, grader in graders.items():
            if not (hasattr(grader, "grade") or callable(grader)):
                raise TypeError(
                    f"{name} is {grader!r:.60}; "
                    "a rubric takes graders, and functions of completion and gold"
                )

    @property
    def takes_plain_answers(self) -> bool:
        """Whether the gold itself is a right answer.

        It is not if a grader looks for the answer in a longer text, such as in `\\boxed{…}`.
        """
        graders = [grader for grader in self.graders.values() if hasattr(grader, "grade")]
        return all(isinstance(grader, FunctionGrader) for grader in graders)

    def grade(self, *, completion: str, gold: str) -> Grade:
        """Return the verdict of all graders; its answer and rule are those of the first `Grader`.

        Raises:
            EnvFailure: A grader cannot run, or a function raises. The episode then has no score.
        """
        values: dict[str, float] = {}  # by the name of the grader
        first_verdict: Any = None
        for name, grader in self.graders.items():
            if hasattr(grader, "grade"):
                verdict = grader.grade(completion=completion, gold=gold)
                values[name] = verdict.score
                if first_verdict is None:
                    first_verdict = verdict
            else:
                values[name] = _call_grader(f"reward {name}", grader, completion, gold)
        weighted_sum = Rewards(values, self.weights)
        if first_verdict is None:
            return Grade(weighted_sum, answer=completion.strip() or None, how="rubric")
        return Grade(weighted_sum, answer=first_verdict.answer, how=first_verdict.how)


def as_grader(grader: Any) -> Any:
    """Return a grader as it is, and a function as a `FunctionGrader`.

    Raises:
        TypeError: It is neither.
    """
    if inspect.isclass(grader):
        raise TypeError(f"the grader is the class {grader.__name__}; make one: {grader.__name__}()")
    if callable(getattr(grader, "grade", None)):
        return grader
    if callable(grader):
        return FunctionGrader(grader)
    raise TypeError(f"the grader is {grader!r:.60}; write a function: {EXPECTED_FUNCTION}")


def _check_signature(function: Callable[..., Any], name: str) -> None:
    """Raise TypeError if a grading function cannot be called as `function(answer, gold)`.

    The names of its parameters may show that it takes the two in the other order, as in
    `grade(gold, answer)`. This is an error, too.

    Args:
        function: The grading function.
        name: Its name, for the message.
    """
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"the grader {name} is async; write it as a plain function: {EXPECTED_FUNCTION}"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind("answer", "gold")
    except TypeError:
        raise TypeError(
            f"the grader {name} takes {signature}; it is called with two texts: {EXPECTED_FUNCTION}"
        ) from None
    first, second, *_ = [*signature.parameters, "", ""]  # `*args` counts as one parameter
    if first in _GOLD_PARAMETER_NAMES and second not in _GOLD_PARAMETER_NAMES:
        raise TypeError(
            f"the grader {name} takes {signature}; "
            f"the answer comes first, then the gold: {EXPECTED_FUNCTION}"
        )


def _call_grader(title: str, function: Callable[[str, str], Any], answer: str, gold: str) -> Any:
    """Return what a grading function returns.

    Args:
        title: What errors call the function, such as `grader exact_match`.
        function: Takes the answer and the gold.
        answer: The agent's answer.
        gold: The right answer.

    Raises:
        EnvFailure: The function raises. The message has its error and place, without the gold.
    """
    try:
        return function(answer, gold)
    except (EnvFailure, ToolFailure):
        raise
    except Exception as error:
        message = _hide_gold(str(error), gold)
        place = user_code_place(error)
        raise EnvFailure(
            f"the {title} raises {type(error).__name__}: {message}{place}; it must grade any text"
        ) from error


def _hide_gold(text: str, gold: str) -> str:
    """Replace the right answer in an error message: it goes into journals, which must not leak."""
    return re.sub(rf"(?<!\w){re.escape(gold)}(?!\w)", "(the gold)", text)
