"""A folder that behaves like control groups of version 2, as far as `tools/python/isolation/cgroups.py` can tell."""

import os
import types

FILES = {
    "cgroup.controllers": "cpu memory pids\n",
    "cgroup.procs": "",
    "cgroup.subtree_control": "",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
    "memory.max": "",
    "memory.oom.group": "",
    "pids.max": "",
}
"""Of a group, without `memory.swap.max`, as where the kernel does not count swap; those to be written are empty."""


def make(name: str, dir_fd: int | None = None) -> None:
    """Make a group with its files, as the kernel does with a folder."""
    os.mkdir(name, dir_fd=dir_fd)
    for file, text in FILES.items():
        fd = os.open(f"{name}/{file}", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=dir_fd)
        os.write(fd, text.encode())
        os.close(fd)


def remove(name: str, dir_fd: int | None = None) -> None:
    """Remove a group with its files.

    Raises:
        OSError: It holds a group, or processes, for which a file `busy` stands.
    """
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd)
    try:
        if "busy" in (files := os.listdir(folder)):  # noqa: PTH208 - a descriptor
            raise OSError(f"{name} holds processes")
        for file in files:
            os.unlink(file, dir_fd=folder)  # refused for a folder
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=dir_fd)


def imitate(cgroups: types.ModuleType) -> None:
    """Let the module make and remove folders with the kernel's files in them."""
    setattr(cgroups, "os", types.SimpleNamespace(**{**vars(os), "mkdir": make, "rmdir": remove}))  # noqa: B010
