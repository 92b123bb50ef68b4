"""What all processes of a boundary use together, seen from outside."""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(roots: Iterable[int]) -> list[int]:
    """The processes `roots` and all their descendants that live."""
    found: list[int] = []
    pending = list(roots)
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())
            found.append(pid)
    return found


def kill_tree(pidfd: int) -> None:
    """Kill the process behind a pidfd and all its descendants; harmless where it has ended."""
    with contextlib.suppress(OSError):
        fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines())
        root = int(fields.get("Pid", -1))
        found = [os.pidfd_open(pid) for pid in tree([root]) if pid != root] if root > 0 else []
        for fd in (pidfd, *found):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        for fd in found:
            os.close(fd)


def memory(pids: Iterable[int], over: int) -> int:
    """Bytes of memory that processes hold together; where a first estimate is at most `over`, the estimate.

    The estimate counts what processes share once for each, which is too much.
    """
    total = sum(_resident(pid) for pid in pids)
    return total if total <= over else sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    """Bytes of memory in which what n processes share counts as an n-th for each of them."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
