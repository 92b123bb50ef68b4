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
_CHUNK_BYTES = 2**16  # that are read from the output pipe at once
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
    end_reason: str | None = None  # why its session ended; None if the session continues


class CannotFork(ToolFailure):
    """A session cannot be copied.

    It has threads, child processes or files open for writing, or a limit does not allow a copy.
    """


class PythonSession:
    """A live interpreter, used by one thread at a time; it ends with its last reference.

    Any thread may end it, but descriptors that another thread uses must not be closed. So the
    ending thread first only kills processes, under `_kill_lock`. It closes the descriptors after
    the call in progress has released `_call_lock`.

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
        self.worker_pidfd = -1  # -1 until the worker is ready
        self.ended = False
        self._kill_lock = threading.Lock()
        self._call_lock = threading.RLock()
        os.set_blocking(output, False)
        self._descriptors = [output]
        self._finalizer = weakref.finalize(
            self, _release_session, group, member, control, self._descriptors
        )

    def greet(self, seconds: float = SERVER_SECONDS) -> None:
        """Wait until the worker says that it is ready.

        Args:
            seconds: The timeout.

        Raises:
            ToolFailure: The worker did not start, with the reason.
        """
        self.control.settimeout(max(seconds, 0.001))
        try:
            message, descriptors, sender_pid = messages.receive_packet_with_sender(self.control)
            messages.close_descriptors(*descriptors)
            if "failed" in message:
                raise OSError(message["failed"])
            self.worker_pidfd = os.pidfd_open(sender_pid)
            self._descriptors.append(self.worker_pidfd)
            # The judge of system calls relies on each worker leading its own process session. A
            # fork begins that inside the sandbox, where a program may interfere, so it is verified.
            if os.getsid(sender_pid) != sender_pid:
                raise OSError("it is no session of its own")
        except (EOFError, OSError, ValueError) as error:
            raise ToolFailure(f"the Python session did not start: {error}") from error

    def run(self, code: str, timeout: float, memory: int, *, once: bool = False) -> ProgramRun:
        """Run a program.

        Args:
            code: The program.
            timeout: Seconds from now that it may take.
            memory: Bytes that it may use in addition to those of the interpreter.
            once: Whether the session ends with the program.

        Returns:
            How the program ended. A program that exceeds a limit is a result, not an exception.

        Raises:
            ToolFailure: The server died, another thread ended the session, or the session belongs
                to a process that this one was forked from.
        """
        self._check_owner()
        with self._call_lock:
            self._check_alive()
            deadline = time.monotonic() + timeout
            output = bytearray()
            # The program could write to the socket as well: only a reply with this key counts.
            key = secrets.token_hex(8)
            try:
                self.group.notify_server_of_call(memory, deadline)
                # A program can be larger than a packet, so it is sent as a file in memory.
                program_fd = _write_program(code)
                request = {"code": True, "once": once, "memory": memory, "key": key}
                self._send_request(request, [program_fd])
                # A worker that ends with its program sends no reply.
                reply_key = None if once else key
                status = self._collect_output(reply_key, deadline, output)
                if status in _REPLIED_STATUSES:
                    self.group.notify_server_of_call(memory, None)
                    run = ProgramRun(status, bytes(output))
                else:
                    run = self._end_after_run(status, timeout, output, once=once)
            except (OSError, ValueError) as error:
                # If another thread has ended the session meanwhile, this raises `ToolFailure`.
                self._check_alive()
                if isinstance(error, ValueError):
                    raise
                raise ToolFailure(f"the Python tool cannot run: {error}") from error
            if self.ended:
                raise ToolFailure(CLOSED)
            return run

    def fork(self) -> "PythonSession":
        """Fork the session, with a copy of its work folder, within the same boundary.

        Raises:
            CannotFork: The session cannot be copied, with the reason; it lives on.
        """
        self._check_owner()
        with self._call_lock:
            self._check_alive()
            return self._fork_until(time.monotonic() + _FORK_SECONDS)

    def _fork_until(self, deadline: float) -> "PythonSession":
        """Fork the session, as `fork` describes.

        Args:
            deadline: When the fork must have answered, by `time.monotonic`.
        """
        if self.group.members >= MAX_PROCESSES:
            raise CannotFork(
                "the Python session cannot be forked: "
                f"it and its forks are {MAX_PROCESSES}, all they may be"
            )
        try:
            ends = _open_session_ends()
        except OSError as error:  # this process, or the machine, has too many open files
            raise CannotFork(
                f"the Python session cannot be forked: {error}; "
                "raise the limit (ulimit -n) or close environments"
            ) from error
        # The worker removes the work folders of the members that have left the group.
        member, left_members = self.group.add_member()
        twin = PythonSession(self.group, ends.control, ends.output, member)
        key = secrets.token_hex(8)
        request = {"fork": f"{self.group.folder}-{member}", "left": left_members, "key": key}
        try:
            self._send_request(request, [ends.worker_control.detach(), ends.worker_output])
            reply = self._await_reply(key, deadline)
            if "refused" in reply:
                raise CannotFork(f"the Python session cannot be forked: {reply['refused']}")
            twin.greet(deadline - time.monotonic())
        except (EOFError, OSError, ToolFailure) as error:
            twin._finalizer()  # release what was opened for the twin
            if isinstance(error, CannotFork):
                raise
            raise CannotFork(
                f"the Python session cannot be forked: it does not answer ({error})"
            ) from error
        return twin

    def end(self) -> None:
        """End the session and wait until it has ended; a call in progress raises `ToolFailure`.

        All its processes are killed, or those of the whole boundary with the group's last session.
        """
        self.ended = True
        if self.group.server.owner != os.getpid():
            # This process is a fork: a lock may be taken by a thread that it does not have.
            self._finalizer()
            return
        # Killing lets a call in progress return, which then releases `_call_lock`.
        with self._kill_lock:
            if self._finalizer.alive and self.group.members == 1:
                self.group.kill()
            elif self._finalizer.alive and self.worker_pidfd >= 0:
                linux.kill_tree(self.worker_pidfd)
        with self._call_lock:
            self._finish()

    def _finish(self) -> None:
        """Kill the session's remaining processes, and release its descriptors and membership."""
        with self._kill_lock:
            if self._finalizer.alive and self.group.members > 1:
                self._kill_own_processes()
            self._finalizer()

    def _send_request(self, message: dict[str, Any], descriptors: list[int]) -> None:
        """Send a request to the worker, with descriptors, and close them in this process."""
        try:
            with contextlib.suppress(OSError):  # it is dead, which the caller notices next
                messages.send_packet(self.control, message, descriptors)
        finally:
            messages.close_descriptors(*descriptors)

    def _collect_output(self, key: str | None, deadline: float, output: bytearray) -> Status | None:
        """Collect output until the program ends or exceeds a limit.

        Args:
            key: The key of the reply that the worker sends after the program; None if the session
                ends with the program, without a reply.
            deadline: When the program must have ended, by `time.monotonic`.
            output: What the program writes is added to this.

        Returns:
            The status in the reply; TIMEOUT or OUTPUT if the program exceeded a limit; None if the
            session ended.
        """
        control_fd = self.control.fileno()
        # It gets readable when the session has ended.
        session_end_fd = self.worker_pidfd if key else self.group.exit_pipe
        poll = select.poll()
        poll.register(self.output, select.POLLIN)
        poll.register(session_end_fd, select.POLLIN)
        if key:
            poll.register(control_fd, select.POLLIN)
        while True:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                return Status.TIMEOUT
            events = poll.poll(math.ceil(seconds_left * 1000))
            ready = {descriptor for descriptor, _ in events}
            if self.output in ready and not self._drain_output(output):
                poll.unregister(self.output)  # nobody can write any more
            if len(output) >= OUTPUT_CAP:
                return Status.OUTPUT
            if key and control_fd in ready:
                try:
                    reply = self._receive_reply(key, deadline)
                except (EOFError, ConnectionError):
                    return None
                status = _replied_status(reply)
                if status is None:
                    continue  # a packet by the program, not the reply
                # Output from before the reply may have arrived after the poll.
                self._drain_output(output)
                if len(output) >= OUTPUT_CAP:
                    return Status.OUTPUT
                return status
            if session_end_fd in ready:
                return None

    def _receive_reply(self, key: str, deadline: float) -> dict[str, Any] | None:
        """Receive one message.

        Args:
            key: The key of a reply.
            deadline: When to stop waiting, by `time.monotonic`.

        Returns:
            The message if it has the key; None if it has not, is malformed or did not come in time.

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

    def _await_reply(self, key: str, deadline: float) -> dict[str, Any]:
        """Return the next message that has the key.

        Raises:
            TimeoutError: It did not come by the deadline, a time of `time.monotonic`.
            EOFError: The worker has closed its end.
            OSError: The worker has died.
        """
        reply = self._receive_reply(key, deadline)
        while reply is None:
            if time.monotonic() > deadline:
                raise TimeoutError("timed out")
            reply = self._receive_reply(key, deadline)
        return reply

    def _end_after_run(
        self, status: Status | None, timeout: float, output: bytearray, *, once: bool
    ) -> ProgramRun:
        """End the session after a run without a reply, and find out how its program ended.

        Args:
            status: TIMEOUT or OUTPUT if the program exceeded a limit; None if the session ended.
            timeout: Seconds that the program was given.
            output: What the program wrote so far; the remainder is added to it.
            once: Whether the session was to end with the program.

        Raises:
            ToolFailure: The server died, which says nothing about the program.
        """
        group = self.group
        # Checked before anything is killed, since the kernel's record of it is removed with the
        # control group. A group that ran out of memory ends as a whole; else other members live on.
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
        # After the timeout, a program may still end by itself just before it is killed.
        ended_itself = status is None or exit_status != signal.SIGKILL
        if once and exit_status is not None and ended_itself:
            return _run_from_exit(exit_status, bytes(output))
        if status is Status.TIMEOUT:
            return ProgramRun(status, bytes(output), f"timed out after {timeout:g} s")
        return ProgramRun(Status.KILLED, bytes(output), "the process died")

    def _await_exit_reports(self) -> bool:
        """Read the reports about the group's end, if all processes of the boundary have ended.

        The reports set `exit_status`, `out_of_memory` and `server_died` of the group.

        Returns:
            Whether all processes have ended; false if other members of the group live on.
        """
        group = self.group
        group.read_exit_reports(0)
        all_ended = group.out_of_memory or messages.wait_until_readable(group.init_pidfd, 0)
        if not all_ended:
            return False
        # The worker's exit status may come after other reports.
        deadline = time.monotonic() + _EXIT_REPORT_SECONDS
        while not group.server_died and group.exit_status is None:
            if time.monotonic() >= deadline:
                break
            group.read_exit_reports(_EXIT_REPORT_SECONDS)
        return True

    def _kill_own_processes(self) -> None:
        """Kill this session's processes, not those of its forks, and wait until its worker ends."""
        if self.worker_pidfd >= 0:
            linux.kill_tree(self.worker_pidfd)
            messages.wait_until_readable(self.worker_pidfd, SERVER_SECONDS)

    def _drain_output(self, output: bytearray) -> bool:
        """Read the output pipe until it is empty, or until there are `OUTPUT_CAP` bytes of output.

        Args:
            output: What the program wrote so far; what is read is added to it.

        Returns:
            False if the pipe is closed, so that nobody can write more.
        """
        while len(output) < OUTPUT_CAP:
            try:
                chunk = os.read(self.output, min(_CHUNK_BYTES, OUTPUT_CAP - len(output)))
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
    """Make a packet connection and a pipe.

    Raises:
        OSError: There are too many open files; then nothing stays open.
    """
    control, worker_control = messages.packet_pair(senders=True)
    try:
        output, worker_output = os.pipe()
    except OSError:
        control.close()
        worker_control.close()
        raise
    return SessionEnds(control, worker_control, output, worker_output)


