"""Many calls from many threads at once, each with a status and a text that are known beforehand."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gymnasium import make as make_env

from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.sandbox import host, proc
from turngym.tests.verify.sandbox.idle import SETTLE, Idle
from turngym.tests.verify.sandbox.surroundings import Surroundings
from turngym.tests.verify.sandbox.trial import QUIET, PythonRunner
from turngym.tools import Status, ToolResult
from turngym.tools.subprocesses.deadlines import call_within

PATIENCE = 60.0  # seconds that a call may take which is not meant to run out of time
SHORT = 0.3  # seconds of those that are
STUCK = 120.0  # seconds after which one call is given up
FILES = 8  # files that this process has open at most for an environment with a session
LONELY = 30.0  # seconds that a process may take which makes one call and ends
_CALLER = """
import os
from turngym.tools.python.tool import PythonTool
tool = PythonTool(persistent={session})
print(tool.call({{"code": "import os; open('left', 'w').write('x'); print(6*7)"}}).text, end="", flush=True)
{end}
"""
ENDS = {
    "leaves without closing": "",
    "closes": "tool.close()",
    "raises": "raise SystemExit(3)",
    "calls os._exit": "os._exit(0)",
    "is killed": "os.kill(os.getpid(), 9)",
}


@dataclass(frozen=True)
class Call:
    """A program, the seconds it gets, and every way in which its call may right end."""

    code: str
    timeout: float
    statuses: tuple[Status, ...]
    text: Callable[[str], bool]


def cases(seed: int, count: int) -> list[Call]:
    """Draw `count` programs: most run to their end, a tenth raises, some leave, die, flood, or never end."""
    rng = random.Random(f"load {seed}")
    return [
        _case(rng.choices(range(len(_MIX)), [weight for weight, _ in _MIX])[0], i)
        for i in range(count)
    ]


def _says(text: str) -> Callable[[str], bool]:
    return lambda seen: seen == text


def _begins(start: str) -> Callable[[str], bool]:
    return lambda seen: seen.startswith(start)


def _ends(end: str) -> Callable[[str], bool]:
    return lambda seen: seen.rstrip().endswith(end)


def _case(kind: int, i: int) -> Call:
    return _MIX[kind][1](i)


_MIX: tuple[tuple[int, Callable[[int], Call]], ...] = (
    (60, lambda i: Call(f"print({i} * {i})", PATIENCE, (Status.OK,), _says(f"{i * i}\n"))),
    (
        8,
        lambda i: Call(
            f"open('f', 'x').write('{i}'); print(open('f').read())",
            PATIENCE,
            (Status.OK,),
            _says(f"{i}\n"),
        ),
    ),
    (
        10,
        lambda i: Call(
            f"print({i}); raise ValueError('no {i}')",
            PATIENCE,
            (Status.ERROR,),
            _ends(f"ValueError: no {i}"),
        ),
    ),
    (
        5,
        lambda i: Call(
            f"print({i}); import sys; sys.exit(0)", PATIENCE, (Status.OK,), _says(f"{i}\n")
        ),
    ),
    (
        5,
        lambda i: Call(
            f"print({i}, flush=True); import sys; sys.exit(3)",
            PATIENCE,
            (Status.ERROR,),
            _begins(f"{i}\n"),
        ),
    ),
    (
        3,
        lambda i: Call(
            f"x = {i}\nprint(x", PATIENCE, (Status.ERROR,), lambda seen: "SyntaxError" in seen
        ),
    ),
    (3, lambda i: Call(f"'\ud800{i}'", PATIENCE, (Status.REJECTED,), bool)),
    (
        3,
        lambda i: Call(
            f"import os\nprint({i}, flush=True)\nos.kill(os.getpid(), 9)",
            PATIENCE,
            (Status.KILLED,),
            _begins(f"{i}\n"),
        ),
    ),
    (
        2,
        lambda i: Call(
            f"print({i}, flush=True)\nwhile True: pass", SHORT, (Status.TIMEOUT,), _load_lost(i)
        ),
    ),
    (
        1,
        lambda i: Call(
            f"print({i}, flush=True)\nx = bytearray(10**10)",
            PATIENCE,
            (Status.MEMORY, Status.ERROR),
            _begins(f"{i}\n"),
        ),
    ),
)


def _load_lost(i: int) -> Callable[[str], bool]:
    """Accept a timeout whose program had printed, or had not yet come to it on a busy machine; never another's text."""
    return lambda seen: seen.startswith((f"{i}\n", "[")) or not seen


def load_rows(
    make: Callable[[float], PythonRunner], seed: int, count: int, threads: int
) -> Iterator[Row]:
    """Yield the rows of `count` calls by `threads` threads; `make` returns a tool of so many seconds a call."""
    with proc.adopting(), Surroundings(seed) as world:
        first_tool, idle = make(PATIENCE), Idle()
        idle.warm(lambda code: first_tool.call({"code": code}), world)
        callers = _Callers(cases(seed, count), make)
        began = time.monotonic()
        callers.run(threads)
        seconds = time.monotonic() - began
        first_tool.close()
        note = first(callers.wrong, 8) or f"{count / seconds:.0f} calls/s; {callers.spent()}"
        yield Row(
            f"calls by {threads} threads at once end as they should",
            count - len(callers.wrong),
            count,
            note,
        )
        time.sleep(QUIET)
        yield _left_row(idle, world)
    yield ends_row(seed)


