"""Without namespaces: ends and removes whatever a server and its sessions leave behind.

A guard is a process beside the server's tree of processes: whoever kills that tree does not kill
it. As long as the server lives, the guard removes the folders of sessions that have ended, which
may take longer than a call may. When the server has ended, however it did, the guard kills the
processes that are left and removes the server's folder.

It recognises the server's processes by a mark: a limit that has no other use, which they inherit
and cannot change. The folder is locked as long as the server or its guard lives. If both are
killed, the next guard finds the folder unlocked, and does their work.
"""

import contextlib
import fcntl
import os
import re
import resource
import signal
import socket
import time
from pathlib import Path
from typing import NoReturn

from ...subprocesses import messages
from ..isolation import linux
from ..isolation.levels import remove_folder

# Of the folders of servers. Not that of earlier versions, which did not lock theirs.
PREFIX = "python-tool-server-"
NAME = "python-guard"  # of a guard's process, as `ps` shows it

_FOLDER_NAME = re.compile(PREFIX + r"(\w{8})")  # as `tempfile.mkdtemp` makes them
_RLIMIT_LOCKS = 10  # the limit that carries the mark; it has had no effect since Linux 2.4
# The mark in `/proc/PID/limits`: "Max file locks   123   123   locks".
_MARK = re.compile(rb"^Max file locks +\d+ +(\d+) ", re.MULTILINE)
# Seconds in which inits end their descendants by themselves, and between two checks of that.
_SELF_END_SECONDS = 1.0
_SELF_END_CHECK_INTERVAL = 0.01
_GUARD_END_SECONDS = 3.0  # in which a guard has ended after its server
_KILL_INTERVAL = 0.001  # seconds between two searches for marked processes, while there are any


def compute_mark(folder: str) -> int:
    """Return the mark of the server that has this folder: the end of its name, read as a number.

    `tempfile.mkdtemp` has made that end, of eight characters, at random.
    """
    return int.from_bytes(folder[-8:].encode())


def mark_this_process(folder: str) -> None:
    """Mark this process, the server that has this folder, and all processes that it will start."""
    mark = compute_mark(folder)
    # Refused within a session of another server, which itself ends all processes of the session.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))


def start_guard(folder: str, lock: int) -> tuple[socket.socket, int]:
    """Start the guard of this server.

    Two forks make it no child of this process, which must not be a subreaper meanwhile.

    Args:
        folder: The server's folder.
        lock: The descriptor that locks the folder.

    Returns:
        The socket on which the guard gets the serials of boundaries whose folders it is to remove,
        and answers each when that is done; and its process number, 0 if it was killed at once,
        which the socket will show too.
    """
    server_end, guard_end = messages.packet_pair()
    middle_pid = os.fork()
    if not middle_pid:
        try:
            if not os.fork():
                os.setsid()
                _run_guard(guard_end, folder, lock)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):  # it has ended, and the kernel has reaped it
        os.waitpid(middle_pid, 0)
    guard_end.close()
    guard_pid = int(server_end.recv(messages.MAX_PACKET) or b"0")
    return server_end, guard_pid


def reap_guard(guard_pidfd: int) -> None:
    """Reap a guard whose server has ended, and close its pidfd.

    The guard is a child of this process if this process takes over orphans, as the first process of
    a container does; otherwise there is nothing to reap.
    """
    try:
        with contextlib.suppress(ChildProcessError):
            options = os.WEXITED | os.WNOHANG
            has_ended = os.waitid(os.P_PIDFD, guard_pidfd, options) is not None
            if not has_ended and messages.wait_until_readable(guard_pidfd, _GUARD_END_SECONDS):
                os.waitid(os.P_PIDFD, guard_pidfd, options)
    finally:
        os.close(guard_pidfd)


