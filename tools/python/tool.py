"""The Python tool itself: what an agent's call becomes, and what the agent reads of its end."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import Status, ToolFailure, ToolResult
from ..checks import check_range, cut_middle
from ..json_schema import check_arguments, make_schema
from .isolation.levels import SOURCE_CAP
from .isolation.packages import check_packages
from .server.client import check_level, kind_of
from .session import CLOSED, CannotFork, ProgramRun, PythonSession, open_session

_SPELT = {
    number: f"\\x{number:02x}"
    for number in (*range(32), *range(127, 160))
    if chr(number) not in "\t\n\r"
}
_log = logging.getLogger(__name__)


class PythonTool:
    """Runs Python code in a session that keeps its variables from call to call.

    No process exists before the first call. One thread at a time may use a tool; any number of tools may run at once.
    Any thread may `reset` or `close` it: a call under way ends within 2 seconds then and raises `ToolFailure`.

    Args:
        timeout: Seconds of wall-clock time that a call may take, 0.01 to 3600.
        memory_mb: MiB of address space of the session, 64 to 1048576.
        max_output: Characters of output that the agent sees, 64 to 1048576; of longer output, the head and the tail.
        persistent: Whether calls share a session; else each call has a fresh one.
        level: How strongly the code is confined, one of `LEVELS`.
        packages: Installed distributions that the code can import beside the default ones (`packages.DEFAULT`).

    Raises ValueError where a limit is out of range, there is no such level, or a package cannot be given.
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
        self.timeout, self.memory_mb, self.max_output, self.persistent = (
            timeout,
            memory_mb,
            max_output,
            persistent,
        )
        self.level, self.packages = level, check_packages(packages)
        self._session: PythonSession | None = None
        self._history: list[str] = []  # the programs of the session, for a fork by replay
        self._resets = 0

    @property
    def schema(self) -> dict[str, Any]:
        """One argument, `code`."""
        memory = (
            "Variables are kept between calls." if self.persistent else "Every call starts afresh."
        )
        what = (
            f"Run Python code. You see what it prints and the value of a last expression. {memory}"
        )
        code = {"type": "string", "description": "the Python program to run"}
        return make_schema(
            self.name, f"{what} A call may take {self.timeout:g} seconds.", {"code": code}, ["code"]
        )

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run `arguments["code"]`; the text is its output, with a last line in brackets when the session ended."""
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        if problem := _refuse(arguments["code"]):
            return ToolResult(Status.REJECTED, problem)
        run = self._run(arguments["code"])
        # Control characters are spelt out, which a terminal would obey; a flood of them takes as long as other text.
        lines = (
            line.replace("\r", "\\x0d")
            for line in run.output.decode(errors="replace").split("\r\n")
        )
        text = cut_middle("\r\n".join(lines).translate(_SPELT), self.max_output)
        if run.over:
            restarted = "; the session was restarted" if self.persistent else ""
            gap = "\n" if text and not text.endswith("\n") else ""
            text += f"{gap}[{run.over}{restarted}]"
        return ToolResult(run.status, text)

    def reset(self) -> None:
        """End the session; the next call opens a fresh one."""
        self._resets += 1  # first: a call that has yet to open its session will see it
        session, self._session, self._history = self._session, None, []
        if session is not None:
            session.end()

    def fork(self, *, replay: bool = False) -> "PythonTool":
        """Return a tool with the same limits and a live twin of the session.

        With `replay`, a session that cannot be copied is made anew by running its programs again, and the log says so.
        Raises `CannotFork` for a session with live threads, child processes or files open for writing, or one that does
        not answer; this tool keeps its session.
        """
        twin = PythonTool(
            self.timeout,
            self.memory_mb,
            self.max_output,
            self.persistent,
            self.level,
            self.packages,
        )
        if self._session is not None:
            try:
                twin._session, twin._history = self._session.fork(), list(self._history)
            except CannotFork as refusal:
                if not replay:
                    raise
                _log.warning("%s; %d programs are run again instead", refusal, len(self._history))
                for code in self._history:
                    twin._run(code)
        return twin

    close = reset

    def _run(self, code: str) -> ProgramRun:
        resets, history = self._resets, self._history
        session = self._session or open_session(self.level, kind_of(code), self.packages)
        self._session = session  # from here on `reset` ends it, whichever thread calls that
        lives = False
        try:
            if self._resets != resets:
                raise ToolFailure(CLOSED)
            run = session.run(code, self.timeout, self.memory_mb * 2**20, once=not self.persistent)
            lives = self.persistent and run.over is None
            history.append(code)
        finally:
            if not lives:
                if self._session is session:
                    self._session, self._history = None, []
                session.end()
        return run


def _refuse(code: str) -> str | None:
    if "\0" in code:
        return "not run: the code contains a NUL character"
    try:
        size = len(code.encode())
    except UnicodeEncodeError as error:
        return f"not run: the character {code[error.start]!r} at position {error.start} is a lone surrogate"
    return (
        f"not run: the code is {size} bytes long; at most {SOURCE_CAP} are allowed"
        if size > SOURCE_CAP
        else None
    )
