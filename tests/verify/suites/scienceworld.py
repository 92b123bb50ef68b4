"""Rows of ScienceWorld: its sets, gold paths, forks, cost, failures and floors, in the official simulator."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turngym.tests.verify.rows import Row, first

if TYPE_CHECKING:
    from turngym.envs.suites.jvm import Jvm
    from turngym.envs.suites.scienceworld import ScienceWorld

SIZES = {  # of the sets that EPO reports on
    ("L0", "train"): 3322,
    ("L0", "test"): 1661,
    ("L1", "train"): 3322,
    ("L1", "test"): 1684,
    ("L2", "train"): 2242,
    ("L2", "test"): 549,
}
TICKS = os.sysconf("SC_CLK_TCK")


def rows(seed: int, golds: int) -> Iterator[Row]:
    """Yield the rows; `golds` variations have their gold path replayed, as many of each task."""
    from turngym.envs.suites.scienceworld import make_scienceworld

    rng = random.Random(seed)
    yield _sets()
    with closing(make_scienceworld(split="all")) as env:
        picked = _picked(env, rng, golds)
        yield _official(env, rng.sample(picked, min(6, len(picked))))
        yield _forks(env, rng, rng.sample(picked, min(20, len(picked))))
        yield _cost(env, picked)
        yield _killed(env)
        some = {env.tasks[index][0]: index for index in picked}
        yield _floors(env, rng, list(some.values()))
        yield _golds(env, picked)


def _picked(env: ScienceWorld, rng: random.Random, golds: int) -> list[int]:
    by_task: dict[str, list[int]] = {}
    for index, (task, _) in enumerate(env.tasks):
        by_task.setdefault(task, []).append(index)
    each = max(golds // len(by_task), 1)
    return [index for some in by_task.values() for index in rng.sample(some, min(each, len(some)))]


def _sets() -> Row:
    """Compare the variations of each task's sets with what the simulator says, and EPO's sets by their sizes."""
    from turngym.envs.suites.jvm import POOL
    from turngym.envs.suites.scienceworld import make_scienceworld, variations
    from turngym.tests.verify.suites.official import listed

    jvm, wrong = POOL.take(), []
    found = listed(jvm, "getTaskNames")
    known = make_scienceworld(split="all").tasks
    names = list(dict.fromkeys(task for task, _ in known))
    for task in names:
        jvm.call("load", task, 0, "", False)
        for split, method in (("train", "Train"), ("valid", "Dev"), ("test", "Test")):
            if listed(jvm, f"getVariations{method}") != list(variations(task, split)):
                wrong.append(f"{task} {split}")
    POOL.give_back(jvm)
    wrong += [] if sorted(found) == sorted(names) else ["names of tasks"]
    for (sets, split), size in SIZES.items():
        if (count := len(make_scienceworld(sets=sets, split=split).tasks)) != size:
            wrong.append(f"{sets} {split} has {count}, not {size}")
    checked = 3 * len(names) + 1 + len(SIZES)
    return Row("ScienceWorld: sets are the official ones, and those of EPO by their sizes", checked - len(wrong),
               checked, first(wrong))  # fmt: skip


def _golds(env: ScienceWorld, picked: list[int]) -> Row:
    """Play gold paths; where one does not earn 100, the official simulator, played alone, must say so as well."""
    solved, agreed, wrong, late = 0, 0, [], []
    for index in picked:
        env.reset(seed=0, options={"task": index})
        assert env.world is not None
        began, gold = env.world.start, env.gold()
        info: dict[str, Any] = {}
        env.max_turns = max(len(gold) + 1, 100)
        for action in gold:
            *_, info = env.step(action)
            if not env.live:
                break
        score = info.get("score")
        solved += score == 100
        if score != 100:
            late.append(f"{env.task_id} {score}")
        known = 100 if score == 100 else _alone(began, gold)
        agreed += known == score
        if known != score:
            wrong.append(f"{env.task_id}: {score}, officially {known}")
    env.max_turns = 100
    count = len(picked)
    return Row("ScienceWorld: the score of gold paths is the simulator's", agreed, count,
              f"100 for {solved}; {first(wrong or late, 4)}")  # fmt: skip


def _alone(began: tuple[str, int, str], gold: list[str]) -> int:
    """Return the score of commands in a JVM that the environment has nothing to do with."""
    from turngym.envs.suites.jvm import POOL

    jvm = POOL.take()
    jvm.call("load", *began, False)
    for action in ("look around", *gold):
        jvm.call("step", action)
        if jvm.call("getCompleted"):
            break
    score: int = round(100 * jvm.call("getScore"))
    POOL.give_back(jvm)
    return score


def _official(env: ScienceWorld, picked: list[int]) -> Row:
    """Compare score and end of the first commands of gold with those of the package's own client."""
    right, count, wrong = 0, 0, []
    other: Any = import_module("scienceworld").ScienceWorldEnv()
    for index in picked:
        env.reset(seed=0, options={"task": index})
        assert env.world is not None
        task, variation, simplification = env.world.start
        other.load(task, variation, simplification)
        other.reset()
        for action in env.gold()[:6]:
            *_, ends, known = other.step(action)
            *_, info = env.step(action)
            count += 1
            same = (info["score"], not env.live) == (known["score"], ends)
            right += same
            if not same:
                wrong.append(
                    f"{env.task_id} {action}: {info['score']}, officially {known['score']}"
                )
            if not env.live:
                break
    other.close()
    return Row(
        "ScienceWorld: scores and ends are those of the package's client",
        right,
        count,
        first(wrong),
    )


