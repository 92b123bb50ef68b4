"""The tools of an episode: calls are read, checked and run, and their results are written for the agent."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from ...tools import AnyTool, FunctionTool, ToolCall, ToolFailure, ToolResult
from ...tools.plugins import as_tools, forked
from ...tools.subprocesses.deadlines import Overdue, within

TOOL_TIMEOUT = 60.0
GRACE = 5.0  # on top, in which a tool with a limit of its own has what it needs, and ends what an agent did in time


class Toolbox:
    """The tools of one episode, by name; forks and ends as one.

    A call may take `timeout` seconds. A tool with a `timeout` of its own gets none above that: what an agent does ends
    there, with a result as any other. A tool that needs longer cannot run: nothing but its `reset` and `close` is
    called then, even though the call may still be under way.

    Raises TypeError where something given is no tool; ValueError where two tools share a name, or the timeout is not
    above 0.
    """

    def __init__(self, tools: Iterable[AnyTool], timeout: float = TOOL_TIMEOUT) -> None:
        if not timeout > 0:
            raise ValueError(f"tool_timeout is {timeout} seconds; it must be above 0")
        self.timeout = timeout
        made = as_tools(tools)
        self.tools = {tool.name: tool for tool in made}
        if len(self.tools) != len(made):
            raise ValueError(f"two tools share a name: {', '.join(tool.name for tool in made)}")

    def __len__(self) -> int:
        return len(self.tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools' JSON schemas."""
        return [tool.schema for tool in self.tools.values()]

    @property
    def levels(self) -> dict[str, str]:
        """The isolation levels of the tools that have a `level`, by the tools' names."""
        return {name: tool.level for name, tool in self.tools.items() if hasattr(tool, "level")}

    def fork(self) -> Toolbox:
        """Return a copy whose tools are live, independent and in the same state."""
        twin = copy.copy(self)
        twin.tools = dict(zip(self.tools, forked(self.tools.values())))
        return twin

    def call(self, call: ToolCall) -> ToolResult:
        """Run one call; raise `ToolFailure` where the tool cannot run or does not answer in time."""
        tool: Any = self.tools[call.name]
        seconds, limit = self.timeout, dict[str, float]()
        if hasattr(tool, "timeout"):
            tool.timeout = min(tool.timeout, self.timeout)
            seconds += GRACE
        if (
            isinstance(tool, FunctionTool) and tool.asynchronous
        ):  # it is cancelled, and ends what it began
            limit = {"timeout": seconds}
            seconds += GRACE
        try:
            result: ToolResult = within(
                seconds, lambda: tool.call(call.arguments, **limit), f"the tool {call.name}"
            )
            return result
        except Overdue as overdue:
            raise ToolFailure(str(overdue)) from None

    def reset(self) -> None:
        """Give every tool a fresh state."""
        for tool in self.tools.values():
            tool.reset()

    def close(self) -> None:
        for tool in self.tools.values():
            tool.close()
