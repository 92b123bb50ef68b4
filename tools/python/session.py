"""The parent's side of a Python session: it opens the session, watches it run, forks it and ends it.

The parent reads the session's pipe while code runs, so output is bounded here; a session that oversteps a limit is
killed and never used again.
"""

import contextlib
import math
import os
import select
import shutil
import signal
import socket
import time
import weakref
from dataclasses import dataclass
from typing import IO

from ..core import Status, ToolFailure
from ..process import Deadline, Died, read_frame, write_frame
from .interpreter import MEMORY_EXIT
from .server import SERVER_DEADLINE, Server, current_server

OUTPUT_CAP = 2**20
_PIECE = 2**16


@dataclass(frozen=True)
class Run:
    """How one program ended: its status, the bytes it wrote, and why the session is over (None when it lives on)."""

    status: Status
    output: bytes
    over: str | None = None


class Session:
    """A live interpreter, used by one thread at a time; it ends with its last reference."""

    def __init__(self, server: Server, sock: socket.socket, pipe: IO[bytes]) -> None:
        self.server, self.sock, self.pipe = server, sock, pipe
        self.serial = next(server.serials)
        self.directory = f"{server.root}/{self.serial}"
        self._close = weakref.finalize(self, _close, sock, pipe)

    def run(self, code: str, timeout: float) -> Run:
        """Run a program for at most `timeout` seconds from now.

        Raises `ToolFailure` when the server died, or when the session belongs to a process this one was forked from.
        """
        self._check_owner()
        output = bytearray()
        status = self._watch(code, time.monotonic() + timeout, output)
        if status in (Status.OK, Status.ERROR, Status.MEMORY):
            return Run(status, bytes(output))
        exit_code = self._kill()
        if not self._close.alive:
            raise ToolFailure("the Python session was closed while it ran a program, as at the end of the process")
        self._drain(output)
        self._release()
        if exit_code == MEMORY_EXIT:
            return Run(Status.MEMORY, bytes(output), "out of memory")
        over = {
            Status.TIMEOUT: f"timed out after {timeout:g} s",
            Status.OUTPUT: f"stopped after {OUTPUT_CAP} bytes of output",
        }
        return Run(status, bytes(output), over.get(status) or f"the process died ({_describe(exit_code)})")

    def fork(self) -> "Session":
        """A live twin with all variables and a copy of the working directory.

        As with any fork, threads stay behind, and files that are open share their position. Raises `ToolFailure` when
        it cannot be made; the session must be ended then, as a late answer would be taken for that of the next call.
        """
        self._check_owner()
        twin, ends = _channel(self.server)
        until = time.monotonic() + SERVER_DEADLINE
        try:
            with ends:
                self.sock.settimeout(SERVER_DEADLINE)
                write_frame(self.sock, {"fork": twin.directory}, ends.fds)
            read_frame(self.sock, until)
            self.server.ask("adopt", twin.serial, pid=read_frame(twin.sock, until)["pid"])
        except (Died, Deadline, EOFError, OSError, ValueError) as error:
            raise ToolFailure(f"the Python session cannot be forked: {error}") from error
        return twin

    def end(self) -> None:
        """Kill the session's process group, wait until it is gone, remove its directory; it may be called twice."""
        if self._close.alive and self.server.owner == os.getpid():
            with contextlib.suppress(ToolFailure):  # a dead server has taken its sessions along
                self._kill()
        self._release()

    def _watch(self, code: str, until: float, output: bytearray) -> Status:
        """Send the program and collect output until the session answers, dies or oversteps a limit."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        poll.register(self.pipe, select.POLLIN)
        try:
            self.sock.settimeout(max(until - time.monotonic(), 0.001))
            write_frame(self.sock, {"code": code})
            while (left := until - time.monotonic()) > 0:
                ready = {fd for fd, _ in poll.poll(math.ceil(left * 1000))}
                if self.pipe.fileno() in ready and not self._drain(output):
                    poll.unregister(self.pipe)
                if len(output) < OUTPUT_CAP and self.sock.fileno() in ready:
                    status = Status(read_frame(self.sock, until)["status"])
                    self._drain(output)  # all that was written before the answer is in the pipe by now
                    return status
                if len(output) >= OUTPUT_CAP:
                    return Status.OUTPUT
        except TimeoutError:
            pass
        except (EOFError, OSError, ValueError, RecursionError, LookupError, TypeError):
            return Status.KILLED
        return Status.TIMEOUT

    def _drain(self, output: bytearray) -> bool:
        """Move what the pipe holds to `output`, up to `OUTPUT_CAP` bytes in all; False when nobody can write more."""
        while len(output) < OUTPUT_CAP:
            piece = self.pipe.read(min(_PIECE, OUTPUT_CAP - len(output)))
            if not piece:
                return piece is None
            output += piece
        return True

    def _kill(self) -> int | None:
        try:
            code: int | None = self.server.ask("end", self.serial)
        except (Died, Deadline) as error:
            raise ToolFailure(f"the Python server died, and all its sessions with it: {error}") from error
        return code

    def _release(self) -> None:
        if self.server.owner == os.getpid():
            shutil.rmtree(self.directory, ignore_errors=True)
        self._close()

    def _check_owner(self) -> None:
        if self.server.owner != os.getpid():
            raise ToolFailure(f"the Python session belongs to process {self.server.owner}, not to its fork; reset it")


def open_session(memory_mb: int) -> Session:
    """A fresh session of at most `memory_mb` MiB of address space; raises `ToolFailure` with the reason."""
    reason: Exception | None = None
    for _ in range(2):  # a server that died since the last call is replaced
        server = current_server()
        session, ends = _channel(server)
        try:
            with ends:
                server.ask("open", session.serial, ends.fds, memory_mb=memory_mb)
            read_frame(session.sock, time.monotonic() + SERVER_DEADLINE)
        except (Died, Deadline, EOFError, OSError) as error:
            session.end()
            reason = error
        else:
            return session
    raise ToolFailure(f"no Python session can be opened: {reason}") from reason


class _Ends:
    """The session's ends of its socket and pipe, open in this process only until they are sent."""

    def __init__(self, sock: socket.socket, pipe: int) -> None:
        self.sock, self.pipe = sock, pipe
        self.fds = (sock.fileno(), pipe)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.sock.close()
        os.close(self.pipe)


def _channel(server: Server) -> tuple[Session, _Ends]:
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return Session(server, ours, os.fdopen(reading, "rb", buffering=0)), _Ends(theirs, writing)


def _close(sock: socket.socket, pipe: IO[bytes]) -> None:
    sock.close()
    pipe.close()


def _describe(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return signal.Signals(-exit_code).name
    return f"exit code {exit_code}"
