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
SERVER_FOLDER_PREFIX = "python-tool-server-"
GUARD_NAME = "python-guard"  # of a guard's process, as `ps` shows it

_FOLDER_NAME = re.compile(SERVER_FOLDER_PREFIX + r"(\w{8})")  # as `tempfile.mkdtemp` makes them
_RLIMIT_LOCKS = 10  # the limit that carries the mark; it has had no effect since Linux 2.4
# The mark in `/proc/PID/limits`: "Max file locks   123   123   locks".
_MARK_IN_LIMITS = re.compile(rb"^Max file locks +\d+ +(\d+) ", re.MULTILINE)
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
    # It is refused if this server runs within a session of another one, which has set the limit.
    # That one ends all processes of its sessions, including this server.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))


def start_guard(folder: str, lock: int) -> tuple[socket.socket, int]:
    """Start the guard of this server.

    It is forked by way of a process that exits, so that it is no child of this process: whoever
    kills this process's tree does not find it. This process must not be a subreaper meanwhile.

    Args:
        folder: The server's folder.
        lock: The descriptor that locks the folder.

    Returns:
        A pair: the socket to the guard, and the guard's process number, which is 0 if it was killed
        at once. The number of a boundary that is sent on the socket has the guard remove the
        boundary's folder, and send the number back when that is done.
    """
    server_end, guard_end = messages.packet_pair()
    middle_pid = os.fork()
    if middle_pid == 0:  # this is the process that exits
        try:
            guard_pid = os.fork()
            if guard_pid == 0:
                os.setsid()
                _run_guard(guard_end, folder, lock)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):  # it has ended, and the kernel has reaped it
        os.waitpid(middle_pid, 0)
    guard_end.close()
    # The guard first sends its process number; the packet is empty if it was killed before.
    greeting = server_end.recv(messages.MAX_PACKET)
    return server_end, int(greeting or b"0")


def reap_guard(guard_pidfd: int) -> None:
    """Reap a guard whose server has ended, and close its pidfd.

    The guard is a child of this process if this process takes over orphans, as the first process of
    a container does; otherwise there is nothing to reap.
    """
    try:
        with contextlib.suppress(ChildProcessError):
            reap_if_ended = os.WEXITED | os.WNOHANG
            is_reaped = os.waitid(os.P_PIDFD, guard_pidfd, reap_if_ended) is not None
            # A pidfd becomes readable when its process ends.
            if not is_reaped and messages.wait_until_readable(guard_pidfd, _GUARD_END_SECONDS):
                os.waitid(os.P_PIDFD, guard_pidfd, reap_if_ended)
    finally:
        os.close(guard_pidfd)


def _run_guard(requests: socket.socket, folder: str, lock: int) -> NoReturn:
    """Remove folders of sessions on request, and clean up when the server has ended; then exit.

    At first it cleans up after other servers that were killed together with their guards.

    Args:
        requests: The guard's end of the socket to the server; see `start_guard`.
        folder: The server's folder.
        lock: The descriptor that locks the folder.
    """
    linux.set_process_name(GUARD_NAME)
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)
    # It keeps the socket and the lock, as 3 and 4, and closes all other descriptors of the server.
    requests = socket.socket(fileno=os.dup2(requests.detach(), 3))
    os.dup2(lock, 4)
    os.closerange(5, 1 << 16)
    try:
        requests.send(b"%d" % os.getpid())
        _clean_up_after_dead_servers(Path(folder).parent)
        while True:
            serial = requests.recv(messages.MAX_PACKET)
            if not serial:  # the server has ended
                break
            remove_folder(f"{folder}/{int(serial)}")
            requests.send(serial)
    finally:
        _clean_up_after_server(folder)
        os._exit(0)


def _clean_up_after_dead_servers(temporary_folder: Path) -> None:
    """Clean up after servers that were killed together with their guards."""
    for path in temporary_folder.glob(f"{SERVER_FOLDER_PREFIX}*"):
        if not _FOLDER_NAME.fullmatch(path.name):
            continue
        # The folder of a server that lives, or whose guard lives, is locked.
        lock = try_to_lock_folder(str(path))
        if lock is not None:
            _clean_up_after_server(str(path))
            os.close(lock)


def try_to_lock_folder(folder: str) -> int | None:
    """Lock a folder that belongs to this user.

    Returns:
        The descriptor that locks it. None if it is locked already, is not a folder, belongs to
        another user, or does not exist any more.
    """
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(folder_fd)
        belongs_to_user = status.st_uid == os.geteuid()
        # Another guard may have removed the folder between opening and locking: then the path is
        # that of no folder, or of a new one.
        if belongs_to_user and os.path.samestat(status, os.lstat(folder)):
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
    """Wait up to a second for marked processes to end by themselves.

    The inits end themselves and their descendants when their server has ended. If a session's
    process were killed before its init, the init would report that its own program has killed it.
    """
    deadline = time.monotonic() + _SELF_END_SECONDS
    while time.monotonic() < deadline:
        if not any(_has_mark(pid, mark) for pid in _list_processes()):
            return
        time.sleep(_SELF_END_CHECK_INTERVAL)


def kill_marked_processes(mark: int) -> None:
    """Kill all processes with a mark, except this one, until a search finds none.

    One search may not be enough, since a process may fork before it is killed.
    """
    # Processes that were found to have no such mark are not looked at again.
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
        unmarked_pids: The process is added to this set if it does not have the mark.

    Returns:
        Whether it was killed.
    """
    # The pidfd is opened before the mark is checked. If the process ends after the check, and its
    # number is given to another one, the pidfd does not refer to that one.
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
    """Return whether a process is alive, has a mark, and is not this process."""
    try:
        match = _MARK_IN_LIMITS.search(linux.read_proc(f"/proc/{pid}/limits"))
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
