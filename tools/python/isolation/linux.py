"""Linux beyond what Python wraps: namespaces, mounts, capabilities, and what `/proc` tells of processes.

System calls raise OSError as the functions of `os` do. Numbers are those of the kernel's headers.
"""

import contextlib
import ctypes
import functools
import mmap
import os
import re
import signal
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_PR_SET_NAME = 15
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
ADDR_NO_RANDOMIZE = 0x0040000
_NUMBERS = {"x86_64": (56, 155, 126), "aarch64": (220, 41, 91)}
_CLONE, _PIVOT_ROOT, _CAPSET = _NUMBERS.get(os.uname().machine, (-1, -1, -1))
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = struct.pack("=Ii", 0x20080522, 0)
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SYSINFO = struct.Struct(
    "@48xQ8xQQ24xI4x"
)  # struct sysinfo: its sharedram, totalswap, freeswap and mem_unit
SOCKET, _PIPE = 2 * 212_992, 2**16
"""Bytes that a socket and a pipe hold at most with the kernel's usual settings, which a program may not change."""


_KERNEL = re.compile(rb"^(?:nr_slab_unreclaimable|nr_page_table_pages) (\d+)$", re.MULTILINE)
# Bytes of the kernel's that one mapping takes, with a name and its part of an index, and for each process above it that
# it was forked from; and one file that an epoll descriptor watches, or one lock. Measured on Linux 6.18, rounded up.
_MAPPING, _ANCESTOR, _SMALL = 512, 64, 256
SMALL = 2**14
"""Watched files and locks on files that a session may have in all; many times what programs need."""


