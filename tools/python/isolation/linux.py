"""Linux beyond what Python wraps: namespaces, mounts, capabilities, and memory by `/proc`.

The first half wraps system calls, which raise OSError as the functions of `os` do; numbers are
those of the kernel's headers. The second half measures the memory that the processes of a session
use: what they have mapped (`measure_memory`), what the kernel keeps for them
(`measure_kernel_memory`), and the buffers of their sockets and pipes (`measure_buffers`). A
supervisor calls these twenty times a second, so they avoid pathlib, and each begins with an
estimate that is cheap and never too low.
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
from typing import NamedTuple

# CLONE_NEW*: kinds of namespaces.
NEWNS = 0x00020000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000

# Flags of mounts. Those of `mount_setattr`, MOUNT_ATTR_*, have the same values as the first three.
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2

_PR_SET_NAME = 15
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
ADDR_NO_RANDOMIZE = 0x0040000  # a personality, in which addresses are the same in every run

# Numbers of system calls: clone, pivot_root, capset.
_NUMBERS = {"x86_64": (56, 155, 126), "aarch64": (220, 41, 91)}
_CLONE, _PIVOT_ROOT, _CAPSET = _NUMBERS.get(os.uname().machine, (-1, -1, -1))
_MOUNT_SETATTR = 442  # on every machine

_CAPABILITY_HEADER = struct.pack("=Ii", 0x20080522, 0)  # version 3 of the call, about this process
_NO_CAPABILITIES = bytes(24)
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SYSINFO = struct.Struct("@48xQ8xQQ24xI4x")  # the fields of struct sysinfo that `SystemInfo` names

# Most bytes in the buffers of a socket and of a pipe with the kernel's usual settings, which no
# program may change.
SOCKET_BUFFER_BYTES = 2 * 212_992
_PIPE_BUFFER_BYTES = 2**16

# Bytes that the kernel keeps, measured on Linux 6.18 and rounded up: for a mapping, with its name
# and its part of an index; in addition for each process from which the process with the mapping was
# forked; and for a lock, or a file that an epoll descriptor watches.
_MAPPING_BYTES = 512
_MAPPING_BYTES_PER_ANCESTOR = 64
_LOCK_OR_WATCH_BYTES = 256

MAX_LOCKS_AND_WATCHES = 2**14
"""Locks on files and watched files that a session may have; many times what programs need."""

_DESCRIPTION_LINES = 4  # of a descriptor in `fdinfo`, before those about its locks or watched files

_KERNEL_PAGES = re.compile(
    rb"^(?:nr_slab_unreclaimable|nr_page_table_pages) (\d+)$", re.MULTILINE
)  # in /proc/vmstat
_PAGE_TABLES_AND_SWAP = re.compile(rb"^Vm(?:PTE|Swap):\s+(\d+) kB$", re.MULTILINE)  # in `status`
_PROPORTIONAL_SIZES = re.compile(rb"^(Pss|Pss_Shmem): +(\d+)", re.MULTILINE)  # in `smaps_rollup`
_DESCRIPTORS_IN_FLIGHT = re.compile(rb"^scm_fds:\s+[1-9]", re.MULTILINE)  # in `fdinfo` of a socket

# Without releasing the interpreter's lock around a call: both sides must come back from a clone
# with the lock still taken.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def clone(namespaces: int) -> int:
    """Fork into new namespaces; like `os.fork`, but it runs no at-fork handlers.

    The child may therefore do little.
    """
    return syscall("clone", _CLONE, namespaces | signal.SIGCHLD, 0, 0, 0, 0)


def fork() -> int:
    """Fork a process that has one thread, without running Python's at-fork handlers.

    The handlers would write to some hundred memory pages, which the kernel would have to copy.
    """
    return _check_result("fork", _libc.fork)


def unshare(namespaces: int) -> None:
    """Move this process into new namespaces."""
    _check_result("unshare", _libc.unshare, ctypes.c_int(namespaces))


def setns(fd: int, namespaces: int) -> None:
    """Join the namespaces of the process behind a pidfd."""
    _check_result("setns", _libc.setns, ctypes.c_int(fd), ctypes.c_int(namespaces))


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system of a kind, such as "tmpfs"; the kind of a bind mount is empty."""
    _check_result(
        f"mount {target}",
        _libc.mount,
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )


