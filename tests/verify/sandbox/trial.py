"""One program on a bench: it is called and watched, then everything around it is compared with what was before.

What others on the machine may do at the same time counts when it is seen in several runs of the program and never in
between: new files in shared places that stay there, under a name that the program does not spell, and shared memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from turngym.tests.verify.sandbox import host, proc
from turngym.tests.verify.sandbox.corpus import Program, placed
from turngym.tests.verify.sandbox.idle import CALM, Idle
from turngym.tests.verify.sandbox.predicates import FRESH_STATE, MIB, PREDICATES, Seen
from turngym.tests.verify.sandbox.sampler import Sampler
from turngym.tests.verify.sandbox.surroundings import ABSTRACT, Surroundings
from turngym.tools import Status, ToolFailure, ToolResult
from turngym.tools.subprocesses.deadlines import Overdue, call_within

GRACE = 2.0  # seconds after its limit by which a call must have returned
QUIET = 0.3  # seconds after which nothing of a call may exist
AGAIN = 3  # runs after which it is the program that does it
SHARED = "shared memory of the machine above the limit"
LOST = 30.0  # seconds after which a call is given up
ALWAYS = (
    "no_canary",
    "no_net",
    "fs_clean",
    "outside_intact",
    "utf8",
    "obs_cap",
    "sup_rss_cap",
    "tree_mem_cap",
)
WORDS = frozenset(
    {"status", "out_has", "out_eq"}
)  # what a session need not answer as a program of its own does
_BOUND = """
import os, socket
found = []
def tried(name, work):
    try:
        work()
        found.append(name)
    except Exception:
        pass
tried('reads', lambda: open('{{CANARY_FILE}}').read())
tried('lists', lambda: os.listdir('{{OUTSIDE_DIR}}'))
tried('writes', lambda: open('{{OUTSIDE_DIR}}/written', 'w').close())
tried('signals', lambda: os.kill({{PARENT_PID}}, 0))
tried('connects', lambda: socket.create_connection(('127.0.0.1', {{HOST_PORT}}), 1).close())
print('found', found)
"""
_WORK = """
import os, time
block = bytearray(b'x') * (48 << 20)
with open('block', 'wb') as file:
    file.write(bytes(8 << 20))
for number in range(40):
    open('file-%d' % number, 'w').close()
child = os.fork()
time.sleep(0.7)
if child:
    os.waitpid(child, 0)
