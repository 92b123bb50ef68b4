"""The parent's side of the server: the server process itself, and the groups of sessions.

Each process has one server for each level and set of packages, started at its first call; a process
that was forked from another starts its own. The server ends with the parent, however the parent
ends, and takes all its sessions along.

`current_server` returns the server of this process. `ToolServer.take_boundary` returns a boundary,
the sandbox of a fresh session and its forks. `SessionGroup` is the handle on those sessions.
"""

import contextlib
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...base import ToolFailure
from ...subprocesses import messages
from ...subprocesses.process import Child, Deadline, Died
from ..isolation.file_view import FileView
from ..isolation.levels import LEVELS, LIBRARIES, LIBRARY_COMBINATIONS, remove_folder
from ..isolation.packages import make_view, without_parent_steps
from .guard import SERVER_FOLDER_PREFIX, reap_guard, try_to_lock_folder

# Seconds in which the server must have started, and have found a worker for a caller that waits.
SERVER_SECONDS = 60.0

# Open files of this process that a session needs at most while it is opened or called.
_DESCRIPTORS_PER_SESSION = 7
# Folders that one fork removes at most: their numbers have to fit into one packet.
_MAX_FOLDERS_REMOVED_PER_FORK = 200

# Matches if both counters of a control group's `memory.events` are above 0, as in "oom 3" and
# "oom_kill 9": the kernel has killed for the limit of this group. If only the second is, it was for
# the limit of a group above, or since the machine had no memory left.
_KILLED_FOR_OWN_LIMIT = re.compile(rb"^oom [1-9].*^oom_kill [1-9]", re.MULTILINE | re.DOTALL)

