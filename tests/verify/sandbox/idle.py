"""What there is of a tool while it waits (servers, spare processes, descriptors, files), and what is more than that."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from turngym.tests.verify.sandbox import host, proc
from turngym.tests.verify.sandbox.surroundings import Surroundings

SETTLE = 3.0  # seconds that the tool may take to be idle again, with its spare processes ready
STEADY = 0.4  # seconds for which nothing changes while the tool becomes warm
CALM = "print(6*7)"
WARM = (
    CALM,
    f"import numpy\n{CALM}",
    f"import sympy\n{CALM}",
    CALM,
)  # programs for which it may keep more ready


@dataclass
class Idle:
    """The most that was seen of each when nothing ran; `shape` is how many processes each pid namespace has."""

    shape: list[int] = field(default_factory=list)
    descriptors: Counter[str] = field(default_factory=Counter)
    files: int = 0

    def warm(self, call: Callable[[str], object], world: Surroundings) -> None:
        """Make harmless calls until the tool keeps ready what it ever keeps, and take note of it."""
        for code in WARM:
            call(code)
            proc.steady(STEADY, SETTLE)
            self.widen(world)

    def widen(self, world: Surroundings) -> None:
        """Take what is there now into account."""
        now = proc.shape(proc.descendants())
        size = max(len(now), len(self.shape))
        padded = [shape + [0] * (size - len(shape)) for shape in (now, self.shape)]
        self.shape = [max(pair) for pair in zip(*padded, strict=True)]
        self.descriptors |= host.descriptors()
        self.files = max(self.files, len(world.scratch_files()))

    def settle(self) -> dict[int, proc.Process]:
        """Wait until the processes below this one are as few as they were idle and stay the same; return them.

        On a busy machine a process that has ended waits for its parent's turn: only a zombie that stays is one left.
        """
        began, last = time.monotonic(), proc.descendants()
        while time.monotonic() < began + SETTLE:
            time.sleep(0.05)
            now = proc.descendants()
            ended = any(process.zombie for process in now.values())
            if (
                not ended
                and now.keys() == last.keys()
                and proc.within_shape(proc.shape(now), self.shape)
            ):
                return now
            last = now
        return last

    def more_processes(self, processes: dict[int, proc.Process]) -> list[str]:
        """Say which of `processes` are zombies, or more than idle."""
        zombies = sum(process.zombie for process in processes.values())
        living = proc.shape(
            {process.pid: process for process in processes.values() if not process.zombie}
        )
        faults = [f"{zombies} zombies"] if zombies else []
        if not proc.within_shape(living, self.shape):
            faults.append(f"processes are left: {living} in each namespace, idle {self.shape}")
        return faults

    def more_descriptors(self) -> list[str]:
        """Say which descriptors of this process are open that were not."""
        more = host.descriptors() - self.descriptors
        return [f"descriptors of this process: {dict(more)} more than idle"] if more else []

    def more_files(self, world: Surroundings) -> list[str]:
        """Say whether there are more temporary files."""
        files = world.scratch_files()
        if len(files) <= self.files:
            return []
        return [f"temporary files are left: {len(files)}, idle {self.files}, such as {files[-1]}"]
