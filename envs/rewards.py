"""Several named rewards of one episode: what is paid is their weighted sum, and each is kept by its name."""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple, Self

Named = Mapping[str, float]


class Rewards(float):
    """Named rewards of one turn, which are as a number the sum of each times its weight; a reply's `reward` may be one.

    rewards: What each is.
    weights: What it counts, 1 where none is named; 0 pays nothing, and the reward is kept all the same.

    Raises ValueError where there is none, a name is no word, a number is not finite, or a weight belongs to no reward.
    """

    rewards: dict[str, float]
    weights: dict[str, float]

    def __new__(cls, rewards: Named, weights: Named | None = None) -> Self:
        weights = {**dict.fromkeys(rewards, 1.0), **check_weights(rewards, weights or {})}
        for name, value in rewards.items():
            _check_number(f"reward {name!r}", value)
        made = super().__new__(cls, sum(weights[name] * value for name, value in rewards.items()))
        made.rewards = {name: float(value) for name, value in rewards.items()}
        made.weights = weights
        return made

    def __getnewargs__(self) -> Any:  # for copies
        return self.rewards, self.weights


def check_weights(names: Mapping[str, Any], weights: Named) -> dict[str, float]:
    """Return the weights of named rewards. Raises ValueError as `Rewards` does."""
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
                f"there is a weight for {name!r}, which is no reward; the rewards are {', '.join(names)}"
            )
        _check_number(f"the weight of {name!r}", weight)
    return {name: float(weight) for name, weight in weights.items()}


def added(before: Mapping[str, dict[str, float]], reward: Rewards) -> dict[str, dict[str, float]]:
    """Return what `info` holds behind a turn that pays `reward`: `rewards`, their sums so far by name, and `weights`.

    Raises ValueError where a reward has another weight than before.
    """
    sums, weights = dict(before.get("rewards", {})), dict(before.get("weights", {}))
    for name, value in reward.rewards.items():
        weight = reward.weights[name]
        if weights.setdefault(name, weight) != weight:
            raise ValueError(
                f"the reward {name!r} weighs {weight:g}, and {weights[name]:g} in an earlier turn"
            )
        sums[name] = sums.get(name, 0.0) + value
    return {"rewards": sums, "weights": weights}


class Grade(NamedTuple):
    """A grader's verdict on one completion."""

    score: float  # the reward; of several graders a `Rewards`
    answer: str | None  # what the agent answered; None when there is no answer
    how: str  # which rule decided
    error: str | None = None  # why it failed


def _check_number(what: str, value: Any) -> None:
    if not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{what} is {value!r}; it must be a finite number")
