"""The Python tool beside `subprocess.run([python, "-c", code])`: latency, throughput, forks, abuse and leaks.

Calls of all ways are interleaved, so that a busy machine slows them alike: compare the ratios, never the milliseconds
of two runs. The exit status is 1 where a program got past its limits or something leaked; speed only prints.

    python benchmarks/python_tool.py --rounds 40
    python benchmarks/python_tool.py --rounds 200 --beside ../before  # a second checkout, with a .venv of its own
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from typing import ParamSpec, TypeVar

import turngym
from turngym.tools import PythonTool

P = ParamSpec("P")
R = TypeVar("R")
PAUSE = 0.02  # seconds between calls: a policy writes meanwhile
THREADS, BLOCKS = 8, 3
RESAMPLES = 2000  # of the rounds, for an interval
KEEPS = 0.95  # as fast as another checkout, at least
CALLER = """
import json, sys, time
from turngym.tools import PythonTool
tools = {way: PythonTool(persistent=way == "session", level=sys.argv[1]) for way in ("fresh call", "session")}
for line in sys.stdin:
    way, code = json.loads(line)
    began = time.perf_counter()
    text = tools[way].call({"code": code}).text.strip()
    print(json.dumps([text, time.perf_counter() - began]), flush=True)
"""

PROGRAMS = {  # name: program, what it prints
    "sympy": (
        "import sympy as sp\nx = sp.symbols('x')\nprint(sp.solve(x**2 - 5*x + 6, x))",
        "[2, 3]",
    ),
    "numpy": ("import numpy as np\nprint(np.arange(10).sum())", "45"),
    "small": ("print(sum(i * i for i in range(100)))", "328350"),
    "empty": ("pass", ""),  # what a call costs whatever the program does
}
GOALS = {"sympy": (40, 60), "numpy": (20, 30), "small": (4, 5)}  # times as fast: goal and wish
LOAD_GOALS = {"sympy": 15, "small": 2}
FORK_GOAL = 20  # ms

LIMIT, GRACE = 2.0, 2.0  # seconds of a call, and what may come on top
GRACE_LEFT = 0.3  # seconds after which nothing of a call may be left
LOOP = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
CHILD = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)', {mark!r}])\n"
ABUSE = {  # name: program, how it may end
    "endless loop": ("while True: pass", {"timeout"}),
    "memory bomb, 2 GiB": (
        "x = bytearray(2**31)\nfor i in range(0, 2**31, 4096): x[i] = 1",
        {"memory"},
    ),
    "child that outlives": (CHILD + "print('spawned')", {"ok", "error"}),
    "child of an endless loop": (CHILD + "while True: pass", {"timeout", "error"}),
    "output flood, 64 MiB": (
        "import sys\nfor _ in range(64): sys.stdout.write('a' * 2**20)",
        {"ok", "output"},
    ),
    "catches everything": (LOOP, {"timeout"}),
    "sys.exit(3)": ("import sys\nprint('a')\nsys.exit(3)", {"error"}),
}
LEAKS = {  # name: program of one call, of the next, what that prints where nothing leaks
    "module": ("import math; math.pi = 3", "import math; print(math.pi)", "3.141592653589793"),
    "library": ("import sympy; sympy.pi = 3", "import sympy; print(sympy.pi)", "pi"),
    "builtins": ("import builtins; builtins.len = lambda x: 7", "print(len('ab'))", "2"),
    "variable": ("x = 5", "print('x' in globals())", "False"),
    "environment": (
        "import os; os.environ['LEAK'] = '1'",
        "import os; print('LEAK' in os.environ)",
        "False",
    ),
    "file": ("open('leak', 'w').write('1')", "import os; print(os.path.exists('leak'))", "False"),
    "file in /tmp": (
        "open('/tmp/{mark}', 'w')",
        "import os; print(os.path.exists('/tmp/{mark}'))",
        "False",
    ),
    "folder": (
        "import os; os.mkdir('d'); os.chdir('d')",
        "import os; print(os.getcwd().endswith('/d'))",
        "False",
    ),
    "limits": (
        "import sys; sys.setrecursionlimit(99); sys.set_int_max_str_digits(0)",
        "import sys; print(sys.getrecursionlimit(), sys.get_int_max_str_digits())",
        "1000 4300",
    ),
    "random": (
        "import random; random.seed(7)",
        "import random; print(random.random() == random.Random(7).random())",
        "False",
    ),
    "NumPy's random": (
        "import numpy; numpy.random.seed(7)",
        "import numpy; print(numpy.random.random() == numpy.random.RandomState(7).random())",
        "False",
    ),
}


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog=__doc__.split("\n\n")[1]
    )
    options.add_argument(
        "--rounds", type=int, default=40, help="calls of each program in each way (default 40)"
    )
    options.add_argument(
        "--calls", type=int, default=16, help=f"calls of subprocess a block, {THREADS} at once"
    )
    options.add_argument(
        "--level", default=PythonTool().level, help="isolation level of the tool (its default)"
    )
    options.add_argument(
        "--beside",
        type=Path,
        help="a second checkout, whose calls alone are compared with this one's",
    )
    options.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run (all)"
    )
    options.add_argument("--quick", action="store_true", help="ten rounds, latency and forks alone")
    asked = options.parse_args()
    if asked.quick:
        asked.rounds, asked.only = 10, ["latency", "forks"]
    load = ", ".join(f"{number:.2f}" for number in os.getloadavg())
    print(f"{os.cpu_count()} processors, load {load}, {platform.system()} {platform.release()}")
    print(f"Python {platform.python_version()}, turngym {turngym.__version__}, level {asked.level}")
    parts = [beside] if asked.beside else [PARTS[part] for part in asked.only]
    faults = [fault for part in parts for fault in part(asked)]
    for fault in faults:
        print(f"FAULT  {fault}")
    return 1 if faults else 0


def latency(asked: argparse.Namespace) -> Iterator[str]:
    """One call at a time. A tool that is asked for its first call starts its server; the rounds are behind that."""
    fresh, session = PythonTool(persistent=False, level=asked.level), PythonTool(level=asked.level)
    ways: dict[str, Callable[[str], str]] = {
        "subprocess": plain,
        "fresh call": lambda code: say(fresh, code),
        "session": lambda code: say(session, code),
    }
    seconds: dict[tuple[str, str], list[float]] = {
        (name, way): [] for name in PROGRAMS for way in ways
    }
    _, first = clocked(say, fresh, PROGRAMS["small"][0])
    for number in rounds("latency", asked.rounds + 1):
        for name, (code, right) in PROGRAMS.items():
            for way, call in ways.items():
                time.sleep(PAUSE)
                text, took = clocked(call, code)
                if text != right:
                    yield f"{name} by {way} gave {text!r:.200}, not {right!r}"
                if number:  # the first of each warms files and caches up
                    seconds[name, way].append(took)
    fresh.close()
    session.close()
    print(f"\none call at a time, {asked.rounds} rounds; the very first took {1e3 * first:.0f} ms")
    print(f"{'program':8} {'way':11} {'p50 ms':>8} {'p95 ms':>8} {'times as fast':>14}")
    for (name, way), values in seconds.items():
        ratio = median(seconds[name, "subprocess"]) / median(values)
        goal = against(ratio, *GOALS[name]) if way == "fresh call" and name in GOALS else ""
        print(
            f"{name:8} {way:11} {1e3 * median(values):8.2f} {1e3 * p95(values):8.2f} {ratio:14.1f}  {goal}"
        )
    limits({name: median(seconds[name, "fresh call"]) for name in PROGRAMS}, seconds)


def limits(calls: dict[str, float], seconds: dict[tuple[str, str], list[float]]) -> None:
    """Say what a fresh call consists of: the call itself, and the program in a process that has everything loaded."""
    for name in GOALS:
        own, floor = 1e3 * (calls[name] - calls["empty"]), 1e3 * calls["empty"]
        share = 1e3 * median(seconds[name, "subprocess"]) / GOALS[name][1]
        print(
            f"{name}: {floor:.2f} ms for any call + {own:.2f} ms of its own; the wish is {share:.2f} ms"
        )


def throughput(asked: argparse.Namespace) -> Iterator[str]:
    """Calls of 8 threads, each with a tool of its own."""
    tools = [PythonTool(persistent=False, level=asked.level) for _ in range(THREADS)]
    rates: dict[tuple[str, str], list[float]] = {}
    with ThreadPoolExecutor(THREADS) as threads:
        list(
            threads.map(say_all, tools, [[code for code, _ in PROGRAMS.values()]] * THREADS)
        )  # all is warm
        for _ in rounds("throughput", BLOCKS):
            for name in LOAD_GOALS:
                code, right = PROGRAMS[name]
                texts, seconds = clocked(list, threads.map(plain, [code] * asked.calls))
                rates.setdefault((name, "plain"), []).append(asked.calls / seconds)
                said, seconds = clocked(
                    list, threads.map(say_all, tools, [[code] * asked.calls] * THREADS)
                )
                rates.setdefault((name, "tool"), []).append(THREADS * asked.calls / seconds)
                texts += chain.from_iterable(said)
                if wrong := sum(text != right for text in texts):
                    yield f"{name} at {THREADS}-way: {wrong} of {len(texts)} calls gave something else"
    for tool in tools:
        tool.close()
    print(f"\n{THREADS} calls at once, calls a second: median of {BLOCKS} blocks")
    for name, goal in LOAD_GOALS.items():
        base, ours = (median(rates[name, way]) for way in ("plain", "tool"))
        ratio = ours / base
        print(
            f"{name:8} subprocess {base:8.1f}   tool {ours:8.1f}   {ratio:6.1f} times  {against(ratio, goal)}"
        )


def forks(asked: argparse.Namespace) -> Iterator[str]:
    """A twin of a live session, of a small one and of one with sympy and 16 MiB."""
    print("\nfork of a session")
    for name, code in {
        "small": "x = 1",
        "large": "import sympy\nx = 1\nblock = bytes(range(256)) * 2**16",
    }.items():
        tool, seconds = PythonTool(level=asked.level), []
        say(tool, code)
        for number in rounds(f"fork of a {name} session", asked.rounds):
            time.sleep(PAUSE)
            twin, took = clocked(tool.fork)
            seconds.append(took)
            if (text := say(twin, f"x += {number + 1}\nx")) != str(number + 2):
                yield f"the fork of a {name} session gave {text!r:.200}"
            twin.close()
        if say(tool, "x") != "1":
            yield f"a {name} session saw what its forks did"
        tool.close()
        goal = "meets" if 1e3 * median(seconds) <= FORK_GOAL else "MISSES"
        print(
            f"{name:8} p50 {1e3 * median(seconds):6.2f} ms   p95 {1e3 * p95(seconds):6.2f} ms  {goal} {FORK_GOAL} ms"
        )


def abuse(asked: argparse.Namespace) -> Iterator[str]:
    """Programs that mean harm, each at full isolation: how each ended, when, and what it left."""
    print(f"\nabuse, limit {LIMIT:g} s and 512 MiB")
    tool = PythonTool(LIMIT, 512, persistent=False, level=asked.level)
    for name, (code, ends) in ABUSE.items():
        print(f"{name} …", file=sys.stderr)
        mark = f"mark-{uuid.uuid4()}"
        result, took = clocked(tool.call, {"code": code.replace("{mark!r}", repr(mark))})
        time.sleep(GRACE_LEFT)
        left = survivors(mark)
        after = say(tool, "print(6 * 7)")
        print(
            f"{name:26} {result.status:8} {took:5.2f} s  {len(result.text):6} characters  {len(left)} survivors"
        )
        if result.status not in ends:
            yield f"{name} ended as {result.status}, not as {' or '.join(sorted(ends))}: {result.text!r:.200}"
        if took > LIMIT + GRACE:
            yield f"{name} took {took:.1f} s of {LIMIT:g}"
        if left:
            yield f"{name} left {left}"
        if len(result.text) > 2**18 or after != "42":
            yield f"{name} gave {len(result.text)} characters, and the next call {after!r:.200}"
    tool.close()


def leaks(asked: argparse.Namespace) -> Iterator[str]:
    """What one call does and the next, or another session, must not see."""
    print("\nfrom one call to the next, and from one session to another")
    one, other = (PythonTool(persistent=False, level=asked.level) for _ in range(2))
    session, beside = (PythonTool(level=asked.level) for _ in range(2))
    for name, (do, look, right) in LEAKS.items():
        mark = f"mark-{uuid.uuid4()}"
        do, look = (text.replace("{mark}", mark) for text in (do, look))
        seen = []
        for doer, looker in ((one, one), (one, other), (session, one), (session, beside)):
            say(doer, do)
            seen.append(say(looker, look))
        session.reset()
        beside.reset()
        Path(f"/tmp/{mark}").unlink(missing_ok=True)  # a weak level writes there
        if say(one, f"{do}\n{look}") == right:
            yield f"the probe for {name} finds nothing: {do!r} and {look!r} give {right!r} in one call, too"
        print(f"{name:16} {'stays where it is' if set(seen) == {right} else 'LEAKS'}")
        if set(seen) != {right}:
            yield f"{name} leaks: after {do!r}, {look!r} gives {seen}"
    for tool in (one, other, session, beside):
        tool.close()


def beside(asked: argparse.Namespace) -> Iterator[str]:
    """Calls of this checkout and of another one, by turns: how many times as fast this one is."""
    pythons = (str(asked.beside.resolve() / ".venv/bin/python"), sys.executable)
    callers = [caller(python, asked.level) for python in pythons]
    seconds: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in rounds("beside", asked.rounds + 1):
        for name, (code, right) in PROGRAMS.items():
            for way in ("fresh call", "session"):
                took = [0.0, 0.0]
                for which in random.sample((0, 1), 2):
                    time.sleep(PAUSE)
                    text, took[which] = ask(callers[which], way, code)
                    if text != right:
                        yield f"{name} by {way} of {pythons[which]} gave {text!r:.200}, not {right!r}"
                if number:  # the first of each warms files and caches up
                    seconds.setdefault((name, way), []).append((took[0], took[1]))
    for process in callers:
        process.communicate()
    print(f"\nthis checkout beside {asked.beside}, {asked.rounds} rounds, calls by turns")
    print(
        f"{'program':8} {'way':11} {'p50 ms':>8} {'beside':>8} {'times as fast':>14}  95 % of resampled rounds"
    )
    for (name, way), pairs in seconds.items():
        low, high = interval(pairs)
        before, now = (1e3 * median(column) for column in zip(*pairs, strict=True))
        print(
            f"{name:8} {way:11} {now:8.2f} {before:8.2f} {before / now:14.3f}  {low:.3f} to {high:.3f}  ",
            end="",
        )
        print(against(before / now, KEEPS) if name in GOALS and way == "fresh call" else "")


def caller(python: str, level: str) -> subprocess.Popen[str]:
    """Start a process that calls the tools of a checkout, and says what each call printed and took."""
    return subprocess.Popen(
        [python, "-P", "-c", CALLER, level],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str], way: str, code: str) -> tuple[str, float]:
    """Have a program called by a process of `caller`."""
    assert process.stdin and process.stdout
    print(json.dumps([way, code]), file=process.stdin, flush=True)
    text, seconds = json.loads(process.stdout.readline())
    return text, seconds


def interval(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """Return between what 95 % of the ratios of medians lie when rounds are drawn again, with replacement."""
    rng = random.Random(0)
    ratios = []
    for _ in range(RESAMPLES):
        before, now = zip(*rng.choices(pairs, k=len(pairs)), strict=True)
        ratios.append(median(before) / median(now))
    ratios.sort()
    return ratios[len(ratios) // 40], ratios[-1 - len(ratios) // 40]


def plain(code: str) -> str:
    """Run a program as peers do."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return (done.stdout + done.stderr).strip()


