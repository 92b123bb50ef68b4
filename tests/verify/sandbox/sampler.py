"""Watches a call while it runs: the most processes, threads and memory there were at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from turngym.tests.verify.sandbox import proc

PERIOD = 0.01  # seconds between two looks
STIR = 2**20  # bytes by which an idle process must have grown to be looked at more closely


@dataclass(frozen=True)
class Peaks:
    """The most that was seen of each while a call ran; sizes in bytes, `listening` on the port that was free."""

    processes: int = 0
    threads: int = 0
    memory: int = 0
    shared: int = 0
    disk: int = 0
    inodes: int = 0
    supervisor: int = 0
    listening: bool = False
    looks: int = 0


class Sampler:
    """Looks every `PERIOD` seconds while it is entered; `peaks` is what was added to the idle processes."""

    def __init__(self, port: int) -> None:
        self._port, self._stop = port, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler")
        self._seen: dict[str, int] = {}
        self._last = 0
        self.peaks = Peaks()

    def __enter__(self) -> Sampler:
        idle = proc.descendants()
        self._idle, self._memory, self._shared = idle, proc.memory(idle), proc.shared_memory()
        self._disk, self._inodes = proc.scratch(idle)
        self._thread.start()
        proc.forget_peak()
        self._resident = proc.resident()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        supervisor = proc.peak() - self._resident
        self._stop.set()
        self._thread.join()
        listening = bool(self._seen.pop("listening", 0))
        self.peaks = Peaks(supervisor=supervisor, listening=listening, **self._seen)

    def _watch(self) -> None:
        while True:
            self._look()
            if self._stop.wait(PERIOD):
                return

    def _look(self) -> None:
        now = proc.glimpse()
        disk, inodes = proc.scratch(now)
        seen = {
            "processes": self._crowd(now, threads=False),
            "threads": self._crowd(now, threads=True),
            "memory": self._lasting(self._grown(now) + proc.unnamed(now)),
            "shared": proc.shared_memory() - self._shared,
            "disk": disk - self._disk,
            "inodes": inodes - self._inodes,
            "listening": int(proc.listens(self._port)),
            "looks": 1 + self._seen.get("looks", 0),
        }
        self._seen = {name: max(value, self._seen.get(name, 0)) for name, value in seen.items()}

    def _lasting(self, size: int) -> int:
        """Return the less of two looks: what is there for a moment only, as while a process starts, is not held."""
        less, self._last = min(size, self._last), size
        return less

    def _grown(self, now: dict[int, proc.Process]) -> int:
        """Return the bytes that processes hold which are new, or have grown since they were idle."""
        moved = {
            pid: process
            for pid, process in now.items()
            if pid not in self._idle or process.resident > self._idle[pid].resident + STIR
        }
        return sum(size - self._memory.get(pid, 0) for pid, size in proc.memory(moved).items())

    def _crowd(self, now: dict[int, proc.Process], threads: bool) -> int:
        """Return the processes or threads of the fullest pid namespace, less the idle ones where it is this one's."""

        def count(processes: dict[int, proc.Process]) -> dict[str, int]:
            crowds: dict[str, int] = {}
            for process in processes.values():
                crowds[process.space] = crowds.get(process.space, 0) + (
                    process.threads if threads else 1
                )
            return crowds

        idle, own_space = count(self._idle), str(Path("/proc/self/ns/pid").readlink())
        own = {
            space: idle.get(space, 0)
            for space in idle
            if space == own_space or space.startswith("depth")
        }
        return max((crowd - own.get(space, 0) for space, crowd in count(now).items()), default=0)
