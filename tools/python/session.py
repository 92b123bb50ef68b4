"""The parent's side of a Python session: it opens the session, watches it run, forks it, ends it.

The parent reads the session's output pipe while code runs, so output is bounded here. Whatever
exceeds a limit is killed.
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
from typing import Any, NamedTuple

from ..base import Status, ToolFailure
from ..subprocesses import messages
from ..subprocesses.process import Died
from .isolation import linux
from .isolation.levels import LEVELS, MAX_PROCESSES, OUTPUT_CAP
from .server.client import SERVER_SECONDS, LevelRefused, SessionGroup, current_server
from .server.interpreter import MEMORY_SIGNAL

CLOSED = (
    "the Python session was closed while it ran a program: "
    "the tool was closed or reset, or the process ended"
)
_CHUNK = 2**16  # bytes that are read from the output pipe at once
_OPEN_TRIES = 5
_FORK_SECONDS = 10.0  # within which a session must have forked
_EXIT_REPORT_SECONDS = 1.0  # within which the server reports how a process ended, after its init
# Seconds of sleep after a packet that is no reply: a program that floods its socket then waits for
# this process, rather than this process for the program.
_STRAY_PACKET_PAUSE = 0.001
# The statuses that a worker replies, by their text; others are found out from outside.
_REPLIED_STATUSES: dict[str, Status] = {
    status: status for status in (Status.OK, Status.ERROR, Status.MEMORY)
}


@dataclass(frozen=True)
class ProgramRun:
    """How one program ended."""

    status: Status
    output: bytes  # all that it wrote
    over: str | None = None  # why the session is over; None if it lives on


class CannotFork(ToolFailure):
    """A session cannot be copied.

    It has threads, child processes or files open for writing, or there is no room for a copy.
    """


class PythonSession:
    """A live interpreter, used by one thread at a time; it ends with its last reference.

    Any thread may end it. Descriptors that another thread uses must not be closed, so the ending
    thread at first only kills, under `_kill_lock`; it closes them once the call in progress has
    released `_call_lock`.

    Args:
        group: This session and its forks, which share a boundary.
        control: The socket to the worker.
        output: The reading end of the pipe that the program writes to.
        member: This session's number in the group.
    """

    def __init__(
        self, group: SessionGroup, control: socket.socket, output: int, member: int
    ) -> None:
        self.group = group
        self.control = control
        self.output = output
        self.process = -1  # a pidfd of the worker; -1 until it has greeted
        self.ended = False
        self._kill_lock = threading.Lock()
        self._call_lock = threading.RLock()
        os.set_blocking(output, False)
        self._descriptors = [output]
        self._finalizer = weakref.finalize(
            self, _release_session, group, member, control, self._descriptors
        )

    def greet(self, seconds: float = SERVER_SECONDS) -> None:
        """Wait, for at most some seconds, until the worker is ready.

        Raises:
            ToolFailure: It did not start, with what it could not do.
        """
        self.control.settimeout(max(seconds, 0.001))
        try:
            message, descriptors, sender_pid = messages.receive_packet_with_sender(self.control)
            messages.close_descriptors(*descriptors)
            if "failed" in message:
                raise OSError(message["failed"])
            self.process = os.pidfd_open(sender_pid)
            self._descriptors.append(self.process)
            # A twin begins its session itself, inside the sandbox, where a program may interfere.
            # The judge of system calls relies on it, so it is verified from outside.
            if os.getsid(sender_pid) != sender_pid:
                raise OSError("it is no session of its own")
        except (EOFError, OSError, ValueError) as error:
            raise ToolFailure(f"the Python session did not start: {error}") from error

    def run(self, code: str, timeout: float, memory: int, *, once: bool = False) -> ProgramRun:
        """Run a program.

        Args:
            code: The program.
            timeout: Seconds from now that it may take.
            memory: Bytes that it may take beyond those of the interpreter.
            once: Whether the session ends with the program.

        Raises:
            ToolFailure: The server died, another thread ended the session, or the session belongs
                to a process that this one was forked from.
        """
        self._check_owner()
        with self._call_lock:
            self._check_alive()
            deadline = time.monotonic() + timeout
            output = bytearray()
            # A reply must carry this key, which a program does not know beforehand.
            key = secrets.token_hex(8)
            try:
                self.group.notify_server_of_call(memory, deadline)
                # A packet has no room for a program: it travels as a file in memory.
                program = _write_program(code)
                request = {"code": True, "once": once, "memory": memory, "key": key}
                self._send_request(request, [program])
                status = self._collect_output(None if once else key, deadline, output)
                if status in _REPLIED_STATUSES:
                    self.group.notify_server_of_call(memory, None)
                    run = ProgramRun(status, bytes(output))
                else:
                    run = self._end_after_run(status, timeout, output, once)
            except (OSError, ValueError) as error:
                # If another thread has ended the session meanwhile, that is the reason.
                self._check_alive()
                if isinstance(error, ValueError):
                    raise
                raise ToolFailure(f"the Python tool cannot run: {error}") from error
            if self.ended:
                raise ToolFailure(CLOSED)
            return run

    def fork(self) -> "PythonSession":
        """Return a live twin with a copy of the work folder, in the same boundary.

        Raises:
            CannotFork: The session cannot be copied, with the reason; it lives on.
        """
        self._check_owner()
        with self._call_lock:
            self._check_alive()
            return self._fork_until(time.monotonic() + _FORK_SECONDS)

    def _fork_until(self, deadline: float) -> "PythonSession":
        """Fork as `fork` does, until a time of `time.monotonic`."""
        if self.group.members >= MAX_PROCESSES:
            raise CannotFork(
                "the Python session cannot be forked: "
                f"it and its forks are {MAX_PROCESSES}, all they may be"
            )
        try:
            ends = _open_session_ends()
        except OSError as error:  # this process, or the machine, has as many open files as it may
            raise CannotFork(
                f"the Python session cannot be forked: {error}; "
                "raise the limit (ulimit -n) or close environments"
            ) from error
        member, left_members = self.group.add_member()
        twin = PythonSession(self.group, ends.control, ends.output, member)
        key = secrets.token_hex(8)
        request = {"fork": f"{self.group.folder}-{member}", "left": left_members, "key": key}
        try:
            self._send_request(request, [ends.worker_control.detach(), ends.worker_output])
            reply = self._receive_reply(key, deadline)
            while reply is None:
                if time.monotonic() > deadline:
                    raise TimeoutError("timed out")
                reply = self._receive_reply(key, deadline)
            if "refused" in reply:
                raise CannotFork(f"the Python session cannot be forked: {reply['refused']}")
            twin.greet(deadline - time.monotonic())
        except (EOFError, OSError, ToolFailure) as error:
            twin._finalizer()
            if isinstance(error, CannotFork):
                raise
            raise CannotFork(
                f"the Python session cannot be forked: it does not answer ({error})"
            ) from error
        return twin

    def end(self) -> None:
        """End the session and wait until it has ended; a call in progress raises `ToolFailure`.

        All its processes are killed; with the last session of a group, all of the boundary's.
        """
        self.ended = True
        if self.group.server.owner != os.getpid():
            # After a fork of this process, the locks may be held by a thread that it does not have.
            self._finalizer()
            return
        with self._kill_lock:
            if self._finalizer.alive and self.group.members == 1:
                self.group.kill()
            elif self._finalizer.alive and self.process >= 0:
                linux.kill_tree(self.process)
        with self._call_lock:
            self._finish()

    def _finish(self) -> None:
        """Kill what is left of the session, and release it."""
        with self._kill_lock:
            if self._finalizer.alive and self.group.members > 1:
                self._kill_own_processes()
            self._finalizer()

    def _send_request(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Send a request to the worker, with descriptors, which are closed here."""
        try:
            with contextlib.suppress(OSError):  # it is dead, which is found out at once
                messages.send_packet(self.control, message, descriptors)
        finally:
            messages.close_descriptors(*descriptors)

    def _collect_output(self, key: str | None, deadline: float, output: bytearray) -> Status | None:
        """Collect output until the program ends or exceeds a limit.

        Args:
            key: The key of the reply that tells its end; None if the session ends with it.
            deadline: When it has to end, by `time.monotonic`.
            output: What the program wrote is added to this.

        Returns:
            The status in the reply, or TIMEOUT or OUTPUT for a limit; None if the session ended.
        """
        control = self.control.fileno()
        session_end = self.process if key else self.group.exit_pipe  # readable when it has ended
        poll = select.poll()
        poll.register(self.output, select.POLLIN)
        poll.register(session_end, select.POLLIN)
        if key:
            poll.register(control, select.POLLIN)
        while True:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                return Status.TIMEOUT
            ready = {descriptor for descriptor, _ in poll.poll(math.ceil(seconds_left * 1000))}
            if self.output in ready and not self._drain_output(output):
                poll.unregister(self.output)
            if len(output) >= OUTPUT_CAP:
                return Status.OUTPUT
            if key and control in ready:
                try:
                    reply = self._receive_reply(key, deadline)
                except (EOFError, ConnectionError):
                    return None
                status = _replied_status(reply)
                if status is None:
                    continue  # no reply, but something that the program wrote
                self._drain_output(output)  # all that was written before the reply is there by now
                return status if len(output) < OUTPUT_CAP else Status.OUTPUT
            if session_end in ready:
                return None

    def _receive_reply(self, key: str, deadline: float) -> dict[str, Any] | None:
        """Return the next message if it comes by the deadline and has the key; else drop it.

        Raises:
            EOFError: The worker has closed its end.
            OSError: The worker has died.
        """
        self.control.settimeout(max(deadline - time.monotonic(), 0.001))
        with contextlib.suppress(TimeoutError, ValueError):
            message, descriptors = messages.receive_packet(self.control)
            messages.close_descriptors(*descriptors)
            if message.get("key") == key:
                return message
        time.sleep(_STRAY_PACKET_PAUSE)
        return None

    def _end_after_run(
        self, status: Status | None, timeout: float, output: bytearray, once: bool
    ) -> ProgramRun:
        """End the session after a run without a reply, and tell how its program ended.

        Args:
            status: What `_collect_output` returned.
            timeout: Seconds that the program was given.
            output: What the program wrote; the remainder is added to it.
            once: Whether the session had to end with the program.

        Raises:
            ToolFailure: The server died, which says nothing about the program.
        """
        group = self.group
        # Asked before anything is killed: the kernel's record of it goes away with the group.
        if not group.check_out_of_memory() and group.members > 1:
            self._kill_own_processes()
        else:
            group.kill()
            group.wait_for_end()
        self._drain_output(output)
        all_ended = self._await_exit_reports()
        exit_status = group.exit_status
        out_of_memory = group.out_of_memory
        self._finish()

        if all_ended and group.server_died:
            raise ToolFailure("the Python server died, and all its sessions with it")
        if status is Status.OUTPUT:
            return ProgramRun(status, bytes(output), f"stopped after {OUTPUT_CAP} bytes of output")
        if out_of_memory:
            return ProgramRun(Status.MEMORY, bytes(output), "out of memory")
        # A program that is late may still end by itself just before it is killed.
        ended_itself = status is None or exit_status != signal.SIGKILL
        if once and exit_status is not None and ended_itself:
            return _run_from_exit(exit_status, bytes(output))
        if status is Status.TIMEOUT:
            return ProgramRun(status, bytes(output), f"timed out after {timeout:g} s")
        return ProgramRun(Status.KILLED, bytes(output), "the process died")

    def _await_exit_reports(self) -> bool:
        """Have the group read the reports on its end, if all its processes have ended.

        Returns:
            Whether they have; false if other members of the group live on.
        """
        group = self.group
        group.read_exit_reports(0)
        all_ended = group.out_of_memory or messages.wait_until_readable(group.init_pidfd, 0)
        # The pipe may have up to three reports: the server's, that of whoever reaps the worker, and
        # its own end.
        deadline = time.monotonic() + _EXIT_REPORT_SECONDS
        while (
            all_ended
            and not group.server_died
            and group.exit_status is None
            and time.monotonic() < deadline
        ):
            group.read_exit_reports(_EXIT_REPORT_SECONDS)
        return all_ended

    def _kill_own_processes(self) -> None:
        """Kill this session's processes, not those of its forks, and wait until its worker ends."""
        if self.process >= 0:
            linux.kill_tree(self.process)
            messages.wait_until_readable(self.process, SERVER_SECONDS)

    def _drain_output(self, output: bytearray) -> bool:
        """Move what is in the pipe to `output`, up to `OUTPUT_CAP` bytes in all.

        Returns:
            False if nobody can write more.
        """
        while len(output) < OUTPUT_CAP:
            try:
                chunk = os.read(self.output, min(_CHUNK, OUTPUT_CAP - len(output)))
            except BlockingIOError:
                return True
            if not chunk:
                return False
            output += chunk
        return True

    def _check_owner(self) -> None:
        """Raise `ToolFailure` if this process is a fork of the one that opened the session."""
        owner = self.group.server.owner
        if owner != os.getpid():
            raise ToolFailure(
                f"the Python session belongs to process {owner}, not to its fork; reset it"
            )

    def _check_alive(self) -> None:
        """Raise `ToolFailure` if the session was ended."""
        if self.ended or not self._finalizer.alive:
            raise ToolFailure(CLOSED)