def _forks(env: ScienceWorld, rng: random.Random, picked: list[int]) -> Row:
    """Fork in the middle of gold paths: what the fork sees to the end is what the original sees."""
    from turngym.envs import EnvFailure
    from turngym.envs.suites.scienceworld import SimulatedWorld

    right, wrong, before = 0, [], SimulatedWorld.diverged
    for index in picked:
        env.reset(seed=0, options={"task": index})
        gold = env.gold()[:30]
        turn = rng.randrange(len(gold))
        for action in gold[:turn]:
            env.step(action)
        try:
            with closing(env.fork()) as twin:
                same = all(
                    env.step(action) == twin.step(action) for action in gold[turn:] if env.live
                )
        except EnvFailure as failure:
            wrong.append(str(failure))
            continue
        right += same
        if not same:
            wrong.append(f"{env.task_id} forked at turn {turn}")
    note = f"{SimulatedWorld.diverged - before} refused; {first(wrong)}"
    return Row("ScienceWorld: forks see what their originals see", right, len(picked), note)


def _cost(
    env: ScienceWorld, picked: list[int], worlds: int = 16, steps: int = 25, episodes: int = 8
) -> Row:
    """Play so many worlds at a time; a figure is the processor time of JVMs and of this process, and the memory.

    A JVM compiles in its first episodes, and is kept for the next: the figure is that of the last.
    """
    twins = [env.fork() for _ in range(worlds)]
    some = picked[:: max(len(picked) // worlds, 1)][:worlds]
    for twin, index in zip(twins, some, strict=True):
        twin.reset(seed=0, options={"task": index})
    scripts = [(twin.gold() * steps)[:steps] for twin in twins]
    jvms = [
        twin.world.jvm for twin in twins if twin.world is not None and twin.world.jvm is not None
    ]
    rates, memory = [], [0.0] * worlds
    for episode in range(episodes):
        spent, played = -sum(map(_seconds, jvms)) - time.process_time(), 0
        for twin, index in zip(twins, some, strict=True):
            if episode:
                twin.reset(seed=0, options={"task": index})
        for step in range(steps):
            for twin, script in zip(twins, scripts, strict=True):
                if twin.live:
                    twin.step(script[step])
                    played += 1
        rates.append(played / (spent + sum(map(_seconds, jvms)) + time.process_time()))
        memory = [max(pair) for pair in zip(map(_resident, jvms), memory, strict=True)]
    for twin in twins:
        twin.close()
    good = sum(size <= 200 for size in memory) + (rates[-1] >= 20)
    note = f"steps a second of processor time by episode of a JVM: {', '.join(f'{rate:.1f}' for rate in rates)}"
    what = (
        f"{len(jvms)} live worlds of at most 200 MiB, at least 20 steps a second of processor time"
    )
    return Row(
        f"ScienceWorld: {what}", good, worlds + 1, f"{note}; at most {max(memory):.0f} MiB a world"
    )


def _seconds(jvm: Jvm) -> float:
    fields = Path(f"/proc/{jvm.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident(jvm: Jvm) -> float:
    status = Path(f"/proc/{jvm.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _killed(env: ScienceWorld, times: int = 3) -> Row:
    """Kill the JVM in the middle of an episode, which ends as a failure of the infrastructure, without a reward."""
    right = 0
    for index in range(times):
        env.reset(seed=0, options={"task": index})
        env.step("look around")
        assert env.world is not None and env.world.jvm is not None
        env.world.jvm.process.kill()
        _, reward, _, _, info = env.step("look around")
        right += info["outcome"] == "infra_error" and reward != reward
        env.reset(seed=0, options={"task": index})
        right += env.step("look around")[4]["turn"] == 1
    return Row("ScienceWorld: a JVM that dies is a failure of the infrastructure, and the next episode plays", right,
               2 * times)  # fmt: skip


def _floors(env: ScienceWorld, rng: random.Random, picked: list[int], turns: int = 10) -> Row:
    """Measure what a constant reply, an empty one and random valid commands earn; it is a figure."""
    earned: dict[str, list[tuple[float, float]]] = {"constant": [], "empty": [], "random": []}
    for name, found in earned.items():
        for index in picked:
            env.reset(seed=0, options={"task": index})
            info: dict[str, Any] = {}
            for _ in range(turns):
                say = {"constant": "look around", "empty": ""}.get(name)
                *_, info = env.step(rng.choice(env.valid_actions()) if say is None else say)
                if not env.live:
                    break
            found.append((info["rewards"]["score"], info["rewards"]["won"]))
    count = len(picked)
    means = {
        name: [100 * sum(one) / count for one in zip(*found, strict=True)]
        for name, found in earned.items()
    }
    note = ", ".join(
        f"{name} {score:.1f} points, {won:.1f} % won" for name, (score, won) in means.items()
    )
    return Row(f"ScienceWorld: floors of {turns} turns", count, count, note)