def open_row(count: int, level: str, seed: int) -> Row:
    """Count the environments with a Python tool, all open at once, whose sessions are their own; closed, none is left.

    Raises:
        ValueError: this process may not open as many files as that takes.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES * count:
        raise ValueError(
            f"{count} environments take {FILES * count} open files, and ulimit -n is {soft}: raise it"
        )
    with proc.adopting(), Surroundings(seed) as world:
        idle, own = Idle(), make_env("turngym/MathPython-v0", level=level)
        own.reset(seed=seed)
        idle.warm(lambda code: own.step(_spoken(code)), world)
        own.close()
        before = _taken()
        envs = [make_env("turngym/MathPython-v0", level=level) for _ in range(count)]
        for number, env in enumerate(envs):
            env.reset(seed=number)
            env.step(_spoken(f"x = 7 * {number}"))
        held = sum(
            f"is {7 * i}." in env.step(_spoken("print(f'is {x}.')"))[0]
            for i, env in enumerate(envs)
        )
        memory, files = ((now - then) / count for now, then in zip(_taken(), before, strict=True))
        for env in envs:
            env.close()
        time.sleep(QUIET)
        wrong = first(
            idle.more_processes(idle.settle()) + idle.more_files(world) + idle.more_descriptors()
        )
    note = f"each takes {memory / 2**20:.1f} MiB and {files:.1f} descriptors of this process"
    what = "tool environments at once keep their sessions apart, and leave nothing"
    return Row(what, 0 if wrong else held, count, wrong or note)


def _spoken(code: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'python', 'arguments': {'code': code}})}</tool_call>"


def _taken() -> tuple[int, int]:
    """Return the bytes of memory of the processes below this one, and how many descriptors this one has."""
    return sum(proc.memory(proc.descendants()).values()), host.descriptors().total()


def _left_row(idle: Idle, world: Surroundings) -> Row:
    """Count the kinds of things of which the calls left none: processes and zombies, temporary files, descriptors."""
    processes = idle.settle()
    left = [idle.more_processes(processes), idle.more_files(world), idle.more_descriptors()]
    wrong = [fault for faults in left for fault in faults]
    note = first(wrong) or f"idle: {len(processes)} processes of the tool, {idle.files} files"
    held = sum(not faults for faults in left)
    return Row(
        "they leave no process or zombie, no temporary file and no descriptor", held, 3, note
    )


def ends_row(seed: int) -> Row:
    """Count the ways in which a process that called the tool may end, and leave nothing behind."""
    wrong = []
    with proc.adopting(), Surroundings(seed) as world:
        before = set(proc.descendants())
        for name, end in ENDS.items():
            for session in (False, True):
                code = _CALLER.format(session=session, end=end)
                run = subprocess.run(
                    [sys.executable, "-c", code],
                    capture_output=True,
                    text=True,
                    timeout=LONELY,
                    check=False,
                )
                problem = (
                    ""
                    if run.stdout == "42\n"
                    else f"the call answers {run.stdout!r} {run.stderr[-200:]!r}"
                )
                problem = problem or _remains(before, world)
                if problem:
                    wrong.append(f"{name}, session {session}: {problem}")
    what = "a process that called and ends, however it ends, leaves nothing"
    return Row(what, 2 * len(ENDS) - len(wrong), 2 * len(ENDS), first(wrong))


def _remains(before: set[int], world: Surroundings) -> str:
    until = time.monotonic() + SETTLE
    while True:
        left = {pid: process for pid, process in proc.descendants().items() if pid not in before}
        proc.reap(left)
        living = [process for process in left.values() if not process.zombie]
        files = world.new_files()
        if time.monotonic() > until or not (living or files):
            break
        time.sleep(0.05)
    world.clear()
    return ", ".join(
        filter(
            None, [f"{len(living)} processes" * bool(living), f"{len(files)} files" * bool(files)]
        )
    )


class _Callers:
    """Threads that take cases from one list, each with tools of its own."""

    def __init__(self, cases: list[Call], make: Callable[[float], PythonRunner]) -> None:
        self._cases, self._make, self._lock = list(enumerate(cases))[::-1], make, threading.Lock()
        self.wrong: list[str] = []
        self._spent: list[float] = []
        self._kinds: Counter[str] = Counter()

    def run(self, threads: int) -> None:
        """Go through all cases; what a thread raises counts as a wrong call."""
        callers = [threading.Thread(target=self._work, name=f"caller {i}") for i in range(threads)]
        for thread in callers:
            thread.start()
        for thread in callers:
            thread.join()

    def spent(self) -> str:
        """Return what the calls took that ran to their end, and how many there were of each kind."""
        times = sorted(self._spent)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._kinds.items()))
        if not times:
            return kinds
        return f"p50 {1000 * times[len(times) // 2]:.0f} ms, p99 {1000 * times[len(times) * 99 // 100]:.0f} ms; {kinds}"

    def _work(self) -> None:
        tools = {timeout: self._make(timeout) for timeout in (PATIENCE, SHORT)}
        while True:
            with self._lock:
                if not self._cases:
                    break
                number, case = self._cases.pop()
            self._one(number, case, tools[case.timeout])
        for tool in tools.values():
            tool.close()

    def _one(self, number: int, case: Call, tool: PythonRunner) -> None:
        began = time.monotonic()
        try:
            result = call_within(STUCK, lambda: tool.call({"code": case.code}), "the tool")
        except BaseException as error:  # whatever it is, it counts
            result = ToolResult(Status.KILLED, f"{type(error).__name__}: {error}")
        seconds = time.monotonic() - began
        right = result.status in case.statuses and case.text(result.text)
        with self._lock:
            self._kinds[str(result.status)] += 1
            if result.status is Status.OK:
                self._spent.append(seconds)
            if not right:
                self.wrong.append(
                    f"{number} {case.code[:40]!r}: {result.status}, {result.text[-150:]!r}"
                )