class SessionEnds(NamedTuple):
    """The ends of what connects a session with its worker."""

    control: socket.socket
    worker_control: socket.socket
    output: int  # the reading end of a pipe
    worker_output: int


def _open_session_ends() -> SessionEnds:
    """Make a packet connection and a pipe; if there is no room, OSError, with nothing left open."""
    control, worker_control = messages.packet_pair(senders=True)
    try:
        output, worker_output = os.pipe()
    except OSError:
        control.close()
        worker_control.close()
        raise
    return SessionEnds(control, worker_control, output, worker_output)


def _write_program(code: str) -> int:
    """Return the descriptor of a new file in memory that holds a program; OSError if it cannot."""
    file = os.memfd_create("code")
    try:
        os.write(file, code.encode())
    except BaseException:
        os.close(file)
        raise
    return file


def _replied_status(reply: dict[str, Any] | None) -> Status | None:
    """Return the status in a reply; None if there is none, since a program may write anything."""
    if reply is None:
        return None
    status = reply.get("status")
    if not isinstance(status, str):
        return None
    return _REPLIED_STATUSES.get(status)


def _run_from_exit(wait_status: int, output: bytes) -> ProgramRun:
    """Return how a program ended that took its process along.

    Args:
        wait_status: The status of the process, as of `os.wait`.
        output: What the program wrote.
    """
    exit_code = os.waitstatus_to_exitcode(wait_status)  # negative: minus the number of a signal
    if exit_code >= 0:
        status = Status.ERROR if exit_code else Status.OK
        # Code 1 is that of an exception, of which the output tells.
        return ProgramRun(status, output, f"exit code {exit_code}" if exit_code > 1 else None)
    signal_number = -exit_code
    if signal_number == MEMORY_SIGNAL:
        return ProgramRun(Status.MEMORY, output)
    if signal_number in set(signal.Signals):
        signal_name = signal.Signals(signal_number).name
    else:
        signal_name = f"signal {signal_number}"
    return ProgramRun(Status.KILLED, output, f"the process died ({signal_name})")


