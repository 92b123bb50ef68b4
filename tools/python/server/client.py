"""The parent's handles: on the server process that keeps confined workers ready, and on the groups of its sessions.

Each process has one a level, started at its first call; a process that was forked from another starts its own. The
server ends with the parent, however the parent ends, and takes all its sessions along.
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
from ..isolation.levels import KINDS, LEVELS, LIBRARIES, remove_folder
from ..isolation.packages import make_view, plain
from .guard import PREFIX, lock_folder, reap

DEADLINE = (
    60.0  # seconds in which the server must have started, and found a worker for whoever waits
)

_OURS = re.compile(
    rb"^oom [1-9].*^oom_kill [1-9]", re.MULTILINE | re.DOTALL
)  # not that of a group above, or of all
# One arena for all threads: each would take 64 MiB of an address space that is limited.
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MALLOC_ARENA_MAX": "1",
    "PATH": os.defpath,
}

# Bare stand-ins for this package and those above: the real ones import what would be copied with every fork.
_BOOT = """
import sys, types
name, root = "", sys.argv[1]
for part in "{package}".split("."):
    name, root = (name + "." + part, root + "/" + part) if name else (part, root)
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [root]
from {package}.supervisor import main
main(sys.argv[2], sys.argv[3])
"""


def kind_of(
    code: str,
) -> str:  # the libraries that a program speaks of; a worker that has them ready runs it sooner
    return "+".join(library for library in LIBRARIES if library in code)


class LevelRefused(ToolFailure):
    """This machine cannot give the level that was asked for."""

    def __init__(self, level: str, reason: str) -> None:
        weaker = LEVELS[LEVELS.index(level) + 1 :]
        remedy = " or ".join(f"level={name!r}" for name in weaker)
        allow = f"; to allow a weaker level, ask for {remedy} (docs/python-tool.md says what it gives up)"
        super().__init__(
            f"the Python tool cannot run at level {level!r}: {reason}{allow if weaker else ''}"
        )
        self.level, self.reason = level, reason


def check_level(level: str) -> None:
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; it must be one of {', '.join(LEVELS)}")


class ToolServer:
    """The server process of a level, whose programs see `packages` too; raises `LevelRefused`, and `ToolFailure`."""

    def __init__(self, level: str, packages: tuple[str, ...] = ()) -> None:
        check_level(level)
        if not sys.platform.startswith("linux"):
            raise ToolFailure(f"the Python tool needs Linux; this is {sys.platform}")
        view = make_view(packages)
        self.level, self.owner = level, os.getpid()
        self.folder, lock = ("", -1) if level == "namespaces" else _make_folder()
        # Before that of the child, so that it comes after it when the process ends.
        guard: list[int] = []  # a pidfd of the first one; a later one is nobody's to reap here
        weakref.finalize(self, _remove, self.folder, self.owner, guard)
        code_root = str(Path(__file__).resolve().parents[3])
        # Not -I: it would ignore the hash seed, and the order in which sets print would differ from run to run.
        # Without site: what is installed puts modules and finders into every process that imports it.
        boot = ["-S", "-s", "-P", "-c", _BOOT.format(package=__package__), code_root]
        threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        ours, theirs = zip(*(messages.pair() for _ in ("notes", *KINDS)))
        self.notes: socket.socket = ours[0]
        self.queues: dict[str, socket.socket] = dict(zip(KINDS, ours[1:]))
        for sock in ours:
            weakref.finalize(self, sock.close)
        try:
            command = [plain(sys.executable), *boot, level, self.folder]
            fds = [*([lock] if lock >= 0 else []), *(sock.fileno() for sock in theirs)]
            self.child = Child(command, env={**_ENVIRONMENT, **threads}, fds=fds)
            reply = self.child.request(asdict(view), DEADLINE)
        except (Died, Deadline, OSError) as error:
            raise ToolFailure(f"the Python server cannot be started: {error}") from error
        finally:
            for sock in theirs:
                sock.close()
            if lock >= 0:
                os.close(lock)
        if "refused" in reply:
            self.child.close()
            raise LevelRefused(self.level, reply["refused"])
        if reply["guard"]:
            with contextlib.suppress(ProcessLookupError):
                guard.append(os.pidfd_open(reply["guard"]))
        self.stop: int = reply["stop"]
        self.memory: str = reply["memory"]
        for queue in self.queues.values():
            queue.settimeout(DEADLINE)

    def take(self, kind: str) -> tuple[dict[str, Any], list[int]]:
        """Take a boundary from the stock: its message, its descriptors as in `Boundary.ours`, and its init's pidfd.

        Raises `ToolFailure` with what the system refused, and `Died` when the server has ended.
        """
        try:  # without room for its descriptors they would get lost, and the session with them
            with contextlib.ExitStack() as held:
                for _ in range(_DESCRIPTORS):
                    held.enter_context(self.notes.dup())
        except OSError as error:
            fix = f"each needs {_DESCRIPTORS} descriptors: raise the limit (ulimit -n) or close environments"
            raise ToolFailure(f"no Python session can be opened: {error}; {fix}") from None
        try:
            messages.send(self.notes, {"want": kind})
            message, fds = messages.receive(self.queues[kind])
        except TimeoutError:
            raise ToolFailure(f"the Python server found no worker within {DEADLINE:g} s") from None
        except (OSError, EOFError) as error:
            self.child.kill()
            raise Died(f"the Python server has ended: {error}") from error
        if "error" in message:
            raise ToolFailure(f"the Python server cannot make a session: {message['error']}")
        return message, fds


_DESCRIPTORS = (
    7  # open files of this process that a session takes at most while it is opened or called
)
_REMOVED = 200  # folders that one fork removes at most: their numbers have to fit into a packet


class SessionGroup:
    """A session and its forks, which share a boundary and end together. Methods may be called from any thread.

    The `server` made the boundary and numbers it by `serial`. In `folder` the first member works; that of a later one
    has its number behind a hyphen. `init` is a pidfd of the boundary's init, `exit_pipe` the reading end of the pipe
    for reports on its end, and `events` tells of the boundary's control group, if it has one.
    """

    def __init__(
        self, server: ToolServer, serial: int, folder: str, init: int, exit_pipe: int, *events: int
    ) -> None:
        self.server, self.serial, self.folder = server, serial, folder
        self.init, self.exit_pipe, self.events = init, exit_pipe, events
        self.members, self.born = 1, 1
        self.left: list[int] = []
        self.out_of_memory = False
        self.exit_status: int | None = None
        self.lost, self.alive = False, True
        self._lock = threading.Lock()
        os.set_blocking(exit_pipe, False)

    def join(self) -> tuple[int, list[int]]:
        """Count one more member; return its number, and those of members that have left a folder behind."""
        with self._lock:
            self.members += 1
            self.born += 1
            left, self.left = self.left[:_REMOVED], self.left[_REMOVED:]
            return self.born, left

    def leave(self, member: int) -> None:
        """Count one member less; with the last one end everything, and wait until it is."""
        with self._lock:
            self.members -= 1
            self.left.append(member)
            if self.members or not self.alive:
                return
            self.alive = False
        if self.server.owner == os.getpid():
            self.kill()
            self.wait()
        messages.close(self.init, self.exit_pipe, *self.events)

    def overstepped(self) -> bool:
        """Return whether it was ended for its memory; to be asked before `kill`, after which its group is gone."""
        self.out_of_memory |= any(map(overstepped, self.events))
        return self.out_of_memory

    def kill(self) -> None:
        """End all processes; they may not be gone yet."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.init, self.server.stop)

    def wait(self) -> None:
        """Wait until all processes are gone; raises `ToolFailure` when they are not after a minute."""
        if not messages.wait(self.init, DEADLINE):
            raise ToolFailure(
                f"the processes of a Python session did not end within {DEADLINE:g} s of being killed"
            )

    def read_exit(self, timeout: float) -> None:
        """Note what the exit pipe reports, within `timeout` seconds; an end without a report is that of the server."""
        with self._lock:
            if not self.alive or not messages.wait(self.exit_pipe, timeout):
                return
            reports = messages.reports(self.exit_pipe)
            self.lost = not reports and self.exit_status is None and not self.out_of_memory
            for kind, value in reports:
                if kind == messages.MEMORY:
                    self.out_of_memory = True
                else:
                    self.exit_status = value

    def set_busy(self, memory: int, until: float | None) -> None:
        """Tell the server of a call of at most `memory` bytes a member that is to end by a time, None when it has."""
        note = {
            "serial": self.serial,
            "memory": memory * self.members,
            "until": until,
            "members": self.members,
        }
        with contextlib.suppress(
            OSError
        ):  # a server that has ended took its sessions along, which is found out
            messages.send(self.server.notes, note)


def overstepped(events: int) -> bool:
    """Return whether the kernel has killed a session for its memory; False where its group is gone."""
    with contextlib.suppress(OSError):
        return bool(_OURS.search(os.pread(events, 4096, 0)))
    return False


_lock = threading.Lock()
_servers: dict[str, ToolServer] = {}


def current_server(level: str, packages: tuple[str, ...] = ()) -> ToolServer:
    """Return the running server of this process, level and packages; starts one if there is none or it died."""
    key = " ".join((level, *packages))
    with _lock:
        if (server := _servers.get(key)) is None or not server.child.alive:
            server = _servers[key] = ToolServer(level, packages)
        return server


def _forget_servers() -> None:
    global _lock
    _lock = threading.Lock()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_servers)


def _make_folder() -> tuple[str, int]:
    """Make a folder for a server where temporary files go; return it, and a descriptor that locks it."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        if (lock := lock_folder(folder)) is not None:
            return folder, lock  # else a guard has taken it for one that was left behind


def _remove(folder: str, owner: int, guard: list[int]) -> None:
    if folder and os.getpid() == owner:
        remove_folder(folder)
        for one in guard:
            reap(one)
