"""Namespaces of users, processes, mounts and networks, and the unprivileged user in them.

The server enters namespaces once (`enter_namespaces`). Each boundary of a session gets its own
user namespace below that, in which only the agent's user exists (`map_users`); its processes take
on that user (`become_agent`).
"""

import functools
import os
import socket
from pathlib import Path
from typing import NoReturn

from ...subprocesses import messages
from . import linux
from .file_view import FileView, build_file_tree
from .levels import SANDBOX_USER

_NOBODY = 65534  # the id of the user `nobody`


def enter_namespaces(view: FileView) -> None:
    """Move this process into a user namespace in which it may make others, and into the file tree.

    A privileged process also maps a second user, for its boundaries: the kernel does not apply
    limits on the number of processes to root.

    Raises:
        OSError: The machine does not allow that.
    """
    id_maps = {
        map_file: _id_map(f"/proc/self/{map_file}", own_id)
        for map_file, own_id in _own_ids_by_map_file().items()
    }
    ours, theirs = messages.packet_pair()
    pid = os.getpid()
    # Ids of a new namespace can be mapped only with privileges in the old one, which this process
    # loses as it enters: a helper stays outside and writes the maps.
    helper = os.fork()
    if not helper:
        _write_maps_when_asked(pid, id_maps, parent_end=ours, helper_end=theirs)
    theirs.close()
    try:
        linux.unshare(linux.NEWUSER | linux.NEWNS | linux.NEWUTS)
        socket.sethostname("sandbox")  # which boundaries inherit
        messages.send_packet(ours, {})
    finally:
        ours.close()
        _, helper_status = os.waitpid(helper, 0)
    if helper_status:
        raise OSError("the users of a user namespace cannot be mapped")
    build_file_tree(view)


def _write_maps_when_asked(
    pid: int, id_maps: dict[str, str], *, parent_end: socket.socket, helper_end: socket.socket
) -> NoReturn:
    """Write the id maps of a process once it says that it has entered its user namespace; exit."""
    try:
        parent_end.close()
        messages.receive_packet(helper_end)
        if os.geteuid():
            # The kernel lets an ordinary user map a group only if `setgroups` is given up.
            Path(f"/proc/{pid}/setgroups").write_text("deny")
        for map_file, id_map in id_maps.items():
            Path(f"/proc/{pid}/{map_file}").write_text(id_map)
    except (EOFError, OSError):
        os._exit(1)
    os._exit(0)


def map_users(pid: int) -> None:
    """Give the user namespace of an init process its one user and group, those of the agent."""
    for map_file, id_map in _agent_id_maps().items():
        # Not by pathlib: its code would write to more memory pages, each of which the kernel
        # copies, as they are shared with other processes.
        with open(f"/proc/{pid}/{map_file}", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(id_map)


@functools.cache
def _agent_id_maps() -> dict[str, bytes]:
    """Return the agent's id map by file name, such as `b"1000 0 1\\n"`: id inside, outside, count.

    Outside, the agent is the second user of this process's namespace if it could map one, else
    its only one, 0.
    """
    id_maps = {}
    for map_file in _own_ids_by_map_file():
        mapped_ranges = Path(f"/proc/self/{map_file}").read_text().splitlines()
        outside_id = 0 if len(mapped_ranges) == 1 else SANDBOX_USER
        id_maps[map_file] = b"%d %d 1\n" % (SANDBOX_USER, outside_id)
    return id_maps


def _own_ids_by_map_file() -> dict[str, int]:
    return {"uid_map": os.geteuid(), "gid_map": os.getegid()}


def _id_map(current_map_path: str, own_id: int) -> str:
    """Return the id map of a new user namespace, one line `inside outside count` for each id.

    Inside, this process is 0. If it is root and its present namespace (whose map is at
    `current_map_path`) has the user `nobody`, that user is the agent inside.
    """
    nobody_is_mapped = False
    for line in Path(current_map_path).read_text().splitlines():
        first_id, _, count = (int(number) for number in line.split())
        if first_id <= _NOBODY < first_id + count:
            nobody_is_mapped = True
    id_map = f"0 {own_id} 1\n"
    if nobody_is_mapped and not os.geteuid():
        id_map += f"{SANDBOX_USER} {_NOBODY} 1\n"
    return id_map


def become_agent() -> None:
    """Take on the agent's user and group, in a user namespace that has no other."""
    try:  # noqa: SIM105 - a context manager would have the kernel copy many memory pages
        os.setgroups([])
    except PermissionError:
        pass  # an ordinary user may not, and has only its own groups
    os.setresgid(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
    os.setresuid(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
