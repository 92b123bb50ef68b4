r"""The household world beside the real engine (alfworld, textworld): steps, resets, forks, memory, many environments.

    python benchmarks/household.py [--real PYTHON] [--quick] [--data FOLDER] [--rounds 20] [--seed 0]

Both play the same games and the same actions, with the admissible commands at every step, in one run on one machine,
each in one process. The real engine is that of this Python, or of the one that `--real` names:

    python -m venv real && real/bin/pip install alfworld textworld
    python benchmarks/household.py --real real/bin/python

Seconds are CPU seconds, the best of some rounds; the median is beside it. The exit status is 1 where a figure misses
its goal; what is to be beside the real engine misses it without one.
"""

from __future__ import annotations

import argparse
import copy
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

from turngym.envs.household import commands, step
from turngym.envs.household.env import ALFWorldEnv
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.household.real_engine import interpreter, recorded

FASTER_STEP, FASTER_RESET = 1000, 5000
FORK_STATE, FORK_ENV, MEMORY, FLAT = 10e-6, 50e-6, 1000.0, 0.8
LIVE = 1000
COLD = 50  # games that nothing has opened before
TURNS = 4
CROWDS = (8, 64, 256, 1024)
OPENING = """
import sys, time
from turngym.envs.household import make_alfworld
began = time.process_time()
env = make_alfworld(sys.argv[1])
print(time.process_time() - began, len(env.tasks))
"""


@dataclass(frozen=True)
class Script:
    """The actions of an episode in a game of the catalogue."""

    game: int
    actions: tuple[str, ...]


class Report:
    """Prints figures beside their goals and remembers whether one was missed."""

    def __init__(self) -> None:
        self.short = 0

    def line(self, what: str, figure: str, good: bool | None = None, goal: str = "") -> None:
        """Print one figure."""
        self.short += good is False
        mark = "" if good is None else "ok" if good else "SHORT"
        print(f"{mark:5} {what:52} {figure:48} {goal}".rstrip(), flush=True)


def main() -> int:
    """Measure everything; return 1 where a goal is missed."""
    options = _options()
    report = Report()
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}"
    print(f"{platform.machine()}, {load}, Python {platform.python_version()}, seed {options.seed}")
    opening(options.data, report)
    catalogue = Catalogue(sorted(options.data.glob("games_*.jsonl*")))
    live = memory(catalogue, report)
    theirs, scripts = real(catalogue, options)
    speed(catalogue, scripts, theirs, options.rounds, report)
    forks(live[0], options.rounds, report)
    crowds(catalogue, options.rounds, options.seed, report)
    return 1 if report.short else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).resolve().parent.parent
    parser.add_argument(
        "--data", type=Path, default=here.parent / "shared" / "data" / "household", help="the games"
    )
    parser.add_argument("--real", type=Path, help="a Python that has alfworld and textworld[pddl]")
    parser.add_argument("--real-games", type=int, default=3, help="games that both engines play")
    parser.add_argument("--real-steps", type=int, default=20, help="commands in each")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each measurement")
    parser.add_argument(
        "--quick", action="store_true", help="three rounds, one real game of five commands"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws games and actions")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.real_games, options.real_steps = 3, 1, 5
    if not any(options.data.glob("games_*.jsonl*")):
        parser.error(
            f"{options.data} has no games_*.jsonl; name the folder of the games: --data FOLDER"
        )
    return options


def opening(data: Path, report: Report) -> None:
    """Time how fast the train split opens in a fresh process: without an index, then with it on disk."""
    with tempfile.TemporaryDirectory() as folder:
        for what in ("no index yet", "index on disk"):
            run = [sys.executable, "-c", OPENING, str(data)]
            env = {**os.environ, "XDG_CACHE_HOME": folder}
            seconds, games = subprocess.run(
                run, capture_output=True, text=True, check=True, env=env
            ).stdout.split()
            report.line(f"open {games} games, {what}", f"{1e3 * float(seconds):.0f} ms")


def memory(catalogue: Catalogue, report: Report) -> list[ALFWorldEnv]:
    """Return 1,000 environments that were reset, each to another game, having printed what they take."""
    before = _resident()
    live = []
    for i in range(LIVE):
        env = catalogue.env([i % len(catalogue)])
        env.reset(seed=i, options={"task": 0})
        env.step("look")
        live.append(env)
    after = _resident()
    figure = f"{after:.0f} MB in all, {after - before:.0f} MB of it for them"
    report.line(f"{LIVE} live environments", figure, after <= MEMORY, f"<= {MEMORY:.0f} MB")
    return live


def _resident() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 / 1e3 if sys.platform == "darwin" else 1e3
    )


