"""The processes below this one, as the kernel shows them in /proc: how many there are and what memory they hold.

Kernel documentation: filesystems/proc (status, smaps_rollup, ns), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from turngym.tools.python.server import guard

KIB = 1024
_PR_SET_CHILD_SUBREAPER, _M_ARENA_MAX = 36, -8
_KCMP, _KCMP_VM = {"x86_64": 312, "aarch64": 272}, 1
_libc = ctypes.CDLL(None)
_FILES = 8  # processes of which open files are looked through in one census; a bomb has too many


@dataclass(frozen=True)
class Process:
    """A process; `space` is its pid namespace, `resident` its own memory in bytes, shared pages not counted."""

    pid: int
    parent: int
    state: str
    threads: int
    resident: int
    space: str

    @property
    def zombie(self) -> bool:
        """Return whether it has ended and was not reaped."""
        return self.state in "ZX"


def descendants(root: int | None = None) -> dict[int, Process]:
    """Return the processes below `root` (this process, where None is given), zombies among them."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - a path for each would cost more than the rest
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - the same
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(pid))
    found: dict[int, Process] = {}
    pending = [root or os.getpid()]
    while pending:
        read = {pid: process for pid in children.pop(pending.pop(), ()) if (process := _read(pid))}
        found |= read
        pending += read
    return found


def glimpse() -> dict[int, Process]:
    """Return the processes below this one, as `descendants` does, but faster: one that just ends may hide another."""
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():  # a kernel option
        return descendants()
    found: dict[int, Process] = {}
    pending = [os.getpid()]
    while pending:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pending.pop()}/task").iterdir():
                pids = map(int, (task / "children").read_bytes().split())
                read = {pid: process for pid in pids if (process := _read(pid))}
                found |= read
                pending += read
    return found


def shape(processes: Mapping[int, Process]) -> list[int]:
    """Return how many processes each pid namespace has, largest first."""
    return sorted(Counter(process.space for process in processes.values()).values(), reverse=True)


def within_shape(now: list[int], idle: list[int]) -> bool:
    """Return whether there are no more namespaces than in `idle`, and in none more processes."""
    return len(now) <= len(idle) and all(few <= many for few, many in zip(now, idle, strict=False))


def steady(quiet: float, patience: float) -> None:
    """Wait until the processes below this one have stayed the same for `quiet` seconds, at most `patience` seconds."""
    began = since = time.monotonic()
    last = descendants().keys()
    while time.monotonic() < min(since + quiet, began + patience):
        time.sleep(0.05)
        if (now := descendants().keys()) != last:
            last, since = now, time.monotonic()


def memory(processes: Mapping[int, Process]) -> dict[int, int]:
    """Return the bytes that each process holds; of pages that some share, each holds its part.

    Between vfork and exec a child shows the memory of its parent, and holds none.
    """
    return {
        pid: 0 if same_memory(pid, process.parent) else _proportional(process)
        for pid, process in processes.items()
    }


def same_memory(one: int, other: int) -> bool:
    """Return whether two processes have one address space; False where the kernel does not say (kcmp(2))."""
    number = _KCMP.get(os.uname().machine)
    return number is not None and _libc.syscall(number, one, other, _KCMP_VM, 0, 0) == 0


def _proportional(process: Process) -> int:
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except PermissionError:
        return process.resident
    except OSError:  # it has just ended
        return 0
    return next(
        (int(line.split()[1]) * KIB for line in text.splitlines() if line.startswith("Pss:")), 0
    )


def unnamed(processes: Mapping[int, Process]) -> int:
    """Return the bytes of files in memory that have no name (memfd) and are open in the last of `processes`."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in sorted(processes)[-_FILES:]:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                if str(entry.readlink()).startswith("/memfd:"):
                    status = entry.stat()
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def scratch(processes: Mapping[int, Process]) -> tuple[int, int]:
    """Return the bytes and the inodes in file systems in memory of the one namespace that has most of them.

    Those that this process sees, too, are not counted.
    """
    ours, most = {device for device, _ in _tmpfs("self")}, (0, 0)
    seen: set[Path] = set()
    for pid in sorted(processes, reverse=True):
        with contextlib.suppress(OSError):
            space = Path(f"/proc/{pid}/ns/mnt").readlink()
            if space not in seen:
                seen.add(space)
                most = max(most, _used(pid, dict(_tmpfs(str(pid))), ours))
    return most


def _used(pid: int, mounts: Mapping[str, str], ours: set[str]) -> tuple[int, int]:
    taken, inodes = 0, 0
    for device, place in mounts.items():
        if device not in ours:
            with contextlib.suppress(OSError):
                room = os.statvfs(f"/proc/{pid}/root{place}")
                taken += (room.f_blocks - room.f_bfree) * room.f_frsize
                inodes += room.f_files - room.f_ffree
    return taken, inodes


def _tmpfs(pid: str) -> Iterator[tuple[str, str]]:
    """Yield the device and the place of each file system in memory that a process sees."""
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("tmpfs "):
            device, place = mount.split()[2], mount.split()[4]
            yield device, place.encode().decode("unicode_escape")


def shared_memory() -> int:
    """Return the bytes of all shared memory of the machine, which no process need have mapped."""
    line = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Shmem:")
    )
    return int(line.split()[1]) * KIB


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def share_arena() -> None:
    """Have all threads allocate from one arena: an arena of a thread's own keeps in pieces what the thread let go."""
    _libc.mallopt(_M_ARENA_MAX, 1)


def held() -> int:
    """Return the resident bytes of this process behind a collection, without what its allocator can give back."""
    gc.collect()
    _libc.malloc_trim(0)
    return resident()


def forget_peak() -> None:
    """Make the peak of this process its memory of now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the most resident bytes that this process had since `forget_peak`."""
    fields = _fields(Path("/proc/self/status").read_text())
    return int(fields["VmHWM"].split()[0]) * KIB


def listens(port: int) -> bool:
    """Return whether somebody in this network namespace listens on a TCP port."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
                local, state = line.split()[1], line.split()[3]
                if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False


def reap(processes: Mapping[int, Process]) -> None:
    """Reap the zombies among `processes` that were left to this process."""
    for process in processes.values():
        if process.zombie and process.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Make orphans of descendants children of this process, as they are where it is process 1: none gets away."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _read(pid: int) -> Process | None:
    try:
        fields = _fields(Path(f"/proc/{pid}/status").read_text())
    except (OSError, ValueError):
        return None
    sizes = [int(fields.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem")]
    state, threads = fields["State"][0], int(fields["Threads"])
    if state == "Z" and fields["Name"] == guard.GUARD_NAME:
        # A guard ends behind its server, of which it is no part, and process 1 reaps it. Here this process stands for that,
        # as it adopts the orphans of the processes that a row started.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return None
    return Process(pid, int(fields["PPid"]), state, threads, sum(sizes) * KIB, _space(pid, fields))


def _space(pid: int, fields: Mapping[str, str]) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:  # a zombie, or not ours to look at; then at least how deep it is nested
        return f"depth {len(fields.get('NSpid', '').split())}"


def _fields(text: str) -> dict[str, str]:
    return {
        name: value.strip()
        for name, _, value in (line.partition(":") for line in text.splitlines())
    }
