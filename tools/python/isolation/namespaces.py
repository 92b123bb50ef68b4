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
    """Move this process into its own user, mount and host-name namespaces, and into the file tree.

    In its user namespace this process may make further namespaces. If it is privileged, it also
    maps a second user there, for the programs: the kernel does not limit the number of root's
    processes.

    Args:
        view: The files that programs see.

    Raises:
        OSError: The machine does not allow that.
    """
    id_maps = {
        map_file: _id_map(f"/proc/self/{map_file}", own_id)
        for map_file, own_id in _own_ids_by_map_file().items()
    }
    parent_end, helper_end = messages.packet_pair()
    own_pid = os.getpid()
    # User ids of the new namespace can only be mapped with privileges in the old one, which this
    # process loses when it enters. So a helper process stays outside and writes the maps.
    helper_pid = os.fork()
    if helper_pid == 0:
        _write_maps_when_asked(own_pid, id_maps, parent_end=parent_end, helper_end=helper_end)
    helper_end.close()
    try:
        linux.unshare(linux.NEWUSER | linux.NEWNS | linux.NEWUTS)
        socket.sethostname("sandbox")  # which boundaries inherit
        messages.send_packet(parent_end, {})  # the helper writes the maps now
    finally:
        parent_end.close()
        _, helper_status = os.waitpid(helper_pid, 0)
    if helper_status:
        raise OSError("the users of a user namespace cannot be mapped")
    build_file_tree(view)


def _write_maps_when_asked(
    pid: int, id_maps: dict[str, str], *, parent_end: socket.socket, helper_end: socket.socket
) -> NoReturn:
    """Wait for a packet, write the id maps of a process, and exit: with 0 if they are written.

    Args:
        pid: The process, which sends the packet when it has entered its user namespace.
        id_maps: By file name, `uid_map` and `gid_map`, the text to write.
        parent_end: The socket of the parent, which is closed here.
        helper_end: The socket on which the packet comes.
    """
    try:
        parent_end.close()
        messages.receive_packet(helper_end)
        if os.geteuid():
            # The kernel lets an ordinary user map a group only if `setgroups` is disabled.
            Path(f"/proc/{pid}/setgroups").write_text("deny")
        for map_file, id_map in id_maps.items():
            Path(f"/proc/{pid}/{map_file}").write_text(id_map)
    except (EOFError, OSError):
        os._exit(1)
    os._exit(0)


def map_users(pid: int) -> None:
    """Map the agent's user and group in the user namespace of an init process, and no others.

    Args:
        pid: The init process.
    """
    for map_file, id_map in _agent_id_maps().items():
        # Without pathlib, whose code would write to more memory pages: the kernel has to copy each
        # of them, since they are shared with other processes.
        with open(f"/proc/{pid}/{map_file}", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(id_map)


@functools.cache
def _agent_id_maps() -> dict[str, bytes]:
    """Return the agent's id map for each map file, such as `b"1000 0 1\\n"`.

    The numbers are the first id inside the new namespace, the id outside, and how many ids follow
    each other. Outside is this process's namespace: there the agent is the second user if it has
    one, else the only user, 0.
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
    """Return the id map of a new user namespace, with a line `inside outside count` for each id.

    This process gets the id 0. If it is root and its present namespace has the user `nobody`, that
    user becomes the agent.

    Args:
        current_map_path: The map of the present namespace, such as `/proc/self/uid_map`.
        own_id: The user or group id of this process in the present namespace.
    """
    nobody_is_mapped = False
    for line in Path(current_map_path).read_text().splitlines():
        first_id, _, count = (int(number) for number in line.split())
        if first_id <= _NOBODY < first_id + count:
            nobody_is_mapped = True
    id_map = f"0 {own_id} 1\n"
    is_root = os.geteuid() == 0
    if nobody_is_mapped and is_root:
        id_map += f"{SANDBOX_USER} {_NOBODY} 1\n"
    return id_map


def become_agent() -> None:
    """Take on the agent's user and group, the only ones in this process's user namespace."""
    try:  # noqa: SIM105 - a context manager would have the kernel copy many memory pages
        os.setgroups([])
    except PermissionError:
        pass  # an ordinary user may not, and has only its own groups
    os.setresgid(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
    os.setresuid(SANDBOX_USER, SANDBOX_USER, SANDBOX_USER)