def make_read_only(target: str, *, recursive: bool) -> None:
    """Make a mount read-only, and ignore device files and set-user-id bits on it.

    Args:
        target: The path at which it is mounted.
        recursive: Whether the mounts below it are changed as well.
    """
    attributes_to_set = MS_RDONLY | MS_NOSUID | MS_NODEV
    # struct mount_attr: attributes to set, attributes to clear, propagation, user namespace.
    mount_attributes = (ctypes.c_uint64 * 4)(attributes_to_set, 0, 0, 0)
    syscall(
        f"mount_setattr {target}",
        _MOUNT_SETATTR,
        _AT_FDCWD,
        ctypes.c_char_p(target.encode()),
        _AT_RECURSIVE if recursive else 0,
        mount_attributes,
        ctypes.c_size_t(ctypes.sizeof(mount_attributes)),
    )


def pivot_root(new: str, old: str) -> None:
    """Make the mount at `new` the root directory, and move the former root to `old`, below it."""
    syscall("pivot_root", _PIVOT_ROOT, ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def unmount(target: str) -> None:
    """Detach a mount; the kernel removes it when nothing uses it any more."""
    _check_result(f"umount {target}", _libc.umount2, target.encode(), ctypes.c_int(_MNT_DETACH))


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    unused = [ctypes.c_ulong(0)] * 3
    _check_result("prctl", _libc.prctl, ctypes.c_int(option), ctypes.c_ulong(value), *unused)


def set_process_name(name: str) -> None:
    """Give this process a name of at most 15 characters, which `ps` shows."""
    buffer = ctypes.create_string_buffer(name.encode(), 16)
    prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when `parent`, which forked it, ends.

    If `parent` has ended already, no signal would come, so this process kills itself.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def drop_capabilities() -> None:
    """Give up all capabilities of this process."""
    syscall("capset", _CAPSET, _CAPABILITY_HEADER, _NO_CAPABILITIES)


def personality(persona: int) -> int:
    """Set the execution domain of this process and return the former one; 0xFFFFFFFF only asks."""
    return _check_result("personality", _libc.personality, ctypes.c_ulong(persona))


def syscall(label: str, number: int, *arguments: object) -> int:
    """Make a system call by its number.

    Args:
        label: The beginning of the error message.
        number: The number of the call; negative if this machine's is not known.
        *arguments: Integers, bytes and ctypes values; the kernel sees bytes as their address.

    Returns:
        The result of the call.

    Raises:
        OSError: The call fails, or its number is not known.
    """
    if number < 0:
        raise OSError(
            f"{label}: machine {os.uname().machine} is not supported; x86_64 and aarch64 are"
        )
    return _check_result(label, _libc.syscall, ctypes.c_long(number), *arguments)


def _check_result(label: str, function: Callable[..., int], *arguments: object) -> int:
    """Call a function of the C library and return its result.

    Raises:
        OSError: The result is negative; the message begins with `label`.
    """
    result = int(function(*arguments))
    if result < 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, f"{label}: {os.strerror(error_number)}")
    return result


def process_tree(roots: Iterable[int]) -> list[int]:
    """Return the pids of the processes `roots` and of all their descendants that still live."""
    pids: dict[int, None] = {}  # used as an ordered set
    pending = list(roots)
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):  # it has ended
            # The kernel lists the children of each thread separately.
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                pending += map(int, read_proc(f"/proc/{pid}/task/{thread}/children").split())
            pids[pid] = None
    return list(pids)


def count_threads(pid: int) -> int:
    """Return the number of threads of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        # A folder has two links, and one more for each folder in it.
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116
    return 0


def proc_folder(pid: int) -> str:
    """Return the folder of `/proc` that shows a process's memory and open files.

    After the first thread of a process has ended, `/proc/PID` shows neither, although other threads
    live on. Then this is the folder of such a thread, `/proc/PID/task/TID`.
    """
    folder = f"/proc/{pid}"
    with contextlib.suppress(OSError):
        if count_threads(pid) > 1 and _has_no_memory(folder):
            for thread in os.listdir(f"{folder}/task"):  # noqa: PTH208
                thread_folder = f"{folder}/task/{thread}"
                if not _has_no_memory(thread_folder):
                    return thread_folder
    return folder


def _has_no_memory(folder: str) -> bool:
    """Return whether a process or thread has no memory any more.

    Args:
        folder: Its folder of `/proc`.
    """
    return read_proc(f"{folder}/statm").startswith(b"0 ")


def kill_tree(pidfd: int) -> None:
    """Kill the process behind a pidfd and all its descendants; harmless if it has ended."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened_pidfds:
        root = _pid_of(pidfd)
        descendants: list[int] = []
        if root > 0:
            descendants = [pid for pid in process_tree([root]) if pid != root]
        # Pidfds of all processes are opened before any process is killed: when a process ends, its
        # children get another parent, and its pid may be given to another process.
        pidfds_to_kill = [pidfd]
        for pid in descendants:
            with contextlib.suppress(ProcessLookupError):  # it has ended since it was listed
                descendant_pidfd = os.pidfd_open(pid)
                opened_pidfds.callback(os.close, descendant_pidfd)
                pidfds_to_kill.append(descendant_pidfd)
        for pidfd_to_kill in pidfds_to_kill:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                signal.pidfd_send_signal(pidfd_to_kill, signal.SIGKILL)


