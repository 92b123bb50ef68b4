"""The parent's side of a Python session: it opens the session, watches it run, forks it and ends it.

The parent reads the session's pipe while code runs, so output is bounded here. What oversteps a limit is killed.
"""

import contextlib
import functools
import math
import os
import secrets
import select
import signal
import socket
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

from ..base import Status, ToolFailure
from ..subprocesses import messages
from ..subprocesses.process import Died
from .isolation import linux
from .isolation.levels import LEVELS, OUTPUT_CAP, PROCESSES
from .server.client import DEADLINE, LevelRefused, SessionGroup, current_server
from .server.interpreter import MEMORY_SIGNAL

CLOSED = "the Python session was closed while it ran a program: the tool was closed or reset, or the process ended"
_PIECE = 2**16
_ANSWERS: dict[str, Status] = {
    status: status for status in (Status.OK, Status.ERROR, Status.MEMORY)
}
_ANSWERED = 10.0  # seconds in which a session must have been forked
_REAPED = 1.0  # seconds in which the end of a process must be known after its init's end
_STRAY = 0.001  # seconds after a packet that is no answer: a program that floods its socket waits for us, not we for it


@dataclass(frozen=True)
class ProgramRun:
    """How one program ended: its status, the bytes it wrote, and why the session is over (None when it lives on)."""

    status: Status
    output: bytes
    over: str | None = None


class CannotFork(ToolFailure):
    """A session cannot be copied: it has threads, child processes or files open for writing, or there is no room."""