def _write_program(code: str) -> int:
    """Write a program to a new file in memory and return its descriptor.

    Raises:
        OSError: The file cannot be made or written.
    """
    program_fd = os.memfd_create("code")
    try:
        os.write(program_fd, code.encode())
    except BaseException:
        os.close(program_fd)
        raise
    return program_fd


def _replied_status(reply: dict[str, Any] | None) -> Status | None:
    """Return the status in a reply; None if it has no valid one, as a program may have sent it."""
    if reply is None:
        return None
    status = reply.get("status")
    if not isinstance(status, str):
        return None
    return _REPLIED_STATUSES.get(status)


def _run_from_exit(wait_status: int, output: bytes) -> ProgramRun:
    """Return how a program ended, by the exit status of its process.

    Args:
        wait_status: The exit status, as `os.wait` returns it.
        output: What the program wrote.
    """
    exit_code = os.waitstatus_to_exitcode(wait_status)  # -N if signal N killed the process
    if exit_code == 0:
        return ProgramRun(Status.OK, output)
    if exit_code == 1:  # an exception, whose traceback is in the output
        return ProgramRun(Status.ERROR, output)
    if exit_code > 1:
        return ProgramRun(Status.ERROR, output, f"exit code {exit_code}")
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
    """Remove the session from its group and close its descriptors.

    The group ends with its last member.
    """
    control.close()
    group.remove_member(member)
    messages.close_descriptors(*descriptors)