def say(tool: PythonTool, code: str) -> str:
    """Run a program in the tool and return what it printed; where it failed, the status before it."""
    result = tool.call({"code": code})
    return f"{'' if result.status == 'ok' else f'[{result.status}] '}{result.text.strip()}"


def say_all(tool: PythonTool, codes: Iterable[str]) -> list[str]:
    """Run programs one after the other."""
    return [say(tool, code) for code in codes]


def clocked(work: Callable[P, R], *given: P.args, **named: P.kwargs) -> tuple[R, float]:
    """Return what `work` returns, and the seconds that it took."""
    began = time.perf_counter()
    return work(*given, **named), time.perf_counter() - began


def rounds(what: str, count: int) -> Iterator[int]:
    """Count on standard error."""
    for number in range(count):
        print(f"\r{what} {number + 1}/{count} ", end="", file=sys.stderr, flush=True)
        yield number
    print(file=sys.stderr)


def p95(values: list[float]) -> float:
    """Return the value that 95 % do not pass."""
    return quantiles(values, n=20, method="inclusive")[-1]


def against(ratio: float, goal: float, wish: float | None = None) -> str:
    """Say whether a ratio meets its goal."""
    more = f", wish {wish}x" if wish else ""
    return f"{'meets' if ratio >= goal else 'MISSES'} {goal}x{more}"