def _pid_of(pidfd: int) -> int:
    """Return the pid of the process behind a pidfd; -1 if it has ended, 0 if it is not visible."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        name, value = line.split(":", 1)
        if name == "Pid":
            return int(value)
    return -1


@dataclass(frozen=True)
class Machine:
    """The memory that the whole machine uses at a moment.

    It tells whether it is worth measuring a session, which takes longer.
    """

    shared: int  # bytes of shared memory, see `machine_shared_memory`
    kernel: int  # bytes that no process has mapped, see `machine_kernel_memory`


def measure_machine() -> Machine:
    """Measure the memory that the machine uses now."""
    return Machine(shared=machine_shared_memory(), kernel=machine_kernel_memory())


def machine_shared_memory() -> int:
    """Return the machine's bytes of shared mappings, and of files in memory.

    The kernel does not tell them apart; files in memory have their own limits.
    """
    info = _system_info()
    return info.shared * info.unit


def machine_kernel_memory() -> int:
    """Return the machine's bytes that no process has mapped: kernel objects, and used swap."""
    info = _system_info()
    kernel_pages = sum(int(pages) for pages in _KERNEL_PAGES.findall(read_proc("/proc/vmstat")))
    return kernel_pages * _PAGE + (info.total_swap - info.free_swap) * info.unit


class SystemInfo(NamedTuple):
    """Some fields of struct sysinfo; sizes are in units of `unit` bytes."""

    shared: int
    total_swap: int
    free_swap: int
    unit: int


def _system_info() -> SystemInfo:
    buffer = ctypes.create_string_buffer(_SYSINFO.size)
    _check_result("sysinfo", _libc.sysinfo, buffer)
    return SystemInfo(*_SYSINFO.unpack(buffer))


def measure_memory(
    pids: Sequence[int], limit: int, machine_shared: int = 0, shared_growth: int = 0
) -> int:
    """Measure the memory that processes have mapped.

    There are up to three steps, each more exact and more expensive, and the first result that is
    within the limit is returned.

    Args:
        pids: The processes.
        limit: Bytes; a result that is not over it may be an estimate.
        machine_shared: Bytes of shared memory on the whole machine; 0 leaves out shared mappings.
        shared_growth: Bytes by which that rose since the processes began.

    Returns:
        Bytes of private memory and of shared mappings; without the latter if even all shared memory
        of the machine would be within the limit.
    """
    # This counts memory that several processes share, as after a fork, once for each of them.
    private = sum(_estimate_private_memory(pid) for pid in pids)
    if private + machine_shared <= limit:
        return private
    shared = 0
    if machine_shared:
        shared = min(machine_shared, _estimate_shared_mappings(pids, limit, shared_growth))
    if private + shared > limit:
        private = sum(_measure_proportional_memory(pid) for pid in pids)
    return private + shared


def _estimate_private_memory(pid: int) -> int:
    """Return the bytes of a process's resident memory, without files and shared mappings."""
    with contextlib.suppress(OSError, ValueError):  # it has ended
        # Fields of `statm` in pages: total size, resident, resident that is shared, ...
        _, resident, shared, *_ = read_proc(f"{proc_folder(pid)}/statm").split()
        return (int(resident) - int(shared)) * _PAGE
    return 0


def _measure_proportional_memory(pid: int) -> int:
    """Return the bytes of a process's memory by proportional set size, without shared mappings.

    A page that n processes share, as after a fork, counts as an n-th of a page.
    """
    try:
        rollup = read_proc(f"{proc_folder(pid)}/smaps_rollup")
    except PermissionError:  # it hides its memory from this user
        return _estimate_private_memory(pid)
    except OSError:  # it has ended
        return 0
    kib_by_field = dict(_PROPORTIONAL_SIZES.findall(rollup))
    all_kib = int(kib_by_field.get(b"Pss", 0))
    shared_mapping_kib = int(kib_by_field.get(b"Pss_Shmem", 0))
    return (all_kib - shared_mapping_kib) * 1024