def open_session(level: str, libraries: str, packages: tuple[str, ...] = ()) -> PythonSession:
    """Open a fresh session, in a boundary that the server keeps ready.

    Args:
        level: How strongly it is confined, one of `LEVELS`.
        libraries: The libraries that its interpreter has imported already, one of
            `levels.LIBRARY_COMBINATIONS`.
        packages: Distributions that programs can import beside the default ones.

    Raises:
        LevelRefused: This machine cannot give the level.
        ToolFailure: No session can be opened, with the reason.
    """
    failure = ToolFailure("no Python session can be opened: those that are ready keep ending")
    for _ in range(_OPEN_TRIES):
        try:
            server = current_server(level, packages)
            message, descriptors = server.take_boundary(libraries)
        except (Died, OSError) as error:  # a server that died since the last call is replaced
            failure = ToolFailure(f"no Python session can be opened: {error}")
            continue
        # With a control group, its `memory.events` is among the descriptors.
        control, output, exit_pipe, *group_events, init_pidfd = descriptors
        has_ended = messages.wait_until_readable(init_pidfd, 0)
        if has_ended:  # before it was used, together with the zygote that it was forked from
            messages.close_descriptors(*descriptors)
            continue
        group = SessionGroup(
            server, message["serial"], message["folder"], init_pidfd, exit_pipe, *group_events
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
    """Try each isolation level on this machine, which takes about a second the first time.

    Returns:
        By level, None if it works, else the reason why it does not.
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
