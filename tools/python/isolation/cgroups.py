"""Control groups: memory and processes of a session and its forks, limited by the kernel if this machine lets us."""

import contextlib
import fcntl
import os
from pathlib import Path

from .file_view import DISK
from .levels import PROCESSES

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
SLACK = (
    64 * 2**20
)  # bytes for what a program does not ask for: page tables, stacks of the kernel, inodes
_PREFIX, _ON = "python-tool-", "+memory +pids"
_LIMITS = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus")


class Groups:
    """The control groups of a server's sessions: the kernel's own limit on what their processes hold together.

    It comes on top of what the supervisor counts, since sockets of UDP are not charged. No process of anybody else is
    moved, and none escapes a limit: the groups are in the nearest one above this process that can be divided, with no
    limit on the way there, in a folder that is locked as long as the server lives; what one that was killed has left
    behind, the next one removes. Raises OSError, with the reason, where this process may make none.
    """

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        self.parent = os.open(path := find_parent(root, own), os.O_RDONLY)
        for left in path.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):  # somebody else's, or in use
                folder = os.open(left.name, os.O_RDONLY, dir_fd=self.parent)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._remove(left.name, folder)
                finally:
                    os.close(folder)
        self.name, self.ended = _PREFIX + os.urandom(8).hex(), set[str]()
        os.mkdir(self.name, dir_fd=self.parent)
        self.folder = os.open(self.name, os.O_RDONLY, dir_fd=self.parent)
        fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write("cgroup.subtree_control", _ON)

    def make(self, serial: int) -> tuple[int, int]:
        """Make the group of a session; return what a process writes 0 to to join it, and what `overstepped` reads."""
        os.mkdir(name := str(serial), dir_fd=self.folder)
        self._write(f"{name}/memory.oom.group", "1")
        self._write(f"{name}/pids.max", str(PROCESSES + 2))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            self._write(f"{name}/memory.swap.max", "0")
        join = os.open(f"{name}/cgroup.procs", os.O_WRONLY, dir_fd=self.folder)
        return join, os.open(f"{name}/memory.events", os.O_RDONLY, dir_fd=self.folder)

    def limit(self, serial: int, memory: int) -> None:
        self._write(f"{serial}/memory.max", str(memory + DISK + SLACK))

    def remove(self, serial: int) -> None:
        """Remove a session's group, now or, if its processes have not ended yet, in a later call."""
        self.ended.add(str(serial))
        for name in list(self.ended):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=self.folder)
                self.ended.discard(name)

    def close(self) -> None:
        """Remove all groups; the next server does where a process has not ended yet."""
        with contextlib.suppress(OSError):
            self._remove(self.name, self.folder)

    def _write(self, file: str, text: str) -> None:
        with os.fdopen(
            os.open(file, os.O_WRONLY, dir_fd=self.folder), "wb", buffering=0
        ) as control:
            control.write(text.encode())

    def _remove(self, name: str, folder: int) -> None:
        for inner in os.listdir(folder):
            with contextlib.suppress(OSError):
                os.rmdir(inner, dir_fd=folder)
        os.rmdir(name, dir_fd=self.parent)


def find_parent(root: Path, own: Path) -> Path:
    """Return the group in which groups for sessions can be made; OSError with the reason where there is none."""
    if not (root / "cgroup.controllers").is_file():
        raise OSError(f"{root} is not cgroup v2")
    path = next(
        (line[3:] for line in own.read_text().splitlines() if line.startswith("0::")), "/.."
    )
    group = first = root / path.strip("/")
    while ".." in path or not _divisible(group):
        if ".." in path or group == root or any(_limited(group / name) for name in _LIMITS):
            raise OSError(
                f"no group from {first} upwards can be divided without moving processes or passing a limit"
            )
        group = group.parent
    return group


def _divisible(group: Path) -> bool:
    """Return whether groups with limits can be made in a group; the kernel refuses it where processes are in it."""
    switch = group / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if os.access(group, os.W_OK) and not {"memory", "pids"} <= set(switch.read_text().split()):
            switch.write_text(_ON)
        return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    return False


def _limited(file: Path) -> bool:
    with contextlib.suppress(OSError):  # at the root, or without its controller
        return file.read_text().split()[:1] not in ([], ["max"])
    return False
