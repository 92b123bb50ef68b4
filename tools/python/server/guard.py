"""Where there are no namespaces: what ends and removes whatever a server and its sessions leave behind.

A guard is a process beside the server's tree, of which it is no part: nobody who kills that tree kills it. As long as
the server lives, it removes the folders of sessions that have ended, which may take longer than a call may. When the
server has ended, however it did, the guard kills what is left and removes the server's folder. Its processes are known
by a mark: a limit of no other use, which they inherit and cannot change. The folder is locked as long as the server or
its guard lives: of one that was killed with its guard, the next guard finds the folder unlocked, and does their work.
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

PREFIX = "python-tool-server-"  # not that of earlier versions, whose folders are not locked while they are in use
_NAMED = re.compile(PREFIX + r"(\w{8})")
_RLIMIT_LOCKS = 10  # has had no effect since Linux 2.4
_MARK = re.compile(rb"^Max file locks +\d+ +(\d+) ", re.MULTILINE)
_GRACE, _GLANCE = (
    1.0,
    0.01,
)  # seconds in which inits end what is theirs, and between two looks whether they have
_REAPED = 3.0  # seconds in which a guard has ended after its server
_AGAIN = 0.001  # seconds between two searches for processes, as long as there are any
NAME = "python-guard"  # of its process


def mark_of(folder: str) -> int:
    """Return the mark of the processes of the server that has this folder."""
    return int.from_bytes(folder[-8:].encode())


def reap(guard: int) -> None:
    """Reap the guard behind a pidfd, whose server has ended, and close that.

    It is a child of this process where that takes over orphans, as the first process of a container does.
    """
    try:
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PIDFD, guard, os.WEXITED | os.WNOHANG) is None and messages.wait(
                guard, _REAPED
            ):
                os.waitid(os.P_PIDFD, guard, os.WEXITED | os.WNOHANG)
    finally:
        os.close(guard)


def take_mark(folder: str) -> None:
    """Mark this process and all that it will start."""
    mark = mark_of(folder)
    # Refused within a session of another server, which itself ends whatever is in it.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))


def start_guard(folder: str, lock: int) -> tuple[socket.socket, int]:
    """Start the guard of this server; return the socket that gives it work until the server ends, and its number."""
    ours, theirs = messages.pair()
    if not (middle := os.fork()):
        try:
            if not os.fork():
                os.setsid()
                _guard(theirs, folder, lock)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):  # it has ended, and the kernel has reaped it
        os.waitpid(middle, 0)
    theirs.close()
    return ours, int(
        ours.recv(messages.PACKET) or b"0"
    )  # 0 where it was killed at once, which is found out


def _guard(requests: socket.socket, folder: str, lock: int) -> NoReturn:
    linux.set_process_name(NAME)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    requests = socket.socket(fileno=os.dup2(requests.detach(), 3))
    os.dup2(lock, 4)
    os.closerange(5, 1 << 16)
    try:
        requests.send(b"%d" % os.getpid())
        _sweep(Path(folder).parent)
        while name := requests.recv(messages.PACKET):
            remove_folder(f"{folder}/{int(name)}")
            requests.send(name)
    finally:
        _clean(folder)
        os._exit(0)


def _sweep(place: Path) -> None:
    """Clean up after servers that were killed with their guards."""
    for path in place.glob(f"{PREFIX}*"):
        if _NAMED.fullmatch(path.name) and (lock := lock_folder(str(path))) is not None:
            _clean(str(path))
            os.close(lock)


def lock_folder(folder: str) -> int | None:
    """Return a descriptor that locks a folder of this user's; None where it is none, or is locked, or has gone."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(place).st_uid == os.geteuid() and os.path.samestat(
            os.fstat(place), os.lstat(folder)
        ):
            return place
    os.close(place)
    return None


def _clean(folder: str) -> None:
    _await_end(mark_of(folder))
    end_marked(mark_of(folder))
    remove_folder(folder)


def end_marked(mark: int) -> None:
    """Kill all processes with a mark but this one, until there is none."""
    others = {os.getpid()}  # processes that are known to have another one
    while found := [pid for pid in _processes() if pid not in others and _kill(pid, mark, others)]:
        others.difference_update(found)
        time.sleep(_AGAIN)


def _await_end(mark: int) -> None:
    """Wait a while for processes to end by themselves: inits do so when their server has ended.

    A session whose process is killed, while its init lives, counts as one whose own program killed it.
    """
    until = time.monotonic() + _GRACE
    while time.monotonic() < until and any(_has(pid, mark) for pid in _processes()):
        time.sleep(_GLANCE)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def _kill(pid: int, mark: int, others: set[int]) -> bool:
    """Kill a process if it has the mark; return whether it has. One that has not joins the `others`."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _has(pid, mark):
            others.add(pid)
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(process)


def _has(pid: int, mark: int) -> bool:
    """Return whether a process lives and has a mark; this one has none."""
    try:
        found = _MARK.search(linux.read(f"/proc/{pid}/limits"))
        return (
            found is not None
            and int(found[1]) == mark
            and pid != os.getpid()
            and not _is_zombie(pid)
        )
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    return linux.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] in b"ZX"
