"""Control groups: the kernel limits memory and processes of sessions, if this machine lets us."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from .file_view import DISK
from .levels import MAX_PROCESSES

ROOT = Path("/sys/fs/cgroup")  # where control groups are mounted
OWN = Path("/proc/self/cgroup")  # the file that names the control group of this process
SLACK = 64 * 2**20  # bytes for what no program asks for: page tables, kernel stacks, inodes
_PREFIX = "python-tool-"  # of the folder of a server
_CONTROLLERS = {"memory", "pids"}
_ENABLE_CONTROLLERS = "+memory +pids"
_LIMIT_FILES = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus")


class GroupFiles(NamedTuple):
    """Open files of a session's group."""

    join: int  # descriptor of `cgroup.procs`: a process that writes 0 to it joins the group
    events: int  # descriptor of `memory.events`, which tells whether the kernel killed for memory


class Groups:
    """The control groups of a server's sessions: limits of the kernel on all processes of each.

    These limits come on top of what the supervisor counts, since the kernel does not charge UDP
    sockets to a group. Nobody else's process is moved, and none escapes a limit: the groups are
    made in the nearest group above this process that can be divided, if there is no limit on the
    way to it. They are in a folder that is locked as long as the server lives, so that the next
    server can remove the groups of one that was killed.

    Args:
        root: Where control groups are mounted.
        own: A file that names this process's group, as `/proc/self/cgroup` does.

    Raises:
        OSError: This process may make no groups, with the reason.
    """

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        parent_path = find_divisible_group(root, own)
        self.parent = os.open(parent_path, os.O_RDONLY)
        self._remove_leftovers(parent_path)
        # The folder of this server's groups is itself a group. Its lock shows that the server
        # lives.
        self.name = _PREFIX + os.urandom(8).hex()
        self.ended: set[str] = set()  # names of the groups that are yet to be removed
        os.mkdir(self.name, dir_fd=self.parent)
        self.folder = os.open(self.name, os.O_RDONLY, dir_fd=self.parent)
        fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._write("cgroup.subtree_control", _ENABLE_CONTROLLERS)

    def make(self, serial: int) -> GroupFiles:
        """Make the control group of a session.

        Args:
            serial: The number of the session on this server.

        Returns:
            Files of the group, open as descriptors.
        """
        name = str(serial)
        os.mkdir(name, dir_fd=self.folder)
        # When memory is exhausted, the kernel kills the whole group.
        self._write(f"{name}/memory.oom.group", "1")
        # The same limit that the supervisor applies when it counts processes and threads.
        self._write(f"{name}/pids.max", str(MAX_PROCESSES + 2))
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap
            self._write(f"{name}/memory.swap.max", "0")
        join = os.open(f"{name}/cgroup.procs", os.O_WRONLY, dir_fd=self.folder)
        events = os.open(f"{name}/memory.events", os.O_RDONLY, dir_fd=self.folder)
        return GroupFiles(join, events)

    def limit(self, serial: int, memory: int) -> None:
        """Limit the memory of a session's group.

        Args:
            serial: The number of the session on this server.
            memory: Bytes that programs may use. The session's file system and `SLACK` are added.
        """
        self._write(f"{serial}/memory.max", str(memory + DISK + SLACK))

    def remove(self, serial: int) -> None:
        """Remove a session's group now or, if it still has processes, in a later call."""
        self.ended.add(str(serial))
        for name in list(self.ended):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=self.folder)
                self.ended.discard(name)

    def close(self) -> None:
        """Remove all groups; if a process has not ended yet, the next server removes its group."""
        with contextlib.suppress(OSError):
            self._remove_tree(self.name, self.folder)

    def _remove_leftovers(self, parent: Path) -> None:
        """Remove the folders of servers that were killed, which nobody locks any more."""
        for leftover in parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):  # somebody else's, or in use
                folder = os.open(leftover.name, os.O_RDONLY, dir_fd=self.parent)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._remove_tree(leftover.name, folder)
                finally:
                    os.close(folder)

    def _write(self, file: str, text: str) -> None:
        """Write to a control file, which takes a value only in one single write."""
        control_fd = os.open(file, os.O_WRONLY, dir_fd=self.folder)
        with os.fdopen(control_fd, "wb", buffering=0) as control:
            control.write(text.encode())

    def _remove_tree(self, name: str, folder: int) -> None:
        """Remove the folder of a server, open as `folder`, and the groups of sessions in it."""
        # A group's control files are no obstacle, nor can they be removed: the kernel takes them
        # away with the group.
        for entry in os.listdir(folder):
            with contextlib.suppress(OSError):
                os.rmdir(entry, dir_fd=folder)
        os.rmdir(name, dir_fd=self.parent)


def find_divisible_group(root: Path, own: Path) -> Path:
    """Find the group, this process's or the nearest above it, in which groups can be made.

    Args:
        root: Where control groups are mounted.
        own: A file that names this process's group, as `/proc/self/cgroup` does.

    Raises:
        OSError: There is no such group, or one that has a limit comes first: processes that are
            moved to a group above it would escape its limit.
    """
    if not (root / "cgroup.controllers").is_file():
        raise OSError(f"{root} is not cgroup v2")
    # The line of version 2 is like `0::/user.slice`. The path has `..` if the group is outside of
    # this process's cgroup namespace. It is treated alike if there is no such line.
    own_path = "/.."
    for line in own.read_text().splitlines():
        if line.startswith("0::"):
            own_path = line.removeprefix("0::")
            break
    own_group = root / own_path.strip("/")
    no_group = OSError(
        f"no group from {own_group} upwards can be divided "
        "without moving processes or passing a limit"
    )
    if ".." in own_path:
        raise no_group
    group = own_group
    while not _is_divisible(group):
        if group == root or any(_is_limit(group / name) for name in _LIMIT_FILES):
            raise no_group
        group = group.parent
    return group


def _is_divisible(group: Path) -> bool:
    """Return whether groups with limits can be made in a group, after enabling its controllers.

    The kernel enables controllers only for a group that has no processes directly in it.
    """
    subtree_control = group / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if os.access(group, os.W_OK):
            enabled = set(subtree_control.read_text().split())
            if not enabled >= _CONTROLLERS:
                subtree_control.write_text(_ENABLE_CONTROLLERS)
        return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    return False


def _is_limit(file: Path) -> bool:
    """Return whether a control file sets a limit, that is has a text other than `max`."""
    with contextlib.suppress(OSError):  # the root group, or a controller that is not enabled
        fields = file.read_text().split()
        return bool(fields) and fields[0] != "max"
    return False
