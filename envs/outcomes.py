"""How an episode can end, and what an environment replies to an action."""

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
    """Return the outcome of a stop reason."""
    if stop in (StopReason.TOOL_ERROR, StopReason.INFRA_ERROR):
        return Outcome(stop)
    return Outcome.TRUNCATED if stop in (StopReason.MAX_TURNS, StopReason.CONTEXT) else Outcome.DONE


class EnvFailure(RuntimeError):
    """Something an environment depends on (a grader, a server) could not run: no fault of the agent's."""


@dataclass
class Reply:
    """What the environment answers to one action.

    With `stop` set it ends the episode. `role` is the speaker of `text` in the chat (`user` or `tool`). `valid` says
    whether the world could carry out the action, right or wrong; None where it cannot tell.
    """

    text: str
    reward: float = 0.0  # or `Rewards`, which are kept by name
    stop: StopReason | None = None
    role: str = "user"
    info: Mapping[str, Any] = field(default_factory=dict)
    valid: bool | None = None
