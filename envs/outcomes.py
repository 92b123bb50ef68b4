"""How an episode can end, and an environment's reply to an action."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StopReason(StrEnum):
    """Why an episode ended."""

    ANSWERED = "answered"  # the agent gave a final answer, right or wrong
    NO_ANSWER = "no_answer"  # the agent ended its episode without an answer that could be graded
    GOAL = "goal"  # the world reached its goal
    MAX_TURNS = "max_turns"  # the turn limit was used up
    CONTEXT = "context"  # the next prompt does not fit in the policy's context
    TOOL_ERROR = "tool_error"  # a tool itself could not run
    INFRA_ERROR = "infra_error"  # an environment, grader or engine failed


class Outcome(StrEnum):
    """What an ended episode is worth as data: only `done` and `truncated` carry a reward."""

    DONE = "done"
    TRUNCATED = "truncated"
    TOOL_ERROR = "tool_error"
    INFRA_ERROR = "infra_error"


def outcome_of(stop: StopReason) -> Outcome:
    """Return the outcome of an episode that ended for this reason."""
    if stop in (StopReason.TOOL_ERROR, StopReason.INFRA_ERROR):
        return Outcome(stop)
    if stop in (StopReason.MAX_TURNS, StopReason.CONTEXT):
        return Outcome.TRUNCATED
    return Outcome.DONE


class EnvFailure(RuntimeError):
    """Something an environment depends on (a grader, a server) failed, by no fault of the agent."""


@dataclass
class Reply:
    """An environment's answer to one action.

    Args:
        text: The observation.
        reward: The reward of the turn; a `Rewards` has several, each kept by its name.
        stop: Why the episode ends with this turn; None if it goes on.
        role: The speaker of `text` in the chat: `user` or `tool`.
        info: Added to the `info` of the step.
        valid: Whether the action could be carried out, right or wrong; None if that has no meaning.
    """

    text: str
    reward: float = 0.0
    stop: StopReason | None = None
    role: str = "user"
    info: Mapping[str, Any] = field(default_factory=dict)
    valid: bool | None = None
