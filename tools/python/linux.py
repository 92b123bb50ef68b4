"""Linux beyond what Python wraps: namespaces, mounts, capabilities, Landlock, and what `/proc` tells of processes.

System calls raise OSError as the functions of `os` do. Numbers are those of the kernel's headers.

With Landlock a process gives up all files but those under paths that it names. A ruleset is built once and enforced in
each child after its fork, as a domain of its own: children that share one still cannot signal one another. It hides no
metadata of paths, nor stops connections to the path of a listening unix socket. Source: `linux/landlock.h`.
"""

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import re
import signal
import stat
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
ADDR_NO_RANDOMIZE = 0x0040000
_NUMBERS = {"x86_64": (56, 155, 126), "aarch64": (220, 41, 91)}
_CLONE, _PIVOT_ROOT, _CAPSET = _NUMBERS.get(os.uname().machine, (-1, -1, -1))
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = struct.pack("=Ii", 0x20080522, 0)
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SYSINFO = struct.Struct("@48xQ48xI4x")  # struct sysinfo: its sharedram and mem_unit
SOCKET, _PIPE = 2 * 212_992, 2**16
"""Bytes that a socket and a pipe hold at most with the kernel's usual settings, which a program may not change."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_FIRST = (1 << 13) - 1  # the rights of the first ABI
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_UNIX_SOCKET, _SIGNAL = 1 << 0, 1 << 1

# Without the lock of the interpreter released around a call: a clone must come back with it held, on both sides.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def clone(namespaces: int) -> int:
    """Fork into new namespaces; like `os.fork`, but it runs no at-fork handlers, so the child may do little."""
    return syscall("clone", _CLONE, namespaces | signal.SIGCHLD, 0, 0, 0, 0)


def fork() -> int:
    """Fork a process with one thread, without at-fork handlers, with which the kernel would copy some hundred pages."""
    return _checked("fork", _libc.fork)


def unshare(namespaces: int) -> None:
    _checked("unshare", _libc.unshare, ctypes.c_int(namespaces))


def setns(fd: int, namespaces: int) -> None:
    _checked("setns", _libc.setns, ctypes.c_int(fd), ctypes.c_int(namespaces))


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system; of bind mounts `kind` is empty."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _checked(f"mount {target}", _libc.mount, *arguments)


def read_only(target: str, *, below: bool) -> None:
    """Make a mount read-only, without device files or set-user-id programs; with all mounts `below` it or without."""
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)  # as MOUNT_ATTR_* have the same bits
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = ctypes.c_char_p(target.encode())
    syscall(f"mount_setattr {target}", _MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE if below else 0, attributes, size)


def pivot_root(new: str, old: str) -> None:
    syscall("pivot_root", _PIVOT_ROOT, ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def unmount(target: str) -> None:
    """Detach a mount; it goes when nothing uses it any more."""
    _checked(f"umount {target}", _libc.umount2, target.encode(), ctypes.c_int(2))  # MNT_DETACH


def prctl(option: int, value: int) -> None:
    _checked("prctl", _libc.prctl, ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


def die_with(parent: int) -> None:
    """Be killed when the process that forked this one ends, at once where it has ended meanwhile."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def drop_capabilities() -> None:
    syscall("capset", _CAPSET, _CAPABILITY_VERSION_3, bytes(24))


def personality(persona: int) -> int:
    """Set the execution domain of this process and return the former one; 0xFFFFFFFF only asks."""
    return _checked("personality", _libc.personality, ctypes.c_ulong(persona))


def process_tree(roots: Iterable[int]) -> list[int]:
    """Return the processes `roots` and all their descendants that live."""
    found, pending = dict[int, None](), list(roots)
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - twenty times a second, as all that follows
                pending += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
            found[pid] = None
    return list(found)


def threads_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116 - twenty times a second
    return 0


def kill_tree(pidfd: int) -> None:
    """Kill the process behind a pidfd and all its descendants; harmless where it has ended."""
    with contextlib.suppress(OSError):
        fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
        root = int(fields.get("Pid", -1))
        found = [os.pidfd_open(pid) for pid in process_tree([root]) if pid != root] if root > 0 else []
        for fd in (pidfd, *found):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        for fd in found:
            os.close(fd)


def memory_of(pids: Sequence[int], over: int, machine: int = 0, grown: int = 0) -> int:
    """Return bytes of memory that processes hold together; where a first estimate is at most `over`, an estimate.

    The estimate counts what processes share once for each. Shared mappings are looked for where all shared memory of
    the `machine`, by `shared_memory`, would be too much; `grown` is by how much that rose since the processes began.
    """
    if (held := sum(_resident(pid) for pid in pids)) + machine <= over:
        return held
    shared = min(machine, _shared(pids, over, grown)) if machine else 0
    if held + shared > over:
        held = sum(_proportional(pid) for pid in pids)
    return held + shared


def shared_memory() -> int:
    """Return bytes of shared memory on this machine: shared mappings, and files in memory, which have limits too."""
    told = ctypes.create_string_buffer(_SYSINFO.size)
    _checked("sysinfo", _libc.sysinfo, told)
    shared, unit = _SYSINFO.unpack(told)
    return int(shared * unit)