_FDINFO = 4  # lines of a descriptor's description that tell of neither
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
    arguments = (
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    _checked(f"mount {target}", _libc.mount, *arguments)


def read_only(target: str, *, below: bool) -> None:
    """Make a mount read-only, without device files or set-user-id programs; with all mounts `below` it or without."""
    attributes = (ctypes.c_uint64 * 4)(
        MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0
    )  # as MOUNT_ATTR_* have the same bits
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = ctypes.c_char_p(target.encode())
    syscall(
        f"mount_setattr {target}",
        _MOUNT_SETATTR,
        _AT_FDCWD,
        path,
        _AT_RECURSIVE if below else 0,
        attributes,
        size,
    )


def pivot_root(new: str, old: str) -> None:
    syscall("pivot_root", _PIVOT_ROOT, ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def unmount(target: str) -> None:
    """Detach a mount; it goes when nothing uses it any more."""
    _checked(f"umount {target}", _libc.umount2, target.encode(), ctypes.c_int(2))  # MNT_DETACH


def prctl(option: int, value: int) -> None:
    _checked(
        "prctl", _libc.prctl, ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3
    )


def set_process_name(name: str) -> None:
    """Give this process a name of at most 15 characters, which `ps` shows."""
    text = ctypes.create_string_buffer(name.encode(), 16)
    prctl(_PR_SET_NAME, ctypes.addressof(text))


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Get a signal when the process that forked this one ends; be killed at once where it has ended meanwhile."""
    prctl(PR_SET_PDEATHSIG, number)
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
                pending += map(int, read(f"/proc/{pid}/task/{task}/children").split())
            found[pid] = None
    return list(found)


def threads_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116 - twenty times a second
    return 0


def place_of(pid: int) -> str:
    """Return the folder of `/proc` that tells what a process holds: that of a thread where its first one has ended."""
    place = f"/proc/{pid}"
    with contextlib.suppress(OSError):
        if threads_of(pid) > 1 and read(f"{place}/statm").startswith(b"0 "):
            for task in os.listdir(f"{place}/task"):  # noqa: PTH208
                if not read(f"{place}/task/{task}/statm").startswith(b"0 "):
                    return f"{place}/task/{task}"
    return place


def kill_tree(pidfd: int) -> None:
    """Kill the process behind a pidfd and all its descendants; harmless where it has ended."""
    with contextlib.suppress(OSError):
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
        )
        root = int(fields.get("Pid", -1))
        found = (
            [os.pidfd_open(pid) for pid in process_tree([root]) if pid != root] if root > 0 else []
        )
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


@dataclass(frozen=True)
class Machine:
    """What the whole machine holds at a moment, which tells whether it is worth looking at what a session holds."""

    shared: (
        int  # bytes of shared memory: shared mappings, and files in memory, which have limits too
    )
    kernel: int  # bytes that processes hold without having them mapped: see `kernel_memory`


def look_at_machine() -> Machine:
    return Machine(shared_memory(), kernel_memory())


def shared_memory() -> int:
    """Return bytes of shared memory on this machine: shared mappings, and files in memory, which have limits too."""
    shared, _, _, unit = _sysinfo()
    return shared * unit


def kernel_memory() -> int:
    """Return bytes of this machine's that no process has mapped: tables and objects of the kernel, and used swap."""
    _, swap, unused, unit = _sysinfo()
    return sum(map(int, _KERNEL.findall(read("/proc/vmstat")))) * _PAGE + (swap - unused) * unit


def _sysinfo() -> tuple[int, int, int, int]:
    told = ctypes.create_string_buffer(_SYSINFO.size)
    _checked("sysinfo", _libc.sysinfo, told)
    return _SYSINFO.unpack(told)


def kernel_memory_of(pids: Sequence[int], over: int, grown: int) -> int:
    """Return bytes that processes hold without having them mapped, estimated from above; it stops at more than `over`.

    These are mappings themselves, page tables, memory in swap, locks on files, and files that epoll descriptors watch.
    Descriptors that are on their way through a socket hide what they hold: then it is what the machine's `grown` by.
    """
    each = _MAPPING + _ANCESTOR * len(pids)
    held = small = 0
    for pid in pids:
        place = place_of(pid)
        held += _figures(place) + each * _lines(f"{place}/maps", (over - held) // each + 1)
        known = set[str]()  # two descriptors of a file tell of the same locks
        for number in _files(pid):
            with contextlib.suppress(OSError):
                link, told = os.readlink(f"{place}/fd/{number}"), f"{place}/fdinfo/{number}"  # noqa: PTH115
                if link.startswith("socket:"):
                    held = max(held, grown) if _IN_FLIGHT.search(read(told)) else held
                elif link == "anon_inode:[eventpoll]" or (
                    link.startswith("/") and link not in known
                ):
                    known.add(link)
                    small += max(0, _lines(told, SMALL + _FDINFO) - _FDINFO)
        if small > SMALL:
            return over + 1
        if held + small * _SMALL > over:
            break
    return held + small * _SMALL


_IN_FLIGHT = re.compile(rb"^scm_fds:\s+[1-9]", re.MULTILINE)
_FIGURES = re.compile(rb"^Vm(?:PTE|Swap):\s+(\d+) kB$", re.MULTILINE)


def _figures(place: str) -> int:
    """Return bytes of a process's page tables and of its memory in swap."""
    with contextlib.suppress(OSError):
        return sum(map(int, _FIGURES.findall(read(f"{place}/status")))) * 1024
    return 0


def _lines(path: str, most: int) -> int:
    """Return the number of lines of a file of `/proc`; reading stops at `most`."""
    lines = 0
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        while lines < most and (piece := file.read(2**16)):
            lines += piece.count(b"\n")
    return lines


def buffers_of(pids: Sequence[int], over: int, network: int = 0) -> int:
    """Return bytes that pipes and sockets of processes may hold; where a first estimate is at most `over`, that.

    A process of theirs may be named whose `network` is theirs alone: its sockets are counted there, which also finds
    those that no process has a descriptor of, as connections that nobody has accepted.
    """
    sockets = 0
    with contextlib.suppress(OSError):  # it has ended
        sockets = int(read(f"/proc/{network}/net/sockstat").split()[2]) if network else 0
    if (most := (sockets + sum(len(_files(pid)) for pid in pids)) * SOCKET) <= over:
        return most
    kinds = dict[tuple[int, int], int]()
    for path in (f"{place_of(pid)}/fd/{number}" for pid in pids for number in _files(pid)):
        with contextlib.suppress(OSError):
            status = os.stat(path)  # noqa: PTH116
            kinds[status.st_dev, status.st_ino] = stat.S_IFMT(
                status.st_mode
            )  # a pipe may have a name
    found = Counter(kinds.values())
    return (sockets or found[stat.S_IFSOCK]) * SOCKET + found[stat.S_IFIFO] * _PIPE


def syscall(what: str, number: int, *arguments: object) -> int:
    """Make a system call by its number and return what it returns; `what` begins the message of a failure."""
    if number < 0:
        raise OSError(
            f"{what}: machine {os.uname().machine} is not supported; x86_64 and aarch64 are"
        )
    return _checked(what, _libc.syscall, ctypes.c_long(number), *arguments)


def _checked(what: str, function: Callable[..., int], *arguments: object) -> int:
    if (result := int(function(*arguments))) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def read(path: str) -> bytes:
    """Return a file of `/proc`."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.readall()


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = read(f"{place_of(pid)}/statm").split()
        return (int(resident) - int(shared)) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    """Return bytes of memory in which what n processes share counts as an n-th for each; without shared mappings."""
    try:
        sizes = dict(
            re.findall(
                rb"^(Pss|Pss_Shmem): +(\d+)", read(f"{place_of(pid)}/smaps_rollup"), re.MULTILINE
            )
        )
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
            maps = read(f"{place_of(pid)}/maps")
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
        device = re.search(line + rb"(\S+) .*/dev/zero", read("/proc/self/maps"), re.MULTILINE)
    return re.compile(line + (device[4] if device else b"00:01") + rb" (\d+)", re.MULTILINE)


def _files(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(f"{place_of(pid)}/fd")  # noqa: PTH208
    return []