# --- beside the real engine


def real(
    catalogue: Catalogue, options: argparse.Namespace
) -> tuple[tuple[float, float] | None, list[Script]]:
    """Return the real engine's seconds a step and a reset, None without one, and the scripts that it played."""
    drawn = random.Random(f"benchmark {options.seed}").sample(
        range(len(catalogue)), max(options.real_games, 1)
    )
    python = interpreter(options.real)
    if python is None:
        return None, list(scripts_of(catalogue, drawn, options.real_steps, options.seed))
    episodes = list(recorded(catalogue, python, drawn, options.seed, options.real_steps))
    resets = [episode["seconds"][0] for episode in episodes]
    steps = sum(len(episode["steps"]) for episode in episodes)
    a_step = sum(episode["seconds"][1] for episode in episodes) / steps
    played = [
        Script(i, tuple(done["action"] for done in one["steps"])) for i, one in zip(drawn, episodes)
    ]
    return (a_step, median(resets)), played


def scripts_of(
    catalogue: Catalogue, games: Sequence[int], steps: int, seed: int
) -> Iterator[Script]:
    """Yield random scripts of admissible commands that do not end."""
    drawn = random.Random(f"scripts {seed}")
    for i in games:
        world = catalogue.read(i).world()
        state, actions = world.start, list[str]()
        while len(actions) < steps:
            action = drawn.choice(commands(world, state))
            after, _ = step(world, state, action)
            if not world.is_won(after):
                state = after
                actions.append(action)
        yield Script(i, tuple(actions))