def _run_guard(requests: socket.socket, folder: str, lock: int) -> NoReturn:
    """Be the guard: clean up after dead servers, remove folders on request, then everything.

    The arguments are those of `start_guard`, with the guard's end of the socket.
    """
    linux.set_process_name(NAME)
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)
    # It keeps the socket and the lock, as 3 and 4, and closes all other descriptors of the server.
    requests = socket.socket(fileno=os.dup2(requests.detach(), 3))
    os.dup2(lock, 4)
    os.closerange(5, 1 << 16)
    try:
        requests.send(b"%d" % os.getpid())
        _clean_up_after_dead_servers(Path(folder).parent)
        while serial := requests.recv(messages.MAX_PACKET):  # empty when the server has ended
            remove_folder(f"{folder}/{int(serial)}")
            requests.send(serial)
    finally:
        _clean_up_after_server(folder)
        os._exit(0)


def _clean_up_after_dead_servers(temporary_folder: Path) -> None:
    """Clean up after servers that were killed together with their guards."""
    for path in temporary_folder.glob(f"{PREFIX}*"):
        if not _FOLDER_NAME.fullmatch(path.name):
            continue
        lock = try_to_lock_folder(str(path))
        if lock is not None:
            _clean_up_after_server(str(path))
            os.close(lock)


def try_to_lock_folder(folder: str) -> int | None:
    """Lock a folder that belongs to this user.

    Returns:
        The descriptor that locks it. None if it is locked already, is no folder or that of another
        user, or has disappeared.
    """
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(folder_fd)
        # Another guard may have removed the folder between opening and locking: then the path is
        # that of no folder, or of a new one.
        if status.st_uid == os.geteuid() and os.path.samestat(status, os.lstat(folder)):
            return folder_fd
    os.close(folder_fd)
    return None


def _clean_up_after_server(folder: str) -> None:
    """End all processes of the server that had this folder, and remove the folder."""
    mark = compute_mark(folder)
    _wait_for_marked_processes(mark)
    kill_marked_processes(mark)
    remove_folder(folder)


def _wait_for_marked_processes(mark: int) -> None:
    """Wait a while for processes to end by themselves: inits do so when their server has ended.

    If a session's process was killed at once, while its init lives, the init would report it as one
    that its own program has killed.
    """
    deadline = time.monotonic() + _SELF_END_SECONDS
    while time.monotonic() < deadline and any(_has_mark(pid, mark) for pid in _list_processes()):
        time.sleep(_SELF_END_CHECK_INTERVAL)


def kill_marked_processes(mark: int) -> None:
    """Kill all processes with a mark but this one, until there is none."""
    # Processes that are known to have no such mark, which need not be looked at again.
    unmarked_pids = {os.getpid()}
    while True:
        killed_any = False
        for pid in _list_processes():
            if pid not in unmarked_pids and _kill_if_marked(pid, mark, unmarked_pids):
                killed_any = True
        if not killed_any:
            return
        time.sleep(_KILL_INTERVAL)


def _kill_if_marked(pid: int, mark: int, unmarked_pids: set[int]) -> bool:
    """Kill a process if it has the mark.

    Args:
        pid: The process.
        mark: The mark.
        unmarked_pids: Gets the process if it has no such mark.

    Returns:
        Whether it was killed.
    """
    # The mark is checked after the pidfd was opened: the pidfd stays that of the process which was
    # checked, whichever process gets the number later.
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _has_mark(pid, mark):
            unmarked_pids.add(pid)
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(pidfd)


def _list_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def _has_mark(pid: int, mark: int) -> bool:
    """Return whether a process lives, has a mark, and is not this one."""
    try:
        match = _MARK.search(linux.read_proc(f"/proc/{pid}/limits"))
        if match is None or int(match[1]) != mark:
            return False
        return pid != os.getpid() and not _is_zombie(pid)
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    """Return whether a process has ended but is not reaped."""
    # Its state follows the name, which is in parentheses and may contain any character.
    fields_after_name = linux.read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields_after_name[0] in b"ZX"
