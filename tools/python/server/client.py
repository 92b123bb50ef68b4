"""The parent's side of the server: the server process itself, and the groups of sessions.

Each process has one server for each level and set of packages, started at its first call; a process
that was forked from another starts its own. The server ends with the parent, however the parent
ends, and takes all its sessions along.

`current_server` returns the server of this process, `ToolServer.take` a boundary with a fresh
session in it, and `SessionGroup` is then the handle on that session and its forks.
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
from ..isolation.levels import LEVELS, LIBRARIES, LIBRARY_COMBINATIONS, remove_folder
from ..isolation.packages import make_view, without_parent_steps
from .guard import PREFIX, reap_guard, try_to_lock_folder

# Seconds in which the server must have started, and have found a worker for a caller that waits.
SERVER_SECONDS = 60.0

# Open files of this process that a session needs at most while it is opened or called.
_DESCRIPTORS_PER_SESSION = 7
# Folders that one fork removes at most: their numbers have to fit into one packet.
_MAX_FOLDERS_PER_FORK = 200

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
        self.folder, folder_lock = ("", -1) if level == "namespaces" else _make_locked_folder()
        # A pidfd of the first guard, once it is known; a later guard is nobody's to reap here.
        guard_pidfds: list[int] = []
        # Registered before the child's own finalizer: when the process ends, finalizers run in
        # reverse order, and the folder is removed after the child has ended.
        weakref.finalize(self, _remove_folder, self.folder, self.owner, guard_pidfds)
        # One connection for notifications, and a queue of boundaries for each set of libraries.
        connections = [messages.packet_pair() for _ in ("notifications", *LIBRARY_COMBINATIONS)]
        own_ends = [own_end for own_end, _ in connections]
        server_ends = [server_end for _, server_end in connections]
        for own_end in own_ends:
            weakref.finalize(self, own_end.close)
        self.notifications: socket.socket = own_ends[0]
        self.queues: dict[str, socket.socket] = dict(zip(LIBRARY_COMBINATIONS, own_ends[1:]))
        # The order in which `supervisor.main` expects them.
        inherited_fds = [server_end.fileno() for server_end in server_ends]
        if folder_lock >= 0:
            inherited_fds.insert(0, folder_lock)
        try:
            self.child = Child(
                _server_command(level, self.folder), env=_ENVIRONMENT, fds=inherited_fds
            )
            reply = self.child.request(asdict(view), SERVER_SECONDS)
        except (Died, Deadline, OSError) as error:
            raise ToolFailure(f"the Python server cannot be started: {error}") from error
        finally:
            for server_end in server_ends:
                server_end.close()
            if folder_lock >= 0:
                os.close(folder_lock)
        if "refused" in reply:
            self.child.close()
            raise LevelRefused(self.level, reply["refused"])
        if reply["guard"]:
            with contextlib.suppress(ProcessLookupError):
                guard_pidfds.append(os.pidfd_open(reply["guard"]))
        self.stop_signal: int = reply["stop"]  # ends a boundary, sent to its init
        self.memory: str = reply["memory"]  # how memory is limited, in words
        for queue in self.queues.values():
            queue.settimeout(SERVER_SECONDS)

    def take_boundary(self, libraries: str) -> tuple[dict[str, Any], list[int]]:
        """Take a boundary with a fresh session from the queue; wait for one if it is empty.

        Args:
            libraries: What its worker has preloaded, one of `KINDS`.

        Returns:
            The message of the server, with `serial` and `folder`, and the descriptors: those of
            `Boundary.caller_fds`, and last a pidfd of the init.

        Raises:
            ToolFailure: The server cannot make one; the message has the reason of the system.
            Died: The server has ended.
        """
        # If this process had no room for the descriptors they would get lost, and the session with
        # them. So it first opens as many, and closes them.
        try:
            with contextlib.ExitStack() as opened:
                for _ in range(_DESCRIPTORS_PER_SESSION):
                    opened.enter_context(self.notifications.dup())
        except OSError as error:
            raise ToolFailure(
                f"no Python session can be opened: {error}; each needs {_DESCRIPTORS_PER_SESSION} "
                "descriptors: raise the limit (ulimit -n) or close environments"
            ) from None
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
        events: A descriptor of the events of the boundary's control group, if it has one.
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
        """Count one more member.

        Returns:
            The number of the new member, and the numbers of ended members whose folders are to be
            removed by whoever makes the new one.
        """
        with self._lock:
            self.members += 1
            self.last_member += 1
            removed_now = self.folders_to_remove[:_MAX_FOLDERS_PER_FORK]
            self.folders_to_remove = self.folders_to_remove[_MAX_FOLDERS_PER_FORK:]
            return self.last_member, removed_now

    def remove_member(self, member: int) -> None:
        """Count one member less; with the last one end all processes, and wait for their end.

        Args:
            member: The number of the member.
        """
        with self._lock:
            self.members -= 1
            self.folders_to_remove.append(member)
            if self.members or not self.alive:
                return
            self.alive = False
        # A process that was forked from the owner only closes its copies of the descriptors.
        if self.server.owner == os.getpid():
            self.kill()
            self.wait_for_end()
        messages.close_descriptors(self.init_pidfd, self.exit_pipe, *self.events)

    def check_out_of_memory(self) -> bool:
        """Return whether the group was ended for its memory.

        To be called before `kill`, which makes the control group and its events disappear.
        """
        self.out_of_memory |= any(map(was_killed_for_own_limit, self.events))
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
        """Read the reports that the exit pipe has, or gets within `timeout` seconds.

        They set `exit_status` and `out_of_memory`. If the pipe ends without any report, the server
        has died, and `lost` is set.
        """
        with self._lock:
            if not self.alive or not messages.wait_until_readable(self.exit_pipe, timeout):
                return
            reports = messages.read_exit_reports(self.exit_pipe)
            self.server_died = not reports and self.exit_status is None and not self.out_of_memory
            for report, value in reports:
                if report == messages.MEMORY:
                    self.out_of_memory = True
                else:
                    self.exit_status = value

    def notify_server_of_call(self, memory: int, until: float | None) -> None:
        """Tell the server that a call begins or has ended, so that it enforces the limits.

        Args:
            memory: Bytes of memory that each member may use.
            until: When the call is to end, by `time.monotonic`; None if it has ended.
        """
        notification = {
            "serial": self.serial,
            "memory": memory * self.members,
            "until": until,
            "members": self.members,
        }
        # A server that has ended took its sessions along, which the caller finds out.
        with contextlib.suppress(OSError):
            messages.send_packet(self.server.notifications, notification)


def was_killed_for_own_limit(events: int) -> bool:
    """Return whether the kernel has killed processes of a control group for the group's own limit.

    Args:
        events: A descriptor of the group's `memory.events`. If the group is gone, the result is
            False.
    """
    with contextlib.suppress(OSError):
        return bool(_KILLED_FOR_OWN_LIMIT.search(os.pread(events, 4096, 0)))
    return False


_lock = threading.Lock()
_servers: dict[str, ToolServer] = {}  # by level and packages, joined with spaces


def current_server(level: str, packages: tuple[str, ...] = ()) -> ToolServer:
    """Return this process's server for a level and packages.

    A server is started if there is none yet, or if it has died; this raises as `ToolServer` does.
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


def _server_command(level: str, folder: str) -> list[str]:
    """Return the command line that starts a server.

    Args:
        level: The isolation level.
        folder: The folder below which sessions work; "" at level `namespaces`.
    """
    # Not -I: it would ignore the hash seed, and the order in which sets print would differ from run
    # to run. -S, without site: installed packages may put modules and finders into every process
    # that imports it.
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
        folder = tempfile.mkdtemp(prefix=PREFIX)
        lock = try_to_lock_folder(folder)
        # Otherwise a guard has taken it for one that a dead server left behind, and removes it.
        if lock is not None:
            return folder, lock


def _remove_folder(folder: str, owner: int, guard_pidfds: list[int]) -> None:
    """Remove the folder of a server that has ended, and reap its guard.

    Args:
        folder: The folder; "" if the server has none.
        owner: The process that started the server: its forks remove nothing.
        guard_pidfds: A pidfd of the guard, if it is known.
    """
    if folder and os.getpid() == owner:
        remove_folder(folder)
        for guard_pidfd in guard_pidfds:
            reap_guard(guard_pidfd)