def _estimate_shared_mappings(pids: Sequence[int], limit: int, shared_growth: int) -> int:
    """Estimate, never too low, the bytes of the shared memory objects that processes map.

    The kernel keeps an object, as a whole, while any page of it is mapped, and does not tell its
    size. An object is at least as large as the end of its farthest mapping, and cannot be larger
    than an address space (`limit`). Mapped files do not count, as they belong to a file system.

    Args:
        pids: The processes.
        limit: Bytes of address space that each process has.
        shared_growth: Bytes by which the machine's shared memory rose since the processes began.
    """
    size_by_inode: dict[bytes, int] = {}  # least size of each object
    for pid in pids:
        try:
            mappings = read_proc(f"{proc_folder(pid)}/maps")
        except PermissionError:  # it hides its memory from this user
            return shared_growth
        except OSError:  # it has ended
            continue
        for start, end, offset, inode in _pattern_of_shared_mappings().findall(mappings):
            mapping_size = int(end, 16) - int(start, 16)
            end_in_object = int(offset, 16) + mapping_size
            size_by_inode[inode] = max(end_in_object, size_by_inode.get(inode, 0))
    mapped = sum(size_by_inode.values())
    # Parts of objects may be unmapped by now. A single object cannot exceed the limit. Each further
    # object may add an address space, but all of them no more than the machine's shared memory
    # grew.
    most_unmapped = min(shared_growth, (len(size_by_inode) - 1) * limit)
    return max(mapped, most_unmapped)


@functools.cache
def _pattern_of_shared_mappings() -> re.Pattern[bytes]:
    """Return a pattern for the shared mappings without a file in a process's `maps`.

    Such a line is like `7f2a…000-7f2a…000 rw-s 00000000 00:01 1026  /dev/zero (deleted)`: it has
    `s` among the permissions, and the number of an internal device of the kernel, here `00:01`.

    Returns:
        A pattern with the groups start, end and offset, in hexadecimal, and inode of the object.
    """
    # The number of the device differs between machines: it is read off a mapping that is made here.
    fields = rb"^(\w+)-(\w+) ...s (\w+) "
    with mmap.mmap(-1, _PAGE):
        example = re.search(
            fields + rb"(\S+) .*/dev/zero", read_proc("/proc/self/maps"), re.MULTILINE
        )
    device = example[4] if example else b"00:01"
    return re.compile(fields + device + rb" (\d+)", re.MULTILINE)


def measure_kernel_memory(pids: Sequence[int], limit: int, kernel_growth: int) -> int:
    """Estimate, never too low, the bytes that the kernel keeps for processes.

    These are page tables, descriptions of mappings, memory in swap, locks on files, and files that
    epoll descriptors watch.

    Args:
        pids: The processes.
        limit: Bytes; counting stops when there are more.
        kernel_growth: Bytes by which the kernel's memory on the whole machine rose since the
            processes began. It counts as theirs if a process has sent descriptors over a unix
            socket that are not yet received: `/proc` does not show what the kernel keeps for these.

    Returns:
        Bytes; more than `limit`, but not necessarily all, if they are over it.
    """
    bytes_per_mapping = _MAPPING_BYTES + _MAPPING_BYTES_PER_ANCESTOR * len(pids)
    total_bytes = 0  # without locks and watches
    locks_and_watches = 0
    for pid in pids:
        folder = proc_folder(pid)
        # Each mapping is a line of `maps`. Enough of them are counted to be over the limit.
        most_mappings = (limit - total_bytes) // bytes_per_mapping + 1
        total_bytes += _page_tables_and_swap(folder)
        total_bytes += bytes_per_mapping * _count_lines(f"{folder}/maps", most_mappings)
        descriptors = _inspect_descriptors(pid, folder)
        if descriptors.in_flight:
            total_bytes = max(total_bytes, kernel_growth)
        locks_and_watches += descriptors.locks_and_watches
        if locks_and_watches > MAX_LOCKS_AND_WATCHES:
            return limit + 1
        if total_bytes + locks_and_watches * _LOCK_OR_WATCH_BYTES > limit:
            break
    return total_bytes + locks_and_watches * _LOCK_OR_WATCH_BYTES