def buffers_of(pids: Sequence[int], over: int, network: int = 0) -> int:
    """Return bytes that pipes and sockets of processes may hold; where a first estimate is at most `over`, that.

    A process of theirs may be named whose `network` is theirs alone: its sockets are counted there, which also finds
    those that no process has a descriptor of, as connections that nobody has accepted.
    """
    sockets = 0
    with contextlib.suppress(OSError):  # it has ended
        sockets = int(_read(f"/proc/{network}/net/sockstat").split()[2]) if network else 0
    if (most := (sockets + sum(len(_files(pid)) for pid in pids)) * SOCKET) <= over:
        return most
    found = set()
    for path in (f"/proc/{pid}/fd/{number}" for pid in pids for number in _files(pid)):
        with contextlib.suppress(OSError):
            found.add(os.readlink(path))  # noqa: PTH115
    sockets = sockets or sum(link.startswith("socket:") for link in found)
    return sockets * SOCKET + sum(link.startswith("pipe:") for link in found) * _PIPE


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 where it has none, or where it is disabled or forbidden."""
    with contextlib.suppress(OSError):
        return syscall("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    return 0


def landlock_ruleset(*, read: Sequence[str], write: Sequence[str], listed: Sequence[str] = ()) -> int:
    """Return the descriptor of a ruleset, for `enforce_landlock`.

    Under a `read` path files can be read, run and listed, under a `listed` path folders be listed; under a `write` path
    everything but device nodes can also be changed or made. From version 2 on files move between write paths, from 4
    there is no TCP, from 6 signals and abstract unix sockets reach only what is under the same restriction. Raises
    OSError where the kernel has no Landlock, or a path, which is named, cannot be opened.
    """
    if not (version := landlock_version()):
        message = "this kernel has no Landlock, or it is disabled (CONFIG_SECURITY_LANDLOCK, boot option lsm=landlock)"
        raise OSError(errno.EOPNOTSUPP, message)
    newer = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    rights = _FIRST | sum(right for since, right in newer if version >= since)
    # struct landlock_ruleset_attr, which newer versions made longer
    fields = ((1, rights), (4, _BIND_TCP | _CONNECT_TCP), (6, _ABSTRACT_UNIX_SOCKET | _SIGNAL))
    attr = b"".join(struct.pack("=Q", field) for since, field in fields if version >= since)
    size = ctypes.c_size_t(len(attr))
    ruleset = syscall("the kernel refuses a Landlock ruleset", _CREATE_RULESET, attr, size, 0)
    writing = rights & ~(_MAKE_CHAR | _MAKE_BLOCK)
    try:
        for paths, allowed in ((read, rights & _READING), (listed, _READ_DIR), (write, writing)):
            for path in paths:
                _allow(ruleset, path, allowed)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enforce_landlock(ruleset: int) -> None:
    """Bind this thread and its descendants, and close the descriptor: its holder could widen the next child's."""
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        syscall("the kernel refuses to enforce the Landlock ruleset", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def syscall(what: str, number: int, *arguments: object) -> int:
    """Make a system call by its number and return what it returns; `what` begins the message of a failure."""
    if number < 0:
        raise OSError(f"{what}: machine {os.uname().machine} is not supported; x86_64 and aarch64 are")
    return _checked(what, _libc.syscall, ctypes.c_long(number), *arguments)


def _checked(what: str, function: Callable[..., int], *arguments: object) -> int:
    if (result := int(function(*arguments))) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _allow(ruleset: int, path: str, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _ON_FILES
        attr = struct.pack("=Qi", rights, beneath)  # struct landlock_path_beneath_attr
        syscall(f"the kernel refuses a Landlock rule for {path!r}", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, attr, 0)
    finally:
        os.close(beneath)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.readall()


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = _read(f"/proc/{pid}/statm").split()
        return (int(resident) - int(shared)) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    """Return bytes of memory in which what n processes share counts as an n-th for each; without shared mappings."""
    try:
        sizes = dict(re.findall(rb"^(Pss|Pss_Shmem): +(\d+)", _read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE))
    except PermissionError:  # it hides
        return _resident(pid)
    except OSError:
        return 0
    return (int(sizes.get(b"Pss", 0)) - int(sizes.get(b"Pss_Shmem", 0))) * 1024


def _shared(pids: Sequence[int], over: int, grown: int) -> int:
    """Return bytes of the shared objects that processes map; those of files belong to the file system.

    An object lives, whole, as long as a page of it is mapped, and nothing tells its size. One cannot be larger than an
    address space. Where there are more, what the machine's shared memory has `grown` by counts as theirs.
    """
    objects: dict[bytes, int] = {}
    for pid in pids:
        try:
            maps = _read(f"/proc/{pid}/maps")
        except PermissionError:  # it hides
            return grown
        except OSError:
            continue
        for low, high, offset, name in _mappings().findall(maps):
            end = int(offset, 16) + int(high, 16) - int(low, 16)
            objects[name] = max(end, objects.get(name, 0))
    return max(sum(objects.values()), min(grown, (len(objects) - 1) * over))


@functools.cache
def _mappings() -> re.Pattern[bytes]:
    """Return what finds the shared mappings of no file in a process's list: they are on the kernel's own device."""
    line = rb"^(\w+)-(\w+) ...s (\w+) "
    with mmap.mmap(-1, _PAGE):
        device = re.search(line + rb"(\S+) .*/dev/zero", _read("/proc/self/maps"), re.MULTILINE)
    return re.compile(line + (device[4] if device else b"00:01") + rb" (\d+)", re.MULTILINE)


def _files(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
    return []
