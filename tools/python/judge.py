"""The judge of a boundary: it answers the calls that a filter cannot decide by their arguments alone.

A process of the boundary that makes one waits meanwhile. Those that name another process go on where that one is of the
same session, or of one that was begun in it: to a session, its forks and what they start do not exist. Where programs
see the files of the machine, the judge itself changes modes and times for them, of files in their folder only, since
the path that a program gives may be another one by the time the kernel reads it.
"""

import ctypes
import errno
import fcntl
import functools
import os
import select
import struct
import time
from pathlib import Path

from . import seccomp

_RECEIVE, _ANSWER, _CONTINUE = 0xC0502100, 0xC0182101, 1  # SECCOMP_IOCTL_NOTIF_*, SECCOMP_USER_NOTIF_FLAG_CONTINUE
_NOTICE = struct.Struct("=QII iIQ 6Q")  # struct seccomp_notif: id, pid, flags, and struct seccomp_data
_VERDICT = struct.Struct("=Qq iI")  # struct seccomp_notif_resp: id, value, error, flags
_REMEMBERED = 16  # sessions within sessions that are told apart
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_NOW, _OMIT = (1 << 30) - 1, (1 << 30) - 2
_PATH = 4096


def judge(listener: int, folder: str | None = None) -> None:
    """Answer until no process is left that may ask; `folder`, without links in it, is where files may be changed."""
    bench = _Judge(folder)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while not poll.poll()[0][1] & select.POLLHUP:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
            serial, asker, _, number, _, _, *args = _NOTICE.unpack(notice)
            error, flags = bench.decide(asker, number, args)
            fcntl.ioctl(listener, _ANSWER, _VERDICT.pack(serial, 0, -error, flags))
        except OSError:
            continue  # the asker has ended, or does not wait any more


class _Judge:
    def __init__(self, folder: str | None) -> None:
        self.folder = folder
        self.above: dict[int, tuple[int, ...]] = {}  # the sessions in which one was begun

    def decide(self, asker: int, number: int, args: list[int]) -> tuple[int, int]:
        """Return the error of a call, 0 for none, and whether the kernel is to go on with it."""
        name = _names()[number]
        if name in seccomp.CHANGES:
            try:
                self.change(asker, name, args)
            except OSError as error:
                return error.errno or errno.EPERM, 0
            except (OverflowError, ValueError):
                return errno.EFAULT, 0
            return 0, 0
        own = os.getsid(asker)
        if name == "setsid" and args[0] == seccomp.OWN:
            self.above.pop(asker, None)
        elif name == "setsid" and asker != own:
            self.above[asker] = (own, *self.above.get(own, ()))[:_REMEMBERED]
        elif name != "setsid" and not self.within(_int(args[name.endswith("priority")]), own):
            return errno.ESRCH, 0
        return 0, _CONTINUE

    def within(self, pid: int, session: int) -> bool:
        """Return whether a process, or a group where the number is negative, is of a session or one begun in it."""
        try:
            found = os.getsid(abs(pid))
        except (OSError, OverflowError):
            return False
        return session == found or session in self.above.get(found, ())

    def change(self, asker: int, name: str, args: list[int]) -> None:
        """Change the mode or the times of a file for the process that asks; OSError as the kernel would give it."""
        if name == "chmod":
            at, path, value, flags = _AT_FDCWD, args[0], args[1], 0
        elif name == "fchmod":
            at, path, value, flags = _int(args[0]), 0, args[1], 0
        else:
            at, path, value, flags = _int(args[0]), args[1], args[2], 0 if name == "fchmodat" else _int(args[3])
        place = Path(f"/proc/{asker}", "cwd" if at == _AT_FDCWD else f"fd/{at}")
        if path:
            place /= os.fsdecode(_read(asker, path, _PATH).partition(b"\0")[0])
        nofollow = os.O_NOFOLLOW if path and flags & _AT_SYMLINK_NOFOLLOW else 0
        target = os.open(place, os.O_PATH | os.O_CLOEXEC | nofollow)
        try:
            itself = Path(f"/proc/self/fd/{target}")
            if self.folder is None or not str(itself.readlink()).startswith(f"{self.folder}/"):
                raise PermissionError(errno.EPERM, "it lies elsewhere")
            if name != "utimensat":
                itself.chmod(value & 0o777)
            elif not value:
                os.utime(itself)
            else:
                status, now = itself.stat(), time.time_ns()
                seconds, nanos, *changed = struct.unpack("=4q", _read(asker, value, 32))
                times = ((seconds, nanos, status.st_atime_ns), (*changed, status.st_mtime_ns))
                accessed, modified = (now if n == _NOW else old if n == _OMIT else s * 10**9 + n for s, n, old in times)
                os.utime(itself, ns=(accessed, modified))
        finally:
            os.close(target)


@functools.cache
def _names() -> dict[int, str]:
    return {seccomp.number(name): name for name in seccomp.CALLS}


def _read(pid: int, address: int, size: int) -> bytes:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, size, address)
    finally:
        os.close(memory)


def _int(register: int) -> int:
    return ctypes.c_int(register & 0xFFFFFFFF).value