def survivors(mark: str) -> list[str]:
    """Return the processes whose command line has `mark`, and those below this one that are dead or still at work."""
    before = below()
    time.sleep(GRACE_LEFT)
    found = [f"{pid} (marked)" for pid, line in commands() if mark in line]
    for pid, (state, used) in below().items():
        if state == "Z" or used - before.get(pid, (state, used))[1] > GRACE_LEFT / 2:
            found.append(f"{pid} (state {state})")
    return found


def commands() -> Iterator[tuple[int, str]]:
    """Yield the command line of every process of the machine."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended by now
            yield int(file.parent.name), file.read_text(errors="replace")


def below() -> dict[int, tuple[str, float]]:
    """Return state and processor seconds of this process's children, their children, and so on."""
    parents, found = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text(errors="replace").rpartition(")")[2].split()
            pid, ticks = int(file.parent.name), int(fields[11]) + int(fields[12])
            parents[pid], found[pid] = int(fields[1]), (fields[0], ticks / os.sysconf("SC_CLK_TCK"))

    def mine(pid: int) -> bool:
        return pid in parents and (parents[pid] == os.getpid() or mine(parents[pid]))

    return {pid: values for pid, values in found.items() if mine(pid)}


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "latency": latency,
    "throughput": throughput,
    "forks": forks,
    "abuse": abuse,
    "leaks": leaks,
}

if __name__ == "__main__":
    sys.exit(main())
