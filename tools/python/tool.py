"""The Python tool itself: how an agent's call becomes a run, and what the agent reads of it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import Status, ToolFailure, ToolResult
from ..checks import check_range, cut_middle
from ..json_schema import check_arguments, make_schema
from .isolation.levels import SOURCE_CAP
from .isolation.packages import check_packages
from .server.client import check_level, find_mentioned_libraries
from .session import CLOSED, CannotFork, ProgramRun, PythonSession, open_session

# How control characters but tabs and ends of lines are spelled out, by code point: 27 -> `\x1b`.
_SPELLED_CONTROLS = {
    code_point: f"\\x{code_point:02x}"
    for code_point in (*range(32), *range(127, 160))
    if chr(code_point) not in "\t\n\r"
}
_MIB = 2**20
_log = logging.getLogger(__name__)


class PythonTool:
    """Runs Python code in a session that keeps its variables from call to call.

    No process exists before the first call. One thread at a time may use a tool; any number of
    tools may run at once. Any thread may `reset` or `close` it: a call in progress then ends within
    2 seconds and raises `ToolFailure`.

    Args:
        timeout: Seconds of wall-clock time that a call may take, 0.01 to 3600.
        memory_mb: MiB of address space of the session, 64 to 1048576.
        max_output: Characters of output that the agent sees, 64 to 1048576; of longer output, the
            head and the tail.
        persistent: Whether calls share a session; else each call has a fresh one.
        level: How strongly the code is confined, one of `LEVELS`.
        packages: Installed distributions that the code can import beside the default ones
            (`packages.DEFAULT`).

    Raises:
        ValueError: A limit is out of range, there is no such level, or a package cannot be given.
    """

    name = "python"

    def __init__(
        self,
        timeout: float = 5.0,
        memory_mb: int = 512,
        max_output: int = 8192,
        persistent: bool = True,
        level: str = "namespaces",
        packages: str | Sequence[str] = (),
    ) -> None:
        check_level(level)
        check_range("timeout", timeout, 0.01, 3600, "seconds")
        check_range("memory_mb", memory_mb, 64, 2**20, "MiB")
        check_range("max_output", max_output, 64, 2**20, "characters")
        self.timeout = timeout
        self.memory_mb = memory_mb
        self.max_output = max_output
        self.persistent = persistent
        self.level = level
        self.packages = check_packages(packages)
        self._session: PythonSession | None = None
        self._history: list[str] = []  # the programs of the session, for a fork by replay
        self._resets = 0

    @property
    def schema(self) -> dict[str, Any]:
        """The tool's only argument is `code`."""
        persistence = (
            "Variables are kept between calls." if self.persistent else "Every call starts afresh."
        )
        description = (
            "Run Python code. You see what it prints and the value of a last expression. "
            f"{persistence} A call may take {self.timeout:g} seconds."
        )
        code = {"type": "string", "description": "the Python program to run"}
        return make_schema(self.name, description, {"code": code}, ["code"])

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run `arguments["code"]`.

        Returns:
            Its status and its output, with a last line in brackets if the session ended.

        Raises:
            ToolFailure: The tool cannot run, through no fault of the program.
        """
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        if problem := _find_refusal(arguments["code"]):
            return ToolResult(Status.REJECTED, problem)
        run = self._run(arguments["code"])
        text = cut_middle(_spell_out_controls(run.output.decode(errors="replace")), self.max_output)
        if run.end_reason:
            if text and not text.endswith("\n"):
                text += "\n"
            restarted = "; the session was restarted" if self.persistent else ""
            text += f"[{run.end_reason}{restarted}]"
        return ToolResult(run.status, text)

    def reset(self) -> None:
        """End the session; the next call opens a fresh one."""
        # First of all, so that a call in another thread that is still opening a session notices it.
        self._resets += 1
        session = self._session
        self._session = None
        self._history = []
        if session is not None:
            session.end()

    close = reset

    def fork(self, *, replay: bool = False) -> "PythonTool":
        """Return a tool with the same limits and a live twin of the session.

        Args:
            replay: Whether a session that cannot be copied is rebuilt by running its programs
                again, which is logged.

        Raises:
            CannotFork: The session has live threads, child processes or files open for writing, or
                does not answer. This tool still has the session.
        """
        twin = PythonTool(
            timeout=self.timeout,
            memory_mb=self.memory_mb,
            max_output=self.max_output,
            persistent=self.persistent,
            level=self.level,
            packages=self.packages,
        )
        if self._session is None:
            return twin
        try:
            twin._session = self._session.fork()
            twin._history = list(self._history)
        except CannotFork as refusal:
            if not replay:
                raise
            _log.warning("%s; %d programs are run again instead", refusal, len(self._history))
            for code in self._history:
                twin._run(code)
        return twin

    def _run(self, code: str) -> ProgramRun:
        """Run a program in the session, and open one first if there is none.

        The session ends afterwards if calls do not share it, or if the program made it end.

        Raises:
            ToolFailure: The tool cannot run, or another thread reset it.
        """
        resets_before = self._resets
        # `reset` replaces this list, so that a program is not added to the history of another
        # session.
        history = self._history
        session = self._session or open_session(
            self.level, find_mentioned_libraries(code), self.packages
        )
        self._session = session  # from now on a `reset` in any thread ends it
        session_continues = False
        try:
            if self._resets != resets_before:  # by another thread, while the session was opened
                raise ToolFailure(CLOSED)
            run = session.run(code, self.timeout, self.memory_mb * _MIB, once=not self.persistent)
            session_continues = self.persistent and run.end_reason is None
            history.append(code)
        finally:
            if not session_continues:
                if self._session is session:
                    self._session = None
                    self._history = []
                session.end()
        return run


def _find_refusal(code: str) -> str | None:
    """Return the reason why a program cannot be run at all; None if it can."""
    if "\0" in code:
        return "not run: the code contains a NUL character"
    try:
        size = len(code.encode())
    except UnicodeEncodeError as error:
        # JSON can escape half of a surrogate pair, such as `\ud800`, which is no character.
        return (
            f"not run: the character {code[error.start]!r} at position {error.start} "
            "is a lone surrogate"
        )
    if size > SOURCE_CAP:
        return f"not run: the code is {size} bytes long; at most {SOURCE_CAP} are allowed"
    return None


def _spell_out_controls(text: str) -> str:
    r"""Spell out the control characters that a terminal would obey: "a\rb" -> "a\\x0db".

    Tabs and ends of lines, `\n` and `\r\n`, stay.
    """
    lines = [line.replace("\r", "\\x0d") for line in text.split("\r\n")]
    return "\r\n".join(lines).translate(_SPELLED_CONTROLS)
