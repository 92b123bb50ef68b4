"""The processes below one process, read from /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process: `started` (clock ticks since the machine did) tells it from a later one with its number."""

    pid: int
    started: int
    zombie: bool
    command: str


def family(root: int) -> list[Process]:
    """Return all processes below `root`."""
    found, parents = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (one := read(int(folder.name))) is not None:
            found[one[1].pid] = one[1]
            parents[one[1].pid] = one[0]
    return [process for pid, process in sorted(found.items()) if _below(pid, root, parents)]


def lives(process: Process) -> bool:
    """Return whether the process has not ended."""
    now = read(process.pid)
    return now is not None and now[1].started == process.started and not now[1].zombie


def read(pid: int) -> tuple[int, Process] | None:
    """Return the parent of a process and the process; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/proc", str(pid))
        # The name, in brackets, may hold anything; what follows it is state, parent, … and as 20th the start.
        state, parent, *rest = (
            folder.joinpath("stat").read_text(errors="replace").rpartition(")")[2].split()
        )
        command = (
            folder.joinpath("cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
        return int(parent), Process(pid, int(rest[17]), state == "Z", command)
    return None


def _below(pid: int, root: int, parents: dict[int, int]) -> bool:
    seen = {pid}
    while (pid := parents.get(pid, 0)) not in seen:
        if pid == root:
            return True
        seen.add(pid)
    return False