def _release_session(
    group: SessionGroup, member: int, control: socket.socket, descriptors: list[int]
) -> None:
    """Leave the group, which ends with its last member, and close the session's descriptors."""
    control.close()
    group.remove_member(member)
    messages.close_descriptors(*descriptors)


def open_session(level: str, kind: str, packages: tuple[str, ...] = ()) -> PythonSession:
    """Open a fresh session.

    Args:
        level: How strongly it is confined, one of `LEVELS`.
        kind: The libraries that it has ready, one of `levels.KINDS`.
        packages: Distributions that programs can import beside the default ones.

    Raises:
        LevelRefused: This machine cannot give the level.
        ToolFailure: No session can be opened, with the reason.
    """
    failure = ToolFailure("no Python session can be opened: those that are ready keep ending")
    for _ in range(_OPEN_TRIES):
        try:
            server = current_server(level, packages)
            message, descriptors = server.take_boundary(kind)
        except (Died, OSError) as error:  # a server that died since the last call is replaced
            failure = ToolFailure(f"no Python session can be opened: {error}")
            continue
        control, output, exit_pipe, *group_events, init = descriptors
        if messages.wait_until_readable(
            init, 0
        ):  # it ended unused, with the zygote that it came from
            messages.close_descriptors(*descriptors)
            continue
        group = SessionGroup(
            server, message["serial"], message["folder"], init, exit_pipe, *group_events
        )
        session = PythonSession(group, socket.socket(fileno=control), output, member=1)
        try:
            session.greet()
            return session
        except ToolFailure as error:
            session.end()
            failure = error
    raise failure


@functools.cache
def try_levels() -> dict[str, str | None]:
    """Try each level on this machine: None if it works, else the reason.

    Takes about a second the first time.
    """
    reasons: dict[str, str | None] = dict.fromkeys(LEVELS)
    for level in LEVELS:
        try:
            require(level)
        except LevelRefused as error:
            reasons[level] = error.reason
        except ToolFailure as error:
            reasons[level] = str(error)
    return reasons


def memory_mode(level: str) -> str:
    """Return how this machine limits a session's memory as a whole; raises as `require` does."""
    return current_server(level).memory


def require(level: str) -> None:
    """Try a level on this machine.

    Raises:
        LevelRefused: The machine cannot give it.
        ToolFailure: The tool cannot run at all.
    """
    open_session(level, "").end()