class PythonSession:
    """A live interpreter, used by one thread at a time; it ends with its last reference.

    Any thread may end it. Descriptors that are in use must not be closed, so that thread only kills, under `_gate`, and
    closes once the call under way has let go of `_turn`.
    """

    def __init__(
        self, group: SessionGroup, control: socket.socket, output: int, member: int
    ) -> None:
        self.group, self.control, self.output = group, control, output
        self.process = -1  # a pidfd, once it is known
        self.ended = False
        self._gate, self._turn = threading.Lock(), threading.RLock()
        os.set_blocking(output, False)
        self._fds = [output]
        self._end = weakref.finalize(self, _end, group, member, control, self._fds)

    def greet(self, seconds: float = DEADLINE) -> None:
        """Wait until the worker is ready; raises `ToolFailure` with what it could not do."""
        self.control.settimeout(max(seconds, 0.001))
        try:
            message, fds, sender = messages.receive_from(self.control)
            messages.close(*fds)
            if "failed" in message:
                raise OSError(message["failed"])
            self.process = os.pidfd_open(sender)
            self._fds.append(self.process)
            if (
                os.getsid(sender) != sender
            ):  # of what a fork did itself, it is this that others rely on
                raise OSError("it is no session of its own")
        except (EOFError, OSError, ValueError) as error:
            raise ToolFailure(f"the Python session did not start: {error}") from error

    def run(self, code: str, timeout: float, memory: int, *, once: bool = False) -> ProgramRun:
        """Run a program for at most `timeout` seconds from now, in `memory` bytes beyond the interpreter's own.

        A program that runs `once` takes the session along when it ends. Raises `ToolFailure` when the server died, when
        another thread ended the session, or when the session belongs to a process this one was forked from.
        """
        self._check_owner()
        with self._turn:
            self._check_alive()
            output, until, key = bytearray(), time.monotonic() + timeout, secrets.token_hex(8)
            try:
                self.group.set_busy(memory, until)
                os.write(program := os.memfd_create("code"), code.encode())
                self._ask({"code": True, "once": once, "memory": memory, "key": key}, [program])
                status = self._await(None if once else key, until, output)
                if status in _ANSWERS:
                    self.group.set_busy(memory, None)
                    run = ProgramRun(status, bytes(output))
                else:
                    run = self._post_mortem(status, timeout, output, once)
            except (OSError, ValueError) as error:
                self._check_alive()
                if isinstance(error, ValueError):
                    raise
                raise ToolFailure(f"the Python tool cannot run: {error}") from error
            if self.ended:
                raise ToolFailure(CLOSED)
            return run

    def fork(self) -> "PythonSession":
        """Return a live twin with a copy of the work folder, in the same boundary; raises `CannotFork` with why."""
        self._check_owner()
        with self._turn:
            self._check_alive()
            return self._twin(time.monotonic() + _ANSWERED)

    def _twin(self, until: float) -> "PythonSession":
        if self.group.members >= PROCESSES:
            raise CannotFork(
                f"the Python session cannot be forked: it and its forks are {PROCESSES}, all they may be"
            )
        try:
            ours, theirs, reading, writing = _connect()
        except OSError as error:  # this process, or the machine, has as many open files as it may
            fix = "raise the limit (ulimit -n) or close environments"
            raise CannotFork(f"the Python session cannot be forked: {error}; {fix}") from error
        member, left = self.group.join()
        twin, key = PythonSession(self.group, ours, reading, member), secrets.token_hex(8)
        try:
            message = {"fork": f"{self.group.folder}-{member}", "left": left, "key": key}
            self._ask(message, [theirs.detach(), writing])
            while (reply := self._reply(key, until)) is None:
                if time.monotonic() > until:
                    raise TimeoutError("timed out")
            if "refused" in reply:
                raise CannotFork(f"the Python session cannot be forked: {reply['refused']}")
            twin.greet(until - time.monotonic())
        except (EOFError, OSError, ToolFailure) as error:
            twin._end()
            if isinstance(error, CannotFork):
                raise
            raise CannotFork(
                f"the Python session cannot be forked: it does not answer ({error})"
            ) from error
        return twin

    def end(self) -> None:
        """End the session, with the last of a group all processes, and wait; a call under way raises `ToolFailure`."""
        self.ended = True
        if (
            self.group.server.owner != os.getpid()
        ):  # whoever held the locks may be no thread of this process
            self._end()
            return
        with self._gate:
            if self._end.alive and self.group.members == 1:
                self.group.kill()
            elif self._end.alive and self.process >= 0:
                linux.kill_tree(self.process)
        with self._turn:
            self._finish()

    def _finish(self) -> None:
        with self._gate:
            if self._end.alive and self.group.members > 1:
                self._kill_alone()
            self._end()

    def _ask(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            with contextlib.suppress(OSError):  # it is dead, which is found out at once
                messages.send(self.control, message, fds)
        finally:
            messages.close(*fds)

    def _await(self, key: str | None, until: float, output: bytearray) -> Status | None:
        """Collect output until the session ends (None), answers by `key` (its status), or oversteps a limit (that)."""
        control, end = self.control.fileno(), self.process if key else self.group.exit_pipe
        poll = select.poll()
        for fd in (self.output, end, *([control] if key else [])):
            poll.register(fd, select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            ready = {fd for fd, _ in poll.poll(math.ceil(left * 1000))}
            if self.output in ready and not self._drain(output):
                poll.unregister(self.output)
            if len(output) >= OUTPUT_CAP:
                return Status.OUTPUT
            if key and control in ready:
                try:
                    status = _ANSWERS[(self._reply(key, until) or {})["status"]]
                except (EOFError, ConnectionError):
                    return None
                except (LookupError, TypeError):
                    continue  # not an answer: something that the program wrote
                self._drain(output)  # all that was written before the answer is in the pipe by now
                return status if len(output) < OUTPUT_CAP else Status.OUTPUT
            if end in ready:
                return None
        return Status.TIMEOUT

    def _reply(self, key: str, until: float) -> dict[str, Any] | None:
        """Return the next message, which may take until a time, if it knows `key`; what else comes is dropped."""
        self.control.settimeout(max(until - time.monotonic(), 0.001))
        with contextlib.suppress(TimeoutError, ValueError):
            message, fds = messages.receive(self.control)
            messages.close(*fds)
            if message.get("key") == key:
                return message
        time.sleep(_STRAY)
        return None

    def _post_mortem(
        self, status: Status | None, timeout: float, output: bytearray, once: bool
    ) -> ProgramRun:
        """End the session, wait until it is gone, and say how its program ended."""
        group = self.group
        if not group.overstepped() and group.members > 1:
            self._kill_alone()
        else:
            group.kill()
            group.wait()
        self._drain(output)
        group.read_exit(0)
        all_ended = group.out_of_memory or messages.wait(group.init, 0)
        reaped = time.monotonic() + _REAPED
        while (
            all_ended and not group.lost and group.exit_status is None and time.monotonic() < reaped
        ):
            group.read_exit(_REAPED)  # the server's report, the reaper's, and the end
        exit_status, memory = group.exit_status, group.out_of_memory
        self._finish()
        if all_ended and group.lost:
            raise ToolFailure("the Python server died, and all its sessions with it")
        if status is Status.OUTPUT:
            return ProgramRun(status, bytes(output), f"stopped after {OUTPUT_CAP} bytes of output")
        if memory:
            return ProgramRun(Status.MEMORY, bytes(output), "out of memory")
        # A program may end by itself between its deadline and its being killed.
        if once and exit_status is not None and (status is None or exit_status != signal.SIGKILL):
            return _run_of(exit_status, bytes(output))
        if status is Status.TIMEOUT:
            return ProgramRun(status, bytes(output), f"timed out after {timeout:g} s")
        return ProgramRun(Status.KILLED, bytes(output), "the process died")

    def _kill_alone(self) -> None:
        if self.process >= 0:
            linux.kill_tree(self.process)
            messages.wait(self.process, DEADLINE)

    def _drain(self, output: bytearray) -> bool:
        """Move what the pipe holds to `output`, up to `OUTPUT_CAP` bytes in all; False when nobody can write more."""
        while len(output) < OUTPUT_CAP:
            try:
                piece = os.read(self.output, min(_PIECE, OUTPUT_CAP - len(output)))
            except BlockingIOError:
                return True
            if not piece:
                return False
            output += piece
        return True

    def _check_owner(self) -> None:
        if (owner := self.group.server.owner) != os.getpid():
            raise ToolFailure(
                f"the Python session belongs to process {owner}, not to its fork; reset it"
            )

    def _check_alive(self) -> None:
        if self.ended or not self._end.alive:
            raise ToolFailure(CLOSED)


def _connect() -> tuple[socket.socket, socket.socket, int, int]:
    """Return two ends of a packet connection and of a pipe; OSError, with nothing left open, where there is no room."""
    ours, theirs = messages.pair(senders=True)
    try:
        return ours, theirs, *os.pipe()
    except OSError:
        ours.close()
        theirs.close()
        raise


def open_session(level: str, kind: str, packages: tuple[str, ...] = ()) -> PythonSession:
    """Return a fresh session, with the libraries of `kind` ready; raises `LevelRefused`, and `ToolFailure` with why."""
    failure = ToolFailure("no Python session can be opened: those that are ready keep ending")
    for _ in range(5):
        try:
            server = current_server(level, packages)
            message, (control, output, exit_pipe, *events, init) = server.take(kind)
        except (Died, OSError) as error:  # a server that died since the last call is replaced
            failure = ToolFailure(f"no Python session can be opened: {error}")
            continue
        if messages.wait(init, 0):  # it ended unused, with the zygote that it came from
            messages.close(control, output, exit_pipe, *events, init)
            continue
        group = SessionGroup(server, message["serial"], message["folder"], init, exit_pipe, *events)
        session = PythonSession(group, socket.socket(fileno=control), output, 1)
        try:
            session.greet()
            return session
        except ToolFailure as error:
            session.end()
            failure = error
    raise failure


@functools.cache
def try_levels() -> dict[str, str | None]:
    """Try each level on this machine: None where it works, else the reason. Takes about a second the first time."""
    found: dict[str, str | None] = dict.fromkeys(LEVELS)
    for level in LEVELS:
        try:
            require(level)
        except ToolFailure as error:
            found[level] = error.reason if isinstance(error, LevelRefused) else str(error)
    return found


def memory_mode(level: str) -> str:
    """Return how this machine limits the memory that a session holds in all; raises as `require` does."""
    return current_server(level).memory


def require(level: str) -> None:
    """Raise `LevelRefused` unless this machine can give `level`; `ToolFailure` where the tool cannot run at all."""
    open_session(level, "").end()


def _run_of(exit_status: int, output: bytes) -> ProgramRun:
    if (code := os.waitstatus_to_exitcode(exit_status)) >= 0:
        return ProgramRun(
            Status.ERROR if code else Status.OK, output, f"exit code {code}" if code > 1 else None
        )
    if -code == MEMORY_SIGNAL:
        return ProgramRun(Status.MEMORY, output)
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return ProgramRun(Status.KILLED, output, f"the process died ({name})")


def _end(group: SessionGroup, member: int, control: socket.socket, fds: list[int]) -> None:
    control.close()
    group.leave(member)
    messages.close(*fds)
