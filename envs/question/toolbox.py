"""The tools of an episode: looked up by name, run with a timeout, forked and closed together."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from ...tools import AnyTool, FunctionTool, ToolCall, ToolFailure, ToolResult
from ...tools.plugins import as_tools, fork_tools
from ...tools.subprocesses.deadlines import Overdue, call_within

TOOL_TIMEOUT = 60.0  # seconds
# Further seconds in which a tool with its own timeout stops the agent's program, or a cancelled
# coroutine cleans up.
GRACE = 5.0


class Toolbox:
    """The tools of one episode, by name.

    A tool with its own `timeout`, such as `PythonTool`, stops the agent's program by itself and
    returns a normal result; its timeout is lowered to that of the toolbox. A tool that does not
    answer in time is an infrastructure failure. Its call may then still be running, so that only
    its `reset` and `close` are called from then on.

    Args:
        tools: What the agent can call, as `as_tools` reads it.
        timeout: Seconds that a call may take.

    Raises:
        TypeError: One of `tools` is no tool.
        ValueError: Two tools share a name, or the timeout is not above 0.
    """

    def __init__(self, tools: Iterable[AnyTool], timeout: float = TOOL_TIMEOUT) -> None:
        if not timeout > 0:
            raise ValueError(f"tool_timeout is {timeout} seconds; it must be above 0")
        self.timeout = timeout
        tool_list = as_tools(tools)
        self.tools = {tool.name: tool for tool in tool_list}
        if len(self.tools) != len(tool_list):
            names = ", ".join(tool.name for tool in tool_list)
            raise ValueError(f"two tools share a name: {names}")

    def __len__(self) -> int:
        return len(self.tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools' JSON schemas."""
        return [tool.schema for tool in self.tools.values()]

    @property
    def levels(self) -> dict[str, str]:
        """The isolation levels of those tools that have one, by name."""
        return {name: tool.level for name, tool in self.tools.items() if hasattr(tool, "level")}

    def fork(self) -> Toolbox:
        """Return a copy whose tools are live, independent and in the same state."""
        forked_toolbox = copy.copy(self)
        forked_toolbox.tools = dict(zip(self.tools, fork_tools(self.tools.values())))
        return forked_toolbox

    def call(self, call: ToolCall) -> ToolResult:
        """Run a tool call.

        Raises:
            ToolFailure: The tool cannot run, or has not answered in time.
        """
        tool: Any = self.tools[call.name]
        deadline = self.timeout
        options: dict[str, float] = {}
        if hasattr(tool, "timeout"):
            tool.timeout = min(tool.timeout, self.timeout)
            deadline += GRACE
        if isinstance(tool, FunctionTool) and tool.asynchronous:
            # A coroutine is cancelled at its timeout, and then needs time to clean up.
            options = {"timeout": deadline}
            deadline += GRACE
        try:
            result: ToolResult = call_within(
                deadline, lambda: tool.call(call.arguments, **options), f"the tool {call.name}"
            )
        except Overdue as overdue:
            raise ToolFailure(str(overdue)) from None
        return result

    def reset(self) -> None:
        """Give every tool a fresh state."""
        for tool in self.tools.values():
            tool.reset()

    def close(self) -> None:
        for tool in self.tools.values():
            tool.close()
