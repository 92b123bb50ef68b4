"""The Python tool: an agent's code runs in a process of its own and comes back as a status and text.

Limits are kept from outside the process that runs the code. Nothing an agent writes raises here; only `ToolFailure`,
when no session can be had, does.
"""

from collections.abc import Mapping
from typing import Any

from ..core import Status, ToolFailure, ToolResult, check_arguments, make_schema
from .session import Session, open_session

SOURCE_CAP = 2**20


class PythonTool:
    """Runs Python code in a session that keeps its variables from call to call.

    timeout: seconds of wall-clock time a call may take, 0.01 to 3600
    memory_mb: MiB of address space of the session, 64 to 1048576
    max_output: characters of output that the agent sees, 64 to 1048576; of longer output, the head and the tail
    persistent: False gives every call a fresh session

    Raises ValueError for a limit out of range. No process exists before the first call. One thread at a time may use a
    tool; any number of tools may run at once.
    """

    name = "python"

    def __init__(
        self, timeout: float = 5.0, memory_mb: int = 512, max_output: int = 8192, persistent: bool = True
    ) -> None:
        _check_range("timeout", timeout, 0.01, 3600, "seconds")
        _check_range("memory_mb", memory_mb, 64, 2**20, "MiB")
        _check_range("max_output", max_output, 64, 2**20, "characters")
        self.timeout, self.memory_mb, self.max_output, self.persistent = timeout, memory_mb, max_output, persistent
        self._session: Session | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """One argument, `code`."""
        memory = "Variables are kept between calls." if self.persistent else "Every call starts afresh."
        return make_schema(
            self.name,
            f"Run Python code. You see what it prints and the value of a last expression. {memory} "
            f"A call may take {self.timeout:g} seconds.",
            {"code": {"type": "string", "description": "the Python program to run"}},
            ["code"],
        )

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run `arguments["code"]`; the text is its output, with a last line in brackets when the session ended."""
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        if problem := _refuse(arguments["code"]):
            return ToolResult(Status.REJECTED, problem)
        session = self._session or open_session(self.memory_mb)
        self._session = None  # unless the run leaves it fit for the next call
        try:
            run = session.run(arguments["code"], self.timeout)
            if self.persistent and run.over is None:
                self._session = session
        finally:
            if self._session is None:
                session.end()
        text = _shorten(run.output.decode(errors="replace"), self.max_output)
        if run.over:
            restarted = "; the session was restarted" if self.persistent else ""
            gap = "\n" if text and not text.endswith("\n") else ""
            text += f"{gap}[{run.over}{restarted}]"
        return ToolResult(run.status, text)

    def reset(self) -> None:
        """End the session; the next call opens a fresh one."""
        if self._session is not None:
            self._session.end()
            self._session = None

    def fork(self) -> "PythonTool":
        """A tool with the same limits and a live twin of the session.

        Raises `ToolFailure` when it cannot be made; this tool's own session is lost then.
        """
        twin = PythonTool(self.timeout, self.memory_mb, self.max_output, self.persistent)
        if self._session is not None:
            try:
                twin._session = self._session.fork()
            except ToolFailure:
                self.reset()
                raise
        return twin

    def close(self) -> None:
        """End the session."""
        self.reset()


def _check_range(name: str, value: float, low: float, high: float, unit: str) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low:g} to {high:g} {unit}")


def _refuse(code: str) -> str | None:
    if "\0" in code:
        return "not run: the code contains a NUL character"
    try:
        size = len(code.encode())
    except UnicodeEncodeError as error:
        return f"not run: the character {code[error.start]!r} at position {error.start} is a lone surrogate"
    return f"not run: the code is {size} bytes long; at most {SOURCE_CAP} are allowed" if size > SOURCE_CAP else None


def _shorten(text: str, limit: int) -> str:
    cut = len(text) - limit
    if cut <= 0:
        return text
    tail = limit // 2
    return f"{text[: limit - tail]}\n… [{cut} characters cut] …\n{text[-tail:]}"
