"""Namespaces of users, processes, mounts and networks, and the unprivileged user that programs run as in them."""

import functools
import os
import socket
from pathlib import Path

from ...subprocesses import messages
from . import linux
from .file_view import FileView, _build_tree
from .levels import USER

_NOBODY = 65534


def enter_namespaces(view: FileView) -> None:
    """Move this process into a user namespace in which it may make others, and into the file tree.

    A privileged process maps a second user for its boundaries, since limits on processes do not bind the first one.
    """
    maps = {name: _maps(f"/proc/self/{name}", identity) for name, identity in _identities().items()}
    ours, theirs = messages.pair()
    pid, helper = os.getpid(), os.fork()
    if not helper:
        # From outside, where the privilege to map is.
        try:
            ours.close()
            messages.receive(theirs)
            if os.geteuid():
                Path(f"/proc/{pid}/setgroups").write_text("deny")
            for name, text in maps.items():
                Path(f"/proc/{pid}/{name}").write_text(text)
        except (EOFError, OSError):
            os._exit(1)
        os._exit(0)
    theirs.close()
    try:
        linux.unshare(linux.NEWUSER | linux.NEWNS | linux.NEWUTS)
        socket.sethostname("sandbox")  # which boundaries inherit
        messages.send(ours, {})
    finally:
        ours.close()
        _, status = os.waitpid(helper, 0)
    if status:
        raise OSError("the users of a user namespace cannot be mapped")
    _build_tree(view)


def map_users(pid: int) -> None:
    """Give the user namespace of an init process its one user and group."""
    for name, text in _agents_maps().items():
        with open(f"/proc/{pid}/{name}", "wb", buffering=0) as file:  # noqa: PTH123 - pathlib has the kernel copy pages
            file.write(text)


@functools.cache
def _agents_maps() -> dict[str, bytes]:
    lines = {name: Path(f"/proc/self/{name}").read_text().splitlines() for name in _identities()}
    return {
        name: b"%d %d 1\n" % (USER, 0 if len(own) == 1 else USER) for name, own in lines.items()
    }


def _identities() -> dict[str, int]:
    return {"uid_map": os.geteuid(), "gid_map": os.getegid()}


def _maps(path: str, identity: int) -> str:
    """Return the map of a user namespace: this process's own user as 0 and, where it may, nobody as the agent."""
    ranges = [
        [int(number) for number in line.split()] for line in Path(path).read_text().splitlines()
    ]
    nobody = any(first <= _NOBODY < first + count for first, _, count in ranges)
    return f"0 {identity} 1\n" + (f"{USER} {_NOBODY} 1\n" if nobody and not os.geteuid() else "")


def become_agent() -> None:
    """Take on the agent's user and group, in a user namespace that has no other."""
    try:  # noqa: SIM105 - a context manager has the kernel copy many pages
        os.setgroups([])
    except PermissionError:
        pass  # an ordinary user may not, and has only its own groups
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
