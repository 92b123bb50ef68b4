"""A fuzz of the boundary: random programs of `grammar`, several sessions at once, and what they leave behind.

The seed of a program is its number; it decides how the program is called, too. A call that is late while all processors
are busy counts where it is late again alone. What a batch leaves is traced to one of its programs by halves.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from turngym.tests.verify.rows import Row, Tally
from turngym.tests.verify.sandbox import host, proc
from turngym.tests.verify.sandbox.corpus import placed
from turngym.tests.verify.sandbox.grammar import PRELUDE, draw
from turngym.tests.verify.sandbox.idle import CALM
from turngym.tests.verify.sandbox.predicates import MIB
from turngym.tests.verify.sandbox.surroundings import Surroundings
from turngym.tests.verify.sandbox.trial import GRACE, LOST, QUIET, Bench
from turngym.tools import Status, ToolFailure, ToolResult
from turngym.tools.python.server.supervisor import IDLE_CHECK_INTERVAL
from turngym.tools.python.tool import PythonTool
from turngym.tools.subprocesses.deadlines import Overdue, call_within

TIMEOUT = 0.5  # seconds that a random program gets
PATIENCE = 20.0  # seconds that a harmless one gets behind it, on a busy machine
MEMORY = 128  # MiB
SESSIONS = 8  # at once
BATCH = 200  # programs after which is looked what they left
TRACED = 2  # batches whose faults are traced to a program
ALONE = 3  # times that a late program is run again
SLACK = 64 * MIB  # by which the memory of warm processes may differ
PAUSE = 1.0  # seconds for which a session rests between two calls
LOOK = (
    IDLE_CHECK_INTERVAL + 0.15
)  # seconds between two looks at the memory of each session, longer than between its supervisor's
WAYS = ("fresh", "session", "pause", "fork")

Make = Callable[[float, int, bool], PythonTool]  # seconds, MiB, whether the tool keeps a session


@dataclass
class Counts:
    """What is counted of the programs."""

    on_time: Tally = field(
        default_factory=lambda: Tally(f"random programs end by {TIMEOUT:g} s + {GRACE:g} s")
    )
    next: Tally = field(default_factory=lambda: Tally("the next call is right"))
    left: Tally = field(
        default_factory=lambda: Tally("batches leave nothing, and nothing outside has changed")
    )
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)


def fuzz_rows(make: Make, seed: int, count: int, program: int | None = None) -> Iterator[Row]:
    """Yield the rows of `count` random programs, or of the one whose number is `program`, whose text a note shows."""
    numbers = range(seed * 10**6, seed * 10**6 + count) if program is None else [program] * ALONE
    with proc.adopting(), Surroundings(seed) as world, _victim() as victim:
        fuzz = Fuzz(make, world, victim)
        if reach := fuzz.unbound:
            yield Row(
                f"random programs are not run, for the tool has no boundary ({reach})", 0, count
            )
            return
        for start in range(0, len(numbers), BATCH):
            fuzz.count(numbers[start : start + BATCH])
        counts = fuzz.counts
        times = sorted(counts.seconds)
        kinds = ", ".join(f"{many} {kind}" for kind, many in sorted(counts.statuses.items()))
        late = f"p99 {times[len(times) * 99 // 100]:.2f} s, at most {times[-1]:.2f} s"
        bad = [
            int(fault.split(":")[0])
            for tally in (counts.on_time, counts.next, counts.left)
            for fault in tally.faults
        ]
        shown = [program] if program is not None else bad[:1]
        yield counts.on_time.row(f"{kinds}; {late}")
        yield counts.next.row()
        yield counts.left.row(
            "".join(
                f"--program {number}:\n{draw(number).removeprefix(PRELUDE)}" for number in shown
            )
        )


class Fuzz:
    """Runs random programs in a world; `counts` is what came of it."""

    def __init__(self, make: Make, world: Surroundings, victim: int) -> None:
        self._make, self._victim = make, victim
        self._world, self._values = (
            world,
            {
                **world.values,
                "VICTIM_PID": str(victim),
                "ABSTRACT": world.abstract[::-1],
                "HOST_ABSTRACT": world.abstract,
            },
        )
        self.counts, self._traced = Counts(), 0
        bench = Bench(make(PATIENCE, MEMORY, False), world, PATIENCE, MEMORY)
        self.unbound, self._idle = bench.unbound(), bench.idle
        self._warm = sum(proc.memory(self._idle.settle()).values())
        self._held = 0
        proc.share_arena()
        self._before = self._outside()

    def count(self, numbers: Sequence[int]) -> None:
        """Run a batch and count it."""
        calls, faults, late = self._run(numbers)
        for number in late:
            if any(late for _ in range(ALONE) for late in self._run([number])[2]):
                calls[number] = "late, and late again alone"
        for number in numbers:
            fault = calls.get(number, "")
            wrong = fault.startswith("the next call")
            self.counts.on_time.add(str(number), "" if wrong else fault)
            self.counts.next.add(str(number), fault if wrong else "")
        suspects = [number for number in numbers if number in calls] or list(numbers)
        if faults and self._traced < TRACED:
            self._traced += 1
            suspects = self._traced_to(suspects, _kinds(faults))
        self.counts.left.add(
            str(suspects[0]), f"or up to {suspects[-1]}: {'; '.join(faults)}" if faults else ""
        )

    def _traced_to(self, numbers: list[int], kinds: set[str]) -> list[int]:
        """Halve the programs of a batch as long as a half leaves something of these kinds, too."""
        while len(numbers) > 1:
            halves = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
            half = next((half for half in halves if kinds & _kinds(self._run(half)[1])), None)
            if half is None:
                break
            numbers = half
        return numbers

    def _run(self, numbers: Sequence[int]) -> tuple[dict[int, str], list[str], list[int]]:
        """Run programs; return what is wrong with calls, what is left of all, and which calls were late."""
        calls, late = {}, []
        with _Memory() as memory, ThreadPoolExecutor(SESSIONS) as threads:
            for number, faults in zip(numbers, threads.map(self._one, numbers), strict=True):
                if faults:
                    calls[number] = faults[0]
                if faults == ["late"]:
                    late.append(number)
        for number in set(late):
            del calls[number]
        much = memory.lasting > 2 * MEMORY * MIB * 11 // 10 + SLACK  # a session and its fork
        faults = [f"{memory.lasting / MIB:.0f} MiB of memory of one session"] if much else []
        return calls, faults + self._remains(), late

    def _one(self, number: int) -> list[str]:
        code, way = placed(draw(number), self._values), WAYS[number % len(WAYS)]
        tool = self._make(TIMEOUT, MEMORY, way != "fresh")
        try:
            return list(filter(None, self._steps(tool, code, way)))
        except (Overdue, ToolFailure) as error:
            return [f"{type(error).__name__}: {error}"]
        except Exception as error:  # whatever it is, a program must not be able to raise it here
            return [f"raised {type(error).__name__}: {error}"]

    def _steps(self, tool: PythonTool, code: str, way: str) -> Iterator[str]:
        result, seconds = _clocked(lambda: tool.call({"code": code}))
        self.counts.statuses[str(result.status)] += 1
        self.counts.seconds.append(seconds)
        if self._world.told(result.text):
            yield "it prints a secret"
        times = [seconds]
        if way == "pause":
            time.sleep(PAUSE)
        if way in ("session", "pause"):
            times.append(_clocked(lambda: tool.call({"code": CALM}))[1])
        elif way == "fork":
            times += self._forked(tool)
        times.append(TIMEOUT + _clocked(tool.reset)[1])
        if max(times) > TIMEOUT + GRACE:
            yield "late"
        tool.timeout = PATIENCE
        answer, _ = _clocked(lambda: tool.call({"code": CALM}))
        if answer != ToolResult(Status.OK, "42\n"):
            yield f"the next call answers {answer}"
        tool.close()

    def _forked(self, tool: PythonTool) -> list[float]:
        """Fork the session that a program has left, and call the twin; return what each took."""
        began = time.monotonic()
        try:
            twin = call_within(LOST, tool.fork, "the fork")
        except ToolFailure:  # it cannot be forked
            return []
        forked = time.monotonic() - began
        _, seconds = _clocked(lambda: twin.call({"code": CALM}))
        return [forked, seconds, TIMEOUT + _clocked(twin.close)[1]]

    def _remains(self) -> list[str]:
        """Say what is other than before, and take it as given from now on."""
        time.sleep(QUIET)
        processes, idle = self._idle.settle(), self._idle
        faults = (
            idle.more_processes(processes) + idle.more_descriptors() + idle.more_files(self._world)
        )
        faults += [f"reached {name}" for name in self._world.heard()]
        now = self._outside()
        faults += [
            f"{name} changed: {_difference(self._before[name], now[name])}"
            for name in host.changed(self._before, now)
        ]
        grown = sum(proc.memory(processes).values()) - self._warm
        self._held = self._held or proc.held()  # behind the first batch
        grown = max(grown, proc.held() - self._held)
        if grown > SLACK:
            faults.append(f"{grown / MIB:.0f} MiB of memory are not given back")
        proc.reap(processes)
        idle.widen(self._world)
        self._before = now
        return faults

    def _outside(self) -> dict[str, object]:
        """Return what no program may change."""
        children = {
            pid for pid, process in proc.descendants().items() if process.parent == os.getpid()
        }
        names = Path("/proc/net/unix").read_text().split()
        return {
            **host.state(),
            "the folder outside": self._world.outside_files(),
            "a process outside": _state_of(self._victim),
            "the servers": children - {self._victim},
            "System V objects": [
                Path(f"/proc/sysvipc/{kind}").read_text().split("\n")[1:]
                for kind in ("shm", "sem", "msg")
            ],
            "sockets": sum(self._values["ABSTRACT"] in name for name in names),
            "shared memory": Path("/dev/shm", self._values["ABSTRACT"]).exists(),
            "mounts": Path("/proc/self/mounts").read_text(),
        }


class _Memory:
    """Looks at the memory of each process namespace below this one; `lasting` is the most that two looks in a row saw.

    Without such namespaces nothing is seen: the predicates of the hostile programs look at memory there.
    """

    def __init__(self) -> None:
        self.lasting, self._stop = 0, threading.Event()
        self._last: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        own = str(Path("/proc/self/ns/pid").readlink())
        while not self._stop.wait(LOOK):
            processes = {
                pid: process for pid, process in proc.glimpse().items() if process.space != own
            }
            now: Counter[str] = Counter()
            for pid, size in proc.memory(processes).items():
                now[processes[pid].space] += size
            self.lasting = max(
                [self.lasting, *(min(size, self._last[space]) for space, size in now.items())]
            )
            self._last = now


def _clocked(work: Callable[[], ToolResult | None]) -> tuple[ToolResult, float]:
    """Return what `work` returns and the seconds that it took; raise what it raises, `Overdue` where it never ends."""
    began = time.monotonic()
    result = call_within(PATIENCE + LOST, work, "the tool")
    return result or ToolResult(Status.OK, ""), time.monotonic() - began


@contextlib.contextmanager
def _victim() -> Iterator[int]:
    """Run a process that no program may reach; yield its number."""
    process = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(1000)"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _state_of(pid: int) -> tuple[object, ...]:
    """Return what others could change of a process that sleeps."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        limits = [
            Path(f"/proc/{pid}/{name}").read_text()
            for name in ("limits", "oom_score_adj", "timerslack_ns")
        ]
        return (
            fields[0],
            fields[2:4],
            fields[15:17],
            fields[37:39],
            os.sched_getaffinity(pid),
            limits,
        )
    except OSError as error:
        return (str(error),)


def _kinds(faults: Sequence[str]) -> set[str]:
    return {fault.split(":")[0].strip("0123456789 ") for fault in faults}


def _difference(before: object, now: object) -> str:
    """Return the first difference of two states, shortened."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [
            str(name) for name in before.keys() | now.keys() if before.get(name) != now.get(name)
        ]
        return ", ".join(sorted(names)[:3])
    return f"{str(before)[-150:]} to {str(now)[-150:]}"
