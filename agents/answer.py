"""What an environment answers to one action, with failures told apart from play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

from ..envs import Message, Outcome, StopReason, TextEnv, outcome_of


@dataclass(frozen=True)
class Answer:
    """What came back; `reward` is NaN where `stop` names a failure."""

    messages: list[Message]
    reward: float
    stop: StopReason | None
    info: dict[str, Any]  # without what the other fields say


def take(env: TextEnv, text: str) -> Answer:
    """Step an environment. A reward that is no number is an infrastructure failure; what it raises passes through."""
    _, reward, terminated, truncated, info = env.step(text)
    stop = StopReason(info["stop"]) if terminated or truncated else None
    if not isfinite(reward) and (stop is None or pays(stop)):
        return failure({"error": f"the environment paid a reward of {reward}"})
    rest = {name: value for name, value in info.items() if name not in ("messages", "stop", "outcome")}
    return Answer(info["messages"], reward, stop, rest)


def failure(info: Mapping[str, Any]) -> Answer:
    """Return the answer that stands for an infrastructure failure; `info` says which."""
    return Answer([], nan, StopReason.INFRA_ERROR, dict(info))


def pays(stop: StopReason) -> bool:
    """Return whether a path that stops so has earned its reward."""
    return outcome_of(stop) in (Outcome.DONE, Outcome.TRUNCATED)