class DescriptorCounts(NamedTuple):
    """Counts of what the kernel keeps for the descriptors of a process."""

    locks_and_watches: int  # locks on its files, and files that its epoll descriptors watch
    in_flight: bool  # whether it has a socket with descriptors that were sent and not yet received


def _inspect_descriptors(pid: int, folder: str) -> DescriptorCounts:
    """Count what the kernel keeps for the descriptors of a process.

    Args:
        pid: The process.
        folder: Its folder of `/proc`.
    """
    locks_and_watches = 0
    in_flight = False
    counted_files: set[str] = set()  # two descriptors of a file list the same locks
    for descriptor in _descriptors_of(pid):
        with contextlib.suppress(OSError):  # it has been closed
            # Like `/tmp/file`, `socket:[1234]` or `anon_inode:[eventpoll]`.
            link_target = os.readlink(f"{folder}/fd/{descriptor}")  # noqa: PTH115
            description_file = f"{folder}/fdinfo/{descriptor}"
            is_epoll = link_target == "anon_inode:[eventpoll]"
            is_new_file = link_target.startswith("/") and link_target not in counted_files
            if link_target.startswith("socket:"):
                if _DESCRIPTORS_IN_FLIGHT.search(read_proc(description_file)):
                    in_flight = True
            elif is_epoll or is_new_file:
                counted_files.add(link_target)
                # After the lines that every descriptor has, there is a line for each lock or watch.
                most_lines = MAX_LOCKS_AND_WATCHES + _DESCRIPTION_LINES
                lines = _count_lines(description_file, most_lines)
                locks_and_watches += max(0, lines - _DESCRIPTION_LINES)
    return DescriptorCounts(locks_and_watches, in_flight)


def _page_tables_and_swap(folder: str) -> int:
    """Return bytes of a process's page tables and of its memory in swap."""
    with contextlib.suppress(OSError):
        kib = _PAGE_TABLES_AND_SWAP.findall(read_proc(f"{folder}/status"))
        return sum(int(number) for number in kib) * 1024
    return 0


def _count_lines(path: str, most: int) -> int:
    """Count the lines of a file of `/proc`; stop reading soon after `most` lines."""
    lines = 0
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123
        while lines < most:
            chunk = file.read(2**16)
            if not chunk:
                break
            lines += chunk.count(b"\n")
    return lines


def measure_buffers(pids: Sequence[int], limit: int, network: int = 0) -> int:
    """Return how many bytes the buffers of processes' pipes and sockets can take at most.

    Args:
        pids: The processes.
        limit: Bytes; a result that is not over it may be an estimate, in which each descriptor
            counts as a socket.
        network: The pid of a process whose network namespace only these processes use; 0 if there
            is none. The sockets of the namespace are counted, as some have no descriptor, such as
            connections that nobody has accepted. With 0, descriptors of sockets are counted.
    """
    network_sockets = 0
    if network:
        with contextlib.suppress(OSError):  # it has ended
            # Its first line is like `sockets: used 14`.
            network_sockets = int(read_proc(f"/proc/{network}/net/sockstat").split()[2])
    descriptor_count = sum(len(_descriptors_of(pid)) for pid in pids)
    estimate = (network_sockets + descriptor_count) * SOCKET_BUFFER_BYTES
    if estimate <= limit:
        return estimate
    # Several descriptors may share a socket or pipe, which has one device and inode.
    type_by_file: dict[tuple[int, int], int] = {}
    for pid in pids:
        for descriptor in _descriptors_of(pid):
            with contextlib.suppress(OSError):  # it has been closed
                # The type of the file tells a pipe, whose link may be the path of a FIFO.
                status = os.stat(f"{proc_folder(pid)}/fd/{descriptor}")  # noqa: PTH116
                type_by_file[status.st_dev, status.st_ino] = stat.S_IFMT(status.st_mode)
    count_by_type = Counter(type_by_file.values())
    sockets = network_sockets or count_by_type[stat.S_IFSOCK]
    return sockets * SOCKET_BUFFER_BYTES + count_by_type[stat.S_IFIFO] * _PIPE_BUFFER_BYTES


def _descriptors_of(pid: int) -> list[str]:
    """Return the numbers of a process's open descriptors; none if it has ended."""
    with contextlib.suppress(OSError):
        return os.listdir(f"{proc_folder(pid)}/fd")  # noqa: PTH208
    return []


def read_proc(path: str) -> bytes:
    """Read a file of `/proc` as a whole."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.readall()
