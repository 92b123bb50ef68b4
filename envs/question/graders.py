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

        Raises: EnvFailure: The function raises, or returns no number from 0 to 1: such an episode
            has no score.
        """
        answer = completion.strip()
        if not answer:
            return Grade(0.0, None, "no-answer")
        reward = _call_grader(f"grader {self.name}", self.function, answer, gold)
        return Grade(self._as_score(reward), answer, self.name)

    def _as_score(self, reward: Any) -> float:
        """Return the function's reward as a float from 0 to 1; raise EnvFailure if it is none."""
        is_number = isinstance(reward, bool | int | float | np.bool_ | np.integer | np.floating)
        if not is_number or not math.isfinite(reward) or not 0 <= reward <= 1:
            hint = " (does it lack a `return`?)" if reward is None else ""
            raise EnvFailure(
                f"the grader {self.name} returns {reward!r:.60}{hint}; "
                "return True, False or a number from 0 to 1"
            )
        # `Rewards`, a subclass of float, also holds the named parts of a reward and stays as it is.
        return reward if isinstance(reward, float) else float(reward)


class Rubric:
    """Grades a completion with several named graders; the reward is their weighted sum.

    Args: graders: By name: a `Grader`, or a function of the completion and the gold that returns a
        number. The first
            `Grader` says what the agent's answer is; if there are only functions, it is the whole
            completion.
        weights: The weight of each; 1 if it is not named.

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
        """Whether the gold itself is a right answer: no grader looks for one inside a longer
        text."""
        graders = [grader for grader in self.graders.values() if hasattr(grader, "grade")]
        return all(isinstance(grader, FunctionGrader) for grader in graders)

    def grade(self, *, completion: str, gold: str) -> Grade:
        """Return the joint verdict; its answer and rule are those of the first `Grader`.

        Raises:
            EnvFailure: A function raises: such an episode has no score.
        """
        rewards: dict[str, float] = {}
        first_verdict: Any = None
        for name, grader in self.graders.items():
            if hasattr(grader, "grade"):
                verdict = grader.grade(completion=completion, gold=gold)
                rewards[name] = verdict.score
                if first_verdict is None:
                    first_verdict = verdict
            else:
                rewards[name] = _call_grader(f"reward {name}", grader, completion, gold)
        reward = Rewards(rewards, self.weights)
        if first_verdict is None:
            return Grade(reward, answer=completion.strip() or None, how="rubric")
        return Grade(reward, answer=first_verdict.answer, how=first_verdict.how)


def as_grader(grader: Any) -> Any:
    """Return a grader as it is, a function as a `FunctionGrader`; raise TypeError for the rest."""
    if inspect.isclass(grader):
        raise TypeError(f"the grader is the class {grader.__name__}; make one: {grader.__name__}()")
    if callable(getattr(grader, "grade", None)):
        return grader
    if callable(grader):
        return FunctionGrader(grader)
    raise TypeError(f"the grader is {grader!r:.60}; write a function: {FORM}")


def _check_signature(function: Callable[..., Any], name: str) -> None:
    """Raise TypeError if a grading function cannot be called as `function(answer, gold)`.

    A function whose first parameter has a name such as `gold`, and its second has not, takes them
    in the wrong order.
    """
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"the grader {name} is async; write it as a plain function: {FORM}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
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


def _call_grader(
    described: str, function: Callable[[str, str], Any], answer: str, gold: str
) -> Any:
    """Return what a grading function returns.

    Args:
        described: The function in an error message, such as `grader exact_match`.
        function: Takes the answer and the gold.
        answer: The agent's answer.
        gold: The right answer.

    Raises:
        EnvFailure: The function raises: which, where and why.
    """
    try:
        return function(answer, gold)
    except (EnvFailure, ToolFailure):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {_hide_gold(str(error), gold)}{user_code_place(error)}"
        raise EnvFailure(f"the {described} raises {reason}; it must grade any text") from error


def _hide_gold(text: str, gold: str) -> str:
    """Replace the right answer in an error message: journals hold failures, but never the gold."""
    return re.sub(rf"(?<!\w){re.escape(gold)}(?!\w)", "(the gold)", text)