_ENVIRONMENT = {
    # Sets of strings print in the same order from run to run.
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    # One arena of malloc for all threads: each would take 64 MiB of a limited address space.
    "MALLOC_ARENA_MAX": "1",
    "PATH": os.defpath,
    # Nor does any library start threads of its own, which a fork would lose.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

# The program that becomes the server. Its arguments are the folder of the outermost package, the
# level, and the folder for sessions.
#
# It puts bare stand-ins for this package and those above it into `sys.modules`: the real ones
# import modules that every fork of the server would carry along. It is text, since a module of this
# package could only be imported together with those packages, and since a script that is run by its
# path leaves that path in the interpreter, where a session, which is a fork of it, could see it.
_BOOT = """
import sys, types
name, folder = "", sys.argv[1]
for part in "{package}".split("."):
    if name:
        name, folder = name + "." + part, folder + "/" + part
    else:
        name = part
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from {package}.supervisor import main
main(sys.argv[2], sys.argv[3])
"""


class LevelRefused(ToolFailure):
    """This machine cannot provide the isolation level that was asked for.

    Args:
        level: The level.
        reason: What the machine lacks.
    """

    def __init__(self, level: str, reason: str) -> None:
        message = f"the Python tool cannot run at level {level!r}: {reason}"
        weaker_levels = LEVELS[LEVELS.index(level) + 1 :]
        if weaker_levels:
            remedy = " or ".join(f"level={name!r}" for name in weaker_levels)
            message += (
                f"; to allow a weaker level, ask for {remedy} "
                "(docs/python-tool.md says what it gives up)"
            )
        super().__init__(message)
        self.level = level
        self.reason = reason


def check_level(level: str) -> None:
    """Raise ValueError unless `level` is one of `LEVELS`."""
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; it must be one of {', '.join(LEVELS)}")


def find_mentioned_libraries(code: str) -> str:
    """Return the libraries that a program mentions, of those that a worker may have preloaded.

    A worker that has them ready runs the program sooner: `"import sympy, numpy" -> "numpy+sympy"`.
    """
    return "+".join(library for library in LIBRARIES if library in code)


class ToolServer:
    """The server process of an isolation level, which makes sessions ready for this process.

    Args:
        level: The isolation level of all its sessions.
        packages: Installed packages that programs may import too.

    Raises:
        LevelRefused: The machine cannot provide the level.
        ToolFailure: The server cannot run here, or did not start.
    """

    def __init__(self, level: str, packages: tuple[str, ...] = ()) -> None:
        check_level(level)
        if not sys.platform.startswith("linux"):
            raise ToolFailure(f"the Python tool needs Linux; this is {sys.platform}")
        view = make_view(packages)
        self.level = level
        self.owner = os.getpid()
        # The folder below which sessions work. At level `namespaces` there is none, since each
        # session has its own file system in memory.
        self.folder = ""
        folder_lock = -1
        if level != "namespaces":
            self.folder, folder_lock = _make_locked_folder()
        # Gets a pidfd of the server's first guard when the server has started. A guard that the
        # server starts later, in place of one that was killed, is not reaped by this process.
        guard_pidfds: list[int] = []
        # Registered before the child's own finalizer: when the process ends, finalizers run in
        # reverse order, and the folder is removed after the child has ended.
        weakref.finalize(self, _remove_folder, self.folder, self.owner, guard_pidfds)
        # The server inherits its ends of the connections, in the order in which they are opened
        # here: `supervisor.main` expects that order.
        server_ends: list[socket.socket] = []
        self.notifications = self._open_connection(server_ends)
        # From each queue, boundaries are taken whose workers have preloaded the same libraries.
        self.queues = {
            libraries: self._open_connection(server_ends) for libraries in LIBRARY_COMBINATIONS
        }
        reply = self._start_child(view, folder_lock, server_ends)
        if "refused" in reply:
            self.child.close()
            raise LevelRefused(self.level, reply["refused"])
        if reply["guard"]:
            with contextlib.suppress(ProcessLookupError):
                guard_pidfds.append(os.pidfd_open(reply["guard"]))
        self.stop_signal: int = reply["stop"]  # ends a boundary, sent to its init process
        self.memory: str = reply["memory"]  # how memory is limited, in words
        for queue in self.queues.values():
            queue.settimeout(SERVER_SECONDS)

    def _open_connection(self, server_ends: list[socket.socket]) -> socket.socket:
        """Open a packet connection to the server, which is yet to be started.

        Args:
            server_ends: The server's end is added to this list.

        Returns:
            The end of this process, which is closed when this object is deleted.
        """
        own_end, server_end = messages.packet_pair()
        weakref.finalize(self, own_end.close)
        server_ends.append(server_end)
        return own_end

    def _start_child(
        self, view: FileView, folder_lock: int, server_ends: list[socket.socket]
    ) -> dict[str, Any]:
        """Start the server process, and wait for its first reply.

        Args:
            view: The files that programs see.
            folder_lock: The descriptor that locks the folder; -1 if there is no folder.
            server_ends: The server's ends of the connections.

        Returns:
            `{"refused": reason}` if the machine cannot provide the level; otherwise the entries
            "stop", "memory" and "guard" of `supervisor.main`.

        Raises:
            ToolFailure: The server did not start.
        """
        inherited_fds = [server_end.fileno() for server_end in server_ends]
        if folder_lock >= 0:
            inherited_fds.insert(0, folder_lock)
        try:
            command = _build_server_command(self.level, self.folder)
            self.child = Child(command, env=_ENVIRONMENT, fds=inherited_fds)
            reply: dict[str, Any] = self.child.request(asdict(view), SERVER_SECONDS)
        except (Died, Deadline, OSError) as error:
            raise ToolFailure(f"the Python server cannot be started: {error}") from error
        finally:
            # The server has its own copies, which also keep the folder locked.
            for server_end in server_ends:
                server_end.close()
            if folder_lock >= 0:
                os.close(folder_lock)
        return reply

    def take_boundary(self, libraries: str) -> tuple[dict[str, Any], list[int]]:
        """Take a boundary, the sandbox of a session and its forks, with a fresh session in it.

        Waits for up to `SERVER_SECONDS` if none is ready.

        Args:
            libraries: The libraries that its worker has preloaded, one of `LIBRARY_COMBINATIONS`.

        Returns:
            A pair: the server's message, with the number of the boundary as "serial" and the
            session's work folder as "folder"; and the descriptors, which are those of
            `Boundary.caller_fds`, followed by a pidfd of the boundary's init process.

        Raises:
            ToolFailure: The server cannot make one, or this process may not open its descriptors.
            Died: The server has ended.
        """
        self._check_descriptor_limit()
        try:
            messages.send_packet(self.notifications, {"want": libraries})
            message, fds = messages.receive_packet(self.queues[libraries])
        except TimeoutError:
            raise ToolFailure(
                f"the Python server found no worker within {SERVER_SECONDS:g} s"
            ) from None
        except (OSError, EOFError) as error:
            self.child.kill()
            raise Died(f"the Python server has ended: {error}") from error
        if "error" in message:
            raise ToolFailure(f"the Python server cannot make a session: {message['error']}")
        return message, fds

    def _check_descriptor_limit(self) -> None:
        """Raise ToolFailure if this process may not open as many descriptors as a session needs.

        Descriptors that the kernel cannot deliver are lost, and the session with them. So as many
        are opened, and closed again, before a session is requested.
        """
        try:
            with contextlib.ExitStack() as duplicates:
                for _ in range(_DESCRIPTORS_PER_SESSION):
                    duplicates.enter_context(self.notifications.dup())
        except OSError as error:
            raise ToolFailure(
                f"no Python session can be opened: {error}; each needs {_DESCRIPTORS_PER_SESSION} "
                "descriptors: raise the limit (ulimit -n) or close environments"
            ) from None


class SessionGroup:
    """A session and its forks, which share a boundary and end together.

    Methods may be called from any thread.

    Args:
        server: The server that made the boundary.
        serial: The server's number of the boundary.
        folder: The work folder of the first member, the session itself. That of a later member, a
            fork, has the member's number behind a hyphen: "/tmp/home-2".
        init_pidfd: A pidfd of the boundary's init.
        exit_pipe: The reading end of the pipe for reports on the boundary's end.
        events: If the boundary has a control group, a descriptor of the group's `memory.events`.
    """

    def __init__(
        self,
        server: ToolServer,
        serial: int,
        folder: str,
        init_pidfd: int,
        exit_pipe: int,
        *events: int,
    ) -> None:
        self.server = server
        self.serial = serial
        self.folder = folder
        self.init_pidfd = init_pidfd
        self.exit_pipe = exit_pipe
        self.events = events
        self.members = 1  # those that live
        self.last_member = 1  # the number of the newest one
        # Numbers of members that have ended, and whose folders have yet to be removed.
        self.folders_to_remove: list[int] = []
        self.out_of_memory = False  # whether it was ended for its memory
        self.exit_status: int | None = None  # the wait status of the first member, once reported
        self.server_died = False  # whether it ended with the server, not by itself
        self.alive = True  # whether a member is left
        self._lock = threading.Lock()
        os.set_blocking(exit_pipe, False)

    def add_member(self) -> tuple[int, list[int]]:
        """Add a member, a fork of a session, to the group.

        Returns:
            A pair: the number of the new member; and the numbers of members that have ended, whose
            folders the session that forks has to remove.
        """
        with self._lock:
            self.members += 1
            self.last_member += 1
            ended_members = self.folders_to_remove[:_MAX_FOLDERS_REMOVED_PER_FORK]
            self.folders_to_remove = self.folders_to_remove[_MAX_FOLDERS_REMOVED_PER_FORK:]
            return self.last_member, ended_members

    def remove_member(self, member: int) -> None:
        """Remove a member that has ended; with the last one, kill all processes of the group.

        Args:
            member: The number of the member.

        Raises:
            ToolFailure: The processes did not end in time.
        """
        with self._lock:
            self.members -= 1
            self.folders_to_remove.append(member)
            if self.members or not self.alive:
                return
            self.alive = False
        # A fork of the process that started the server does not own the group's processes: it
        # only closes its copies of the descriptors.
        if self.server.owner == os.getpid():
            self.kill()
            self.wait_for_end()
        messages.close_descriptors(self.init_pidfd, self.exit_pipe, *self.events)

    def check_out_of_memory(self) -> bool:
        """Return whether the group was ended for its memory.

        To be called before `kill`, which makes the control group and its events disappear.
        """
        if any(was_killed_for_own_limit(events_fd) for events_fd in self.events):
            self.out_of_memory = True
        return self.out_of_memory

    def kill(self) -> None:
        """Kill all processes; some may still be there when this returns."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.init_pidfd, self.server.stop_signal)

    def wait_for_end(self) -> None:
        """Wait until all processes are gone; raise `ToolFailure` if they are not in time."""
        if not messages.wait_until_readable(self.init_pidfd, SERVER_SECONDS):
            raise ToolFailure(
                f"the processes of a Python session did not end within {SERVER_SECONDS:g} s "
                "of being killed"
            )

    def read_exit_reports(self, timeout: float) -> None:
        """Read the reports on the group's end, and set `exit_status` and `out_of_memory` by them.

        `server_died` is set if the pipe ends without a report.

        Args:
            timeout: Seconds to wait for the first report.
        """
        with self._lock:
            if not self.alive or not messages.wait_until_readable(self.exit_pipe, timeout):
                return
            reports = messages.read_exit_reports(self.exit_pipe)
            end_was_reported = self.exit_status is not None or self.out_of_memory
            self.server_died = not reports and not end_was_reported
            for report_kind, value in reports:
                if report_kind == messages.MEMORY:
                    self.out_of_memory = True
                else:
                    self.exit_status = value

    def notify_server_of_call(self, memory_per_member: int, deadline: float | None) -> None:
        """Tell the server that a call begins or has ended, so that it enforces the limits.

        Args:
            memory_per_member: Bytes of memory that each member may use.
            deadline: When the call has to end, by `time.monotonic`; None if it has ended.
        """
        notification = {
            "serial": self.serial,
            "memory": memory_per_member * self.members,
            "until": deadline,
            "members": self.members,
        }
        # If the server has ended, so have its sessions: the caller notices that by itself.
        with contextlib.suppress(OSError):
            messages.send_packet(self.server.notifications, notification)


def was_killed_for_own_limit(events: int) -> bool:
    """Return whether the kernel has killed processes of a control group for the group's own limit.

    Args:
        events: A descriptor of the group's `memory.events`.

    Returns:
        Also False if the group does not exist any more.
    """
    with contextlib.suppress(OSError):
        return bool(_KILLED_FOR_OWN_LIMIT.search(os.pread(events, 4096, 0)))
    return False


_lock = threading.Lock()
_servers: dict[str, ToolServer] = {}  # by level and packages, joined with spaces


def current_server(level: str, packages: tuple[str, ...] = ()) -> ToolServer:
    """Return this process's server for an isolation level and packages.

    The server is started if it does not run yet, or if it has died; the errors are those of
    `ToolServer`.
    """
    key = " ".join((level, *packages))
    with _lock:
        server = _servers.get(key)
        if server is None or not server.child.alive:
            server = ToolServer(level, packages)
            _servers[key] = server
        return server


def _forget_servers() -> None:
    """Forget the servers of the process that this one was forked from."""
    global _lock
    _lock = threading.Lock()  # a thread that has the old one may not exist in this process
    _servers.clear()


os.register_at_fork(after_in_child=_forget_servers)


def _build_server_command(level: str, folder: str) -> list[str]:
    """Build the command line that starts a server; `Child` appends the inherited descriptors.

    Args:
        level: The isolation level.
        folder: The folder below which sessions work; "" at level `namespaces`.
    """
    # -S: without the module `site`, by which installed packages may put modules and finders into
    # every process. -s and -P: without the user's packages and the current folder. Not -I, which
    # would ignore PYTHONHASHSEED: sets would print in an order that differs from run to run.
    options = ["-S", "-s", "-P"]
    boot_program = _BOOT.format(package=__package__)
    package_root = str(Path(__file__).resolve().parents[3])
    return [
        without_parent_steps(sys.executable),
        *options,
        "-c",
        boot_program,
        package_root,
        level,
        folder,
    ]


def _make_locked_folder() -> tuple[str, int]:
    """Make a folder for a server among the temporary files.

    Returns:
        The folder, and a descriptor that locks it.
    """
    while True:
        folder = tempfile.mkdtemp(prefix=SERVER_FOLDER_PREFIX)
        lock = try_to_lock_folder(folder)
        # Another server's guard may have locked it first: it takes the folder for one that a dead
        # server has left behind, and removes it.
        if lock is not None:
            return folder, lock


def _remove_folder(folder: str, owner: int, guard_pidfds: list[int]) -> None:
    """Remove the folder of a server that has ended, and reap its guard.

    Args:
        folder: The folder; "" if the server has none.
        owner: The process that started the server. Forks of that process remove nothing.
        guard_pidfds: A pidfd of the guard; empty if the guard is not known.
    """
    if not folder or os.getpid() != owner:
        return
    remove_folder(folder)
    for guard_pidfd in guard_pidfds:
        reap_guard(guard_pidfd)