def speed(
    catalogue: Catalogue,
    scripts: Sequence[Script],
    theirs: tuple[float, float] | None,
    rounds: int,
    report: Report,
) -> None:
    """Print steps a second and resets beside those of the real engine."""
    a_step, a_reset = theirs or (nan, nan)  # beside which nothing reaches its goal
    how = "same games and actions" if theirs else "not there: --real names a Python that has it"
    report.line("real engine: a step with admissible commands", f"{1e3 * a_step:.1f} ms   ({how})")
    report.line("real engine: a reset", f"{1e3 * a_reset:.0f} ms")
    envs = [catalogue.env([script.game], max_turns=10_000) for script in scripts]
    cold = [timed(begin(catalogue.env([i]))) for i in range(LIVE, LIVE + COLD)]
    repeats = max(1, 2_000 // sum(len(script.actions) for script in scripts))
    played = [a_step_of(envs, scripts, repeats) for _ in range(rounds)]
    bare = [a_bare_step_of(envs, scripts, repeats) for _ in range(rounds)]
    warm = [timed(begin(envs[0]), 300) for _ in range(rounds)]
    times = a_step / min(played)
    figure = f"{1 / min(played):,.0f} steps/s (median {1 / median(played):,.0f}), {times:,.0f}x"
    report.line(
        "env.step() and env.admissible_commands()",
        figure,
        times >= FASTER_STEP,
        f">= {FASTER_STEP}x",
    )
    times = a_step / min(bare)
    figure = f"{1 / min(bare):,.0f} steps/s (median {1 / median(bare):,.0f}), {times:,.0f}x"
    report.line(
        "step(), won() and commands() of the world",
        figure,
        times >= FASTER_STEP,
        f">= {FASTER_STEP}x",
    )
    times = a_reset / min(warm)
    figure = f"{1e6 * min(warm):.0f} us (median {1e6 * median(warm):.0f}), {times:,.0f}x"
    report.line("warm reset", figure, times >= FASTER_RESET, f">= {FASTER_RESET}x")
    report.line(
        "cold reset: read and parse the game",
        f"{1e3 * median(cold):.1f} ms, {a_reset / median(cold):,.0f}x",
    )


def a_step_of(envs: Sequence[ALFWorldEnv], scripts: Sequence[Script], repeats: int) -> float:
    """Return the seconds of a step with admissible commands, resets left out."""
    seconds, steps = 0.0, 0
    for _ in range(repeats):
        for env, script in zip(envs, scripts, strict=True):
            env.reset(options={"task": 0})
            began = time.process_time()
            for action in script.actions:
                env.step(action)
                env.admissible_commands()
            seconds += time.process_time() - began
            steps += len(script.actions)
    return seconds / steps


def a_bare_step_of(envs: Sequence[ALFWorldEnv], scripts: Sequence[Script], repeats: int) -> float:
    """Return the same for the pure functions of the world."""
    seconds, steps = 0.0, 0
    for _ in range(repeats):
        for env, script in zip(envs, scripts, strict=True):
            _, world = env.tasks.open(0)
            state = world.start
            began = time.process_time()
            for action in script.actions:
                state, _ = step(world, state, action)
                world.is_won(state)
                commands(world, state)
            seconds += time.process_time() - began
            steps += len(script.actions)
    return seconds / steps


# --- forks and many environments


def forks(env: ALFWorldEnv, rounds: int, report: Report) -> None:
    """Print what copies cost: of a state, and of an environment early and late in its episode."""
    state = [timed(lambda: copy.copy(env.state), 2000) for _ in range(rounds)]
    figure = f"{1e6 * min(state):.2f} us (median {1e6 * median(state):.2f})"
    report.line(
        "fork of a state (copy.copy; it is a value)", figure, min(state) <= FORK_STATE, "<= 10 us"
    )
    for turns in (1, 40):
        env.reset(options={"task": 0})
        for _ in range(turns):
            env.step("look")
        taken = [timed(env.fork, 300) for _ in range(rounds)]
        figure = f"{1e6 * min(taken):.1f} us (median {1e6 * median(taken):.1f})"
        report.line(f"env.fork() after {turns} turns", figure, min(taken) <= FORK_ENV, "<= 50 us")


def crowds(catalogue: Catalogue, rounds: int, seed: int, report: Report) -> None:
    """Print the throughput of many environments that are stepped in turn, each in another game."""
    drawn = random.Random(f"crowds {seed}").sample(
        range(len(catalogue)), min(max(CROWDS), len(catalogue))
    )
    envs = [catalogue.env([i]) for i in drawn]
    scripts = list(scripts_of(catalogue, drawn, TURNS, seed))
    rates = dict.fromkeys(CROWDS, 0.0)
    for _ in range(rounds):  # the sizes alternate, so that a busy machine slows all of them
        for size in CROWDS:
            rates[size] = max(rates[size], throughput(envs, scripts, size))
    for size, rate in rates.items():
        report.line(
            f"{size} environments, stepped in turn", f"{rate:,.0f} steps/s with admissible commands"
        )
    slowest = min(rates.values()) / max(rates.values())
    report.line(
        "the slowest of these to the fastest", f"{slowest:.2f}", slowest >= FLAT, f">= {FLAT}"
    )


def throughput(envs: Sequence[ALFWorldEnv], scripts: Sequence[Script], size: int) -> float:
    """Return the steps per second of environments that are stepped in turn, `size` of them at a time."""
    seconds = 0.0
    for start in range(
        0, len(envs), size
    ):  # whatever the size, all are stepped: games differ in what a step takes
        pairs = list(zip(envs[start : start + size], scripts[start : start + size], strict=True))
        for env, _ in pairs:
            env.reset(options={"task": 0})
        began = time.process_time()
        for turn in range(TURNS):
            for env, script in pairs:
                env.step(script.actions[turn])
                env.admissible_commands()
        seconds += time.process_time() - began
    return TURNS * len(envs) / seconds


def begin(env: ALFWorldEnv) -> Callable[[], Any]:
    """Return what resets an environment of one game."""
    return lambda: env.reset(options={"task": 0})


def timed(call: Callable[[], Any], times: int = 1) -> float:
    """Return the seconds of a call, the mean of some."""
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times


if __name__ == "__main__":
    sys.exit(main())
