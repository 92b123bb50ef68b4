"""The interface of a tool: its name, JSON schema, `call` and life cycle.

A call never raises because of what the agent wrote: the agent reads its mistake in a `ToolResult`.
Only `ToolFailure`, which means that the tool itself could not run, leaves a call as an exception,
so an infrastructure fault is never scored as the agent's play.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

T = TypeVar("T")


class Status(StrEnum):
    """How a call ended, seen from the tool."""

    OK = "ok"  # it ran to its end
    ERROR = "error"  # the agent's mistake: bad arguments, or its code raised
    TIMEOUT = "timeout"  # it used up its wall-clock time
    MEMORY = "memory"  # it asked for more memory than allowed
    OUTPUT = "output"  # it wrote more than the hard cap and was stopped
    KILLED = "killed"  # its process died: a signal, `os._exit`, a crash in native code
    REJECTED = "rejected"  # it was not run at all


@dataclass(frozen=True)
class ToolResult:
    """The outcome of a call; the agent reads `text`."""

    status: Status
    text: str


class ToolFailure(RuntimeError):
    """The tool itself could not run, through no fault of the agent."""


@runtime_checkable
class Tool(Protocol):
    """Anything an agent can call. Methods may be called from any thread, one at a time per tool."""

    @property
    def name(self) -> str:
        """The name by which the agent calls it."""

    @property
    def schema(self) -> dict[str, Any]:
        """The schema in the form of OpenAI.

        That is `{"type": "function", "function": {"name", "description", "parameters"}}`.
        """

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one call.

        Args:
            arguments: The arguments of the call as the agent wrote them, decoded from JSON.

        Raises:
            ToolFailure: The tool itself cannot run.
        """

    def reset(self) -> None:
        """Start a new episode with fresh state."""

    def fork(self) -> "Tool":
        """Return a live copy with the same state; later calls to one never affect the other."""

    def close(self) -> None:
        """Release the tool's resources; it may be called twice."""


class StatelessTool:
    """Base class of tools that keep no state: nothing to reset, to copy or to close."""

    def reset(self) -> None:
        """Nothing to reset."""

    def fork(self) -> Self:
        """Return the tool itself."""
        return self

    def close(self) -> None:
        """Nothing to release."""
