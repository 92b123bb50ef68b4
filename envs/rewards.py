"""Several named rewards of one episode: the reward is their weighted sum, and `info` has each.

A grader returns a `Grade`; its score, like the reward of a `Reply`, may be a `Rewards`.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple, Self

Named = Mapping[str, float]
"""Rewards or weights by the name of the reward."""


class Rewards(float):
    """Named rewards of one turn; as a number, their weighted sum. A reply's `reward` may be one.

    Args:
        rewards: The value of each reward by its name.
        weights: The weight of each reward; 1 if it is not named. A reward of weight 0 adds nothing
            to the sum, but is recorded like the others.

    Raises:
        ValueError: There is no reward, a name is not a word, a number is not finite, or a weight
            belongs to no reward.
    """

    rewards: dict[str, float]
    weights: dict[str, float]

    def __new__(cls, rewards: Named, weights: Named | None = None) -> Self:
        """Make the number with the rewards and weights as attributes.

        It is `__new__`, not `__init__`, because a float cannot change once it is made.
        """
        all_weights = dict.fromkeys(rewards, 1.0) | check_weights(rewards, weights or {})
        for name, value in rewards.items():
            _check_number(f"reward {name!r}", value)
        weighted_sum = sum(all_weights[name] * value for name, value in rewards.items())
        total = super().__new__(cls, weighted_sum)
        total.rewards = {name: float(value) for name, value in rewards.items()}
        total.weights = all_weights
        return total

    def __getnewargs__(self) -> Any:
        """Return the arguments of the constructor, which `copy` and `pickle` need."""
        return self.rewards, self.weights


def check_weights(names: Mapping[str, Any], weights: Named) -> dict[str, float]:
    """Check the names and weights of rewards, and return the weights as floats.

    Args:
        names: A mapping whose keys are the names of all rewards.
        weights: The weight of some of them.

    Raises:
        ValueError: There is no name, a name is not a word, or a weight is not finite or belongs to
            no reward.
    """
    if not names:
        raise ValueError("no reward is named; name at least one, such as {'correct': 1.0}")
    for name in names:
        if not (isinstance(name, str) and re.fullmatch(r"[\w-]+", name)):
            raise ValueError(
                f"a reward is called {name!r}; a name has letters, digits, _ and - only"
            )
    for name, weight in weights.items():
        if name not in names:
            raise ValueError(
                f"there is a weight for {name!r}, which is no reward; "
                f"the rewards are {', '.join(names)}"
            )
        _check_number(f"the weight of {name!r}", weight)
    return {name: float(weight) for name, weight in weights.items()}


def add_rewards(
    sums_before: Mapping[str, dict[str, float]], reward: Rewards
) -> dict[str, dict[str, float]]:
    """Return the named rewards of an episode so far, with those of one more turn added.

    Args:
        sums_before: What this function returned for the turn before; empty before the first.
        reward: The rewards of the turn.

    Returns:
        What `info` shows: `rewards` (the sum of each over the turns, by name) and `weights`.

    Raises:
        ValueError: A reward has another weight than in an earlier turn.
    """
    sums = dict(sums_before.get("rewards", {}))
    weights = dict(sums_before.get("weights", {}))
    for name, value in reward.rewards.items():
        weight = reward.weights[name]
        weight_before = weights.setdefault(name, weight)
        if weight_before != weight:
            raise ValueError(
                f"the reward {name!r} weighs {weight:g}, and {weight_before:g} in an earlier turn"
            )
        sums[name] = sums.get(name, 0.0) + value
    return {"rewards": sums, "weights": weights}


class Grade(NamedTuple):
    """A grader's verdict on one completion."""

    score: float  # the reward; of several graders a `Rewards`
    answer: str | None  # the agent's answer; None if there is none
    how: str  # which rule decided
    error: str | None = None  # why grading failed


def _check_number(label: str, value: Any) -> None:
    """Raise ValueError, beginning with `label`, unless `value` is a finite number."""
    if not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{label} is {value!r}; it must be a finite number")