"""
WORK = {
    "memory": 40 << 20,
    "disk": 8 << 20,
    "inodes": 41,
    "processes": 2,
    "threads": 2,
}  # what it takes at least


class PythonRunner(Protocol):
    """What is tried: a Python tool."""

    def call(self, arguments: dict[str, str]) -> ToolResult:
        """Run a program."""

    def reset(self) -> None:
        """End the session."""

    def close(self) -> None:
        """End everything."""


class Bench:
    """A tool in a world, idle between programs.

    Args:
        tool: What is tried.
        world: Where.
        timeout: Seconds that the tool gives a call.
        memory_mb: MiB that the tool gives a call.
        session: Whether programs share a session that is reset behind each.
    """

    def __init__(
        self,
        tool: PythonRunner,
        world: Surroundings,
        timeout: float,
        memory_mb: int,
        session: bool = False,
    ) -> None:
        self.tool, self.world, self.timeout, self.memory_mb = tool, world, timeout, memory_mb
        self.session = session
        self.idle = Idle()
        self.blind: frozenset[str] = frozenset()
        self._modules: dict[str, bool] = {}
        self.idle.warm(self.call, world)
        self.fresh = self.call(FRESH_STATE).text
        self.idle.settle()

    def call(self, code: str) -> ToolResult:
        """Call the tool, from a thread of its own; what it raises is raised, `Overdue` after `LOST` seconds."""
        return call_within(self.timeout + LOST, lambda: self._call(code), "the tool")

    def unbound(self) -> str:
        """Return what a program that does no harm reaches of this machine; empty where a boundary stands."""
        seen = self.call(placed(_BOUND, self.world.values))
        self.world.heard()
        return (
            ""
            if seen == ToolResult(Status.OK, "found []\n")
            else f"{seen.status}: {seen.text.strip()[:200]}"
        )

    def calibrate(self) -> None:
        """Find out by a program that takes a known share of everything what cannot be measured on this machine."""
        with Sampler(int(self.world.values["FREE_PORT"])) as sampler:
            self.call(_WORK)
        self.blind = frozenset(
            name for name, least in WORK.items() if getattr(sampler.peaks, name) < least
        )
        self.idle.settle()

    def try_out(self, program: Program) -> list[str]:
        """Return what is wrong with how the tool held `program`; empty where every predicate holds."""
        if program.requires and not self._has(program.requires):
            return [f"needs {program.requires}, which the tool's interpreter lacks"]
        again: list[set[str]] = []
        while len(again) < AGAIN:
            began = time.monotonic()
            faults, doubts = self._attempt(program)
            if faults or not doubts or self._others_at_work(time.monotonic() - began):
                return faults
            again.append(doubts)
        stayed = all(any(doubt == SHARED or Path(doubt).exists() for doubt in one) for one in again)
        return sorted(again[-1])[:3] if stayed else []

    def _others_at_work(self, seconds: float) -> bool:
        """Return whether files appear in shared places within `seconds` in which nothing runs here."""
        before = self.world.busy_places()
        time.sleep(seconds)
        return bool(self.world.busy_places() - before)

    def _has(self, module: str) -> bool:
        if module not in self._modules:
            self._modules[module] = self.call(f"import {module}").status is Status.OK
            self.idle.settle()
        return self._modules[module]

    def _call(self, code: str) -> ToolResult:
        try:
            return self.tool.call({"code": code})
        finally:
            if self.session:
                self.tool.reset()

    def _attempt(self, program: Program) -> tuple[list[str], set[str]]:
        """Return the faults of one run, and what somebody else may have caused: new paths, and `SHARED`."""
        world = self.world
        code = placed(program.code.replace(ABSTRACT, world.abstract), world.values)
        before, outside, busy = host.state(), world.outside_files(), world.busy_places()
        world.heard()
        with Sampler(int(world.values["FREE_PORT"])) as sampler:
            began = time.monotonic()
            outcome = self._outcome(lambda: self.call(code))
            seconds = time.monotonic() - began
        time.sleep(QUIET)
        after = proc.descendants()
        if isinstance(outcome, str):
            self._reap(after)
            return [outcome], set()
        zombies = sum(process.zombie for process in after.values())
        faults = self._times(seconds) + self.idle.more_processes(after) + self._next_call()
        settled = self.idle.settle()
        faults += self.idle.more_processes(settled) + self._kept(before)
        appeared, busy_now = _differences(outside, world.outside_files()), world.busy_places()
        named = [path for path in sorted(busy ^ busy_now) if Path(path).name in code]
        seen = Seen(
            program.id,
            code,
            outcome,
            sampler.peaks,
            self.memory_mb * MIB,
            world,
            world.heard(),
            appeared,
            appeared + named,
            zombies,
            self.fresh,
            self.call,
            self.blind,
        )
        faults += self._broken(program, seen)
        self._reap(settled)
        crowded = seen.peaks.shared > seen.memory * 11 // 10
        return list(dict.fromkeys(faults)), busy_now - busy - {*named} | (
            {SHARED} if crowded else set()
        )

    def _outcome(self, work: Callable[[], ToolResult]) -> ToolResult | str:
        try:
            return work()
        except (Overdue, ToolFailure) as error:
            return f"{type(error).__name__}: {error}"
        except Exception as error:  # whatever it is, a program must not be able to raise it here
            return f"raised {type(error).__name__}: {error}"

    def _times(self, seconds: float) -> list[str]:
        late = seconds > self.timeout + GRACE
        return [f"returned after {seconds:.1f} s"] if late else []

    def _next_call(self) -> list[str]:
        answer = self._outcome(lambda: self.call(CALM))
        return (
            [] if answer == ToolResult(Status.OK, "42\n") else [f"the next call answers {answer}"]
        )

    def _kept(self, before: dict[str, object]) -> list[str]:
        faults = [f"{name} of this process changed" for name in host.changed(before, host.state())]
        return faults + self.idle.more_descriptors() + self.idle.more_files(self.world)

    def _broken(self, program: Program, seen: Seen) -> list[str]:
        asked = {promise: None for promise in program.promises if promise.name != "U"}
        faults = [PREDICATES[name](seen, "") for name in ALWAYS]
        for promise in asked:
            if not (self.session and promise.name in WORDS):
                faults.append(PREDICATES[promise.name](seen, promise.value))
        return list(filter(None, faults))

    def _reap(self, processes: dict[int, proc.Process]) -> None:
        """Reap what was left to this process, and take what cannot be undone as idle, so that it counts once."""
        proc.reap(processes)
        self.idle.settle()
        self.idle.widen(self.world)


def _differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )
