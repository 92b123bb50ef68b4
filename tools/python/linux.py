"""The Linux system calls that Python does not wrap: namespaces, mounts, capabilities, personality.

Each raises OSError as the functions of `os` do. Numbers are those of the kernel's headers.
"""

import ctypes
import os
import platform
import signal
from collections.abc import Callable

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
ADDR_NO_RANDOMIZE = 0x0040000

_CLONE, _PIVOT_ROOT, _CAPSET = {"x86_64": (56, 155, 126), "aarch64": (220, 41, 91)}.get(
    platform.machine(), (-1, -1, -1)
)
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = 0x20080522
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

# Without the lock of the interpreter released around a call: a clone must come back with it held, on both sides.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def clone(namespaces: int) -> int:
    """Fork into new namespaces; like `os.fork`, but it runs no at-fork handlers, so the child may do little."""
    return _syscall("clone", _CLONE, namespaces | signal.SIGCHLD, 0, 0, 0, 0)


def unshare(namespaces: int) -> None:
    """Move this process into new namespaces."""
    _checked("unshare", _libc.unshare, ctypes.c_int(namespaces))


def setns(fd: int, namespaces: int) -> None:
    """Join the namespaces of the process behind a pidfd."""
    _checked("setns", _libc.setns, ctypes.c_int(fd), ctypes.c_int(namespaces))


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system; of bind mounts `kind` is empty."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _checked(f"mount {target}", _libc.mount, *arguments)


def read_only(target: str, *, below: bool) -> None:
    """Make a mount read-only, without device files or set-user-id programs; with all mounts `below` it or without."""
    attributes = (ctypes.c_uint64 * 4)(ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = ctypes.c_char_p(target.encode())
    _syscall(
        f"mount_setattr {target}", _MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE if below else 0, attributes, size
    )


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root of this mount namespace and move the present one to `old`."""
    _syscall("pivot_root", _PIVOT_ROOT, ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def unmount(target: str) -> None:
    """Detach a mount; it goes when nothing uses it any more."""
    _checked(f"umount {target}", _libc.umount2, target.encode(), ctypes.c_int(MNT_DETACH))


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    _checked("prctl", _libc.prctl, ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


def die_with(parent: int) -> None:
    """Be killed when the process that forked this one ends, at once where it has ended meanwhile."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def drop_capabilities() -> None:
    """Give up all privileges of this process, also those in its own user namespace."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _syscall("capset", _CAPSET, header, (ctypes.c_uint32 * 6)())


def personality(persona: int) -> int:
    """Set the execution domain of this process and return the former one; 0xFFFFFFFF only asks."""
    former = _libc.personality(ctypes.c_ulong(persona))
    if former < 0:
        raise _error("personality")
    return int(former)


def set_host_name(name: str) -> None:
    """Name the machine, within this UTS namespace."""
    _checked("sethostname", _libc.sethostname, name.encode(), ctypes.c_size_t(len(name)))


def _syscall(what: str, number: int, *arguments: object) -> int:
    if number < 0:
        raise OSError(f"{what}: machine {platform.machine()} is not supported; x86_64 and aarch64 are")
    return _checked(what, _libc.syscall, ctypes.c_long(number), *arguments)


def _checked(what: str, function: Callable[..., int], *arguments: object) -> int:
    result = int(function(*arguments))
    if result < 0:
        raise _error(what)
    return result


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
