"""`ScienceWorld-v0`: experiments of elementary science in a house, by text (Apache-2.0), in the official simulator.

Each episode has a JVM of its own, as the simulator has one generator for all its worlds. A fork repeats the actions in
another JVM and is refused where it sees something else.
Source: R. Wang et al., "ScienceWorld: Is your Agent Smarter than a 5th Grader?" (2203.07540), package `scienceworld`.
The sets L0, L1 and L2 are those of RLVMR (2507.22844), on which EPO (2509.22576) reports.
"""

from __future__ import annotations

import hashlib
import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import Path
from threading import Lock, RLock
from typing import Any, ClassVar, NamedTuple, Self
from weakref import WeakSet

import numpy as np

from ..household.env import one_command
from ..outcomes import EnvFailure, Reply, StopReason
from ..rewards import Rewards
from ..splits import check_split
from ..tasks import Message, check_known, choose_index, strict
from ..text_env import TextEnv
from .jvm import HEAP, POOL, SECONDS, AllLent, Jvm, missing

KNOWN: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SETS = ("official", "L0", "L1", "L2")
REWARDS = ("score", "won")
LONGEST = 300  # characters of a command
GOLD_HEAP = 1024  # MiB; the search for a gold path needs more than a world
UNKNOWN = (
    "No known action matches that input.",
    "Unknown action.",
)  # how the simulator begins where it did nothing


class SimulatorReply(NamedTuple):
    """What the simulator says to a command, the score from -100 to 100, and whether the task is over."""

    text: str
    score: int
    done: bool


class SimulatedWorld:
    """The world of one episode, in a JVM that is its own, and what was done in it.

    There may be more worlds than JVMs: one that waits is set aside, and what was done is done again when it is asked.
    """

    diverged: ClassVar[int] = (
        0  # worlds of this process where something else was seen the second time
    )
    live: ClassVar[WeakSet[SimulatedWorld]] = WeakSet()  # those that have a JVM

    def __init__(self, task: str, variation: int, simplification: str) -> None:
        self.began = (task, variation, simplification)
        self.commands: list[str] = []
        self.digest, self.closed, self.lock = "", False, RLock()
        self.jvm: Jvm | None = None
        self._load()
        self.task = str(self.ask("getTaskDescription"))
        self.opening = self.step("look around")

    def step(self, command: str) -> SimulatorReply:
        text = str(self.ask("step", command))
        score = round(100 * self.ask("getScore"))
        seen = SimulatorReply(text, score, self.ask("getCompleted") or score < 0)
        self.commands.append(command)
        self.digest = hashlib.sha256(
            repr((self.digest, *seen)).encode("utf-8", "replace")
        ).hexdigest()
        return seen

    def fork(self) -> SimulatedWorld:
        """Return a world in another JVM where the same was done; raise EnvFailure where it differs, or none is free."""
        twin = copy(self)
        twin.lock, twin.jvm, twin.commands = RLock(), None, list(self.commands)
        if not self.closed:
            twin._again()
        return twin

    def set_aside(self) -> bool:
        """Give the JVM back if nobody asks this world now; return whether it was."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            had = self.jvm is not None
            self._give()
            return had
        finally:
            self.lock.release()

    def close(self) -> None:
        """Give the JVM back; nothing can be done from now on."""
        with self.lock:
            self.closed = True
            self._give()

    def __del__(self) -> None:
        if vars(self).get("jvm"):
            self.close()

    def _load(self) -> None:
        self.jvm = lend()
        with _LIVE:
            self.live.add(self)
        if error := self.ask("load", *self.began, False):
            raise EnvFailure(f"{self.began[0]}/{self.began[1]} cannot be loaded: {error}")

    def _again(self) -> None:
        """Do what was done once more, in another JVM; refused where something else is seen."""
        done, digest = self.commands, self.digest
        self.commands, self.digest = [], ""
        self._load()
        for command in done:
            self.step(command)
        if self.digest != digest:
            SimulatedWorld.diverged += 1
            self.close()
            task, variation, _ = self.began
            why = f"the simulator is not deterministic there ({SimulatedWorld.diverged} of this process)"
            what = f"{task}/{variation} played again for {len(done) - 1} commands is another world"
            raise EnvFailure(f"{what}: {why}; replay it, or fork at another turn")

    def _give(self) -> None:
        if self.jvm is not None:
            with _LIVE:
                self.live.discard(self)
            POOL.give(self.jvm)
            self.jvm = None

    def ask(self, method: str, *args: str | int | bool) -> Any:
        """Return what a method of the simulator gives; a world that was set aside is played again for it."""
        with self.lock:
            if self.closed:
                raise RuntimeError("this world is closed: call reset()")
            try:
                if self.jvm is None:
                    self._again()
                assert self.jvm is not None
                return self.jvm.call(method, *args)
            except EnvFailure:
                self.close()
                raise


_LIVE = RLock()  # of `World.live`; a world that is collected may need it where it is held


def lend(heap: int = HEAP) -> Jvm:
    """Return a JVM; where all are lent, that of the waiting world in which least was done.

    Raises `EnvFailure` where none can be started, or no world waits for two minutes.
    """
    until = time.monotonic() + SECONDS
    while True:
        try:
            return POOL.take(heap)
        except AllLent:
            with _LIVE:
                worlds = sorted(SimulatedWorld.live, key=lambda world: len(world.commands))
            if not any(world.set_aside() for world in worlds):
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


class ScienceWorld(TextEnv):
    """Carry out an experiment; the official score / 100, or 1 for an episode that is won.

    Both are in `rewards` of `info`, whichever is paid. `score` is paid as it grows; an episode that failed ends at -1.
    `won`: the task is over, and the score is above 0. An action is one command, or what is in its first
    `<action>…</action>`.

    Args:
        tasks: The tasks and their variations; `reset(options={"task": i})` picks one.
        simplification: Official simplifications, with commas; `easy` are all of them.
        reward: `score` or `won`: which of them is paid.
        max_turns: Turn limit.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks"}
    open: ClassVar[WeakSet[ScienceWorld]] = WeakSet()  # as long as there is one, idle JVMs are kept

    def __init__(
        self,
        tasks: Sequence[tuple[str, int]],
        simplification: str = "easy",
        reward: str = "score",
        max_turns: int = 100,
    ) -> None:
        super().__init__(max_turns)
        self.tasks, self.simplification = tuple(tasks), simplification
        self.weights = {name: float(name == reward) for name in REWARDS}
        self.world: SimulatedWorld | None = None
        self.paid = 0.0
        self.open.add(self)

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        self._leave()
        task, variation = self.tasks[choose_index(rng, options, self.tasks)]
        self.world, self.paid = SimulatedWorld(task, variation, self.simplification), 0.0
        self.task_id, self.category = f"{task}/{variation}", task
        return f"{self.world.task}\n\n{self.world.opening.text}"

    def messages(self, observation: str) -> list[Message]:
        """Return the system prompt, a list of the commands, and what the simulator says at first."""
        return [
            {"role": "system", "content": KNOWN["system"]},
            {"role": "user", "content": observation},
        ]

    def on_step(self, text: str) -> Reply:
        world = self._world()
        command, fault = one_command(text, "look around")
        if not fault and len(command) > LONGEST:
            fault = f"this command has {len(command)} characters, and nothing was done; at most {LONGEST} are read"
        if fault:
            return Reply(
                f"Error: {fault}", self._earned(self.paid), info={"command": None}, valid=False
            )
        seen = world.step(command)
        won = seen.done and seen.score > 0
        reward = self._earned(seen.score / 100, won)
        info = {"command": command, "score": seen.score, "won": won}
        stop = (StopReason.GOAL if won else StopReason.ANSWERED) if seen.done else None
        if seen.done or self.turn + 1 >= self.max_turns:
            self._leave()
        return Reply(seen.text, reward, stop, info=info, valid=not seen.text.startswith(UNKNOWN))

    def gold(self) -> list[str]:
        """Return the rest of the official gold path, all of it where something else was done so far."""
        world = self._world()
        path, done = list(_gold(*world.began)), world.commands[1:]
        return path[len(done) :] if path[: len(done)] == done else path

    def valid_actions(self) -> list[str]:
        """Return the commands that do something now, sorted; takes as long as several steps."""
        found = json.loads(self._world().ask("getValidActionObjectCombinationsJSON"))[
            "validActions"
        ]
        return sorted({str(one["action"]) for one in found})

    def fork(self) -> Self:
        """Return a live copy, whose world is another JVM in which the same was done; raises as `SimulatedWorld`."""
        twin = super().fork()
        self.open.add(twin)
        return twin

    def close(self) -> None:
        """Give the JVM back; with the last environment all that are idle end."""
        self._leave()
        self.live = False
        self.open.discard(self)
        if not self.open:
            POOL.close()

    def _earned(self, score: float, won: bool = False) -> Rewards:
        gained = score - self.paid
        self.paid += gained  # what the rewards so far add up to, to the last bit
        return Rewards({"score": gained, "won": float(won)}, self.weights)

    def _world(self) -> SimulatedWorld:
        if self.world is None:
            raise RuntimeError("there is no world: call reset() first")
        return self.world

    def _leave(self) -> None:
        if self.world is not None:
            self.world.close()


_SEARCH = Lock()  # one search for a gold path at a time, as each takes much memory


@lru_cache(maxsize=10_000)
def _gold(task: str, variation: int, simplification: str) -> tuple[str, ...]:
    with _SEARCH:
        jvm = lend(GOLD_HEAP)
        try:
            jvm.call("load", task, variation, simplification, True)
            found = jvm.call("getGoldActionSequence")
            return tuple(jvm.call("get", i, of=found) for i in range(jvm.call("size", of=found)))
        finally:
            POOL.give(jvm)


@strict
def make_scienceworld(
    task: str | Sequence[str] | None = None,
    split: str = "train",
    sets: str = "official",
    variation: int | Sequence[int] | None = None,
    simplification: str = "easy",
    reward: str = "score",
    max_turns: int = 100,
) -> ScienceWorld:
    """Return `turngym/ScienceWorld-v0`.

    Args:
        task: One or several of the 30 tasks, such as `boil`; all when left out.
        split: `train`, `valid` (the official `dev`), `test`, or `all`, for the official sets only.
        sets: `official`, or sets without `use-thermometer`: `L0` tests on `dev`, `L1` on `test`, and `L2` on `test` of
            ten tasks of which it trains on none. What they do not name is `valid`.
        variation: One or several numbers of variations to keep.
        simplification: `easy`, `""` for none, or some of them with commas.
        reward: `score` or `won`: which is paid.
        max_turns: Turn limit.

    Raises ValueError where there is no such task, split, set, variation, simplification or reward, or what the
    simulator needs is not installed.
    """
    names = KNOWN["variations"]
    kept = list(names) if task is None else [task] if isinstance(task, str) else list(task)
    wanted = (
        {variation} if isinstance(variation, int) else None if variation is None else set(variation)
    )
    for name in kept:
        check_known(name, names, f"task is {name!r}", "there are")
    check_known(sets, SETS, f"sets is {sets!r}", "there are")
    check_known(reward, REWARDS, f"reward is {reward!r}", "there are")
    for one in filter(None, simplification.split(",")):
        check_known(one, KNOWN["simplifications"], f"simplification is {one!r}", "there are")
    items = [
        (name, i)
        for name in kept
        for i in variations(name, split, sets)
        if wanted is None or i in wanted
    ]
    if not items or (wanted and not wanted <= {i for _, i in items}):
        some = variations(kept[0], split, sets)
        have = f"{kept[0]} has {some[0]} to {some[-1]}" if some else f"{kept[0]} has none"
        raise ValueError(
            f"variation is {variation!r}, split {split!r}, sets {sets!r}: there is none such; {have}"
        )
    if wrong := missing():
        raise ValueError(f"ScienceWorld: {wrong}")
    return ScienceWorld(items, simplification, reward, max_turns)


def variations(task: str, split: str, sets: str = "official") -> range:
    """Return the numbers of a task's variations in a split; none of tasks that the set leaves out."""
    count = KNOWN["variations"][task]
    quarter = count // 4
    if sets == "official" and split == "all":
        return range(count)
    check_split(split)
    tested = sets == "L2" and task in KNOWN["unseen"]
    if sets != "official" and (
        task in KNOWN["left_out"] or (sets == "L2" and tested != (split == "test"))
    ):
        return range(0)
    dev, test = range(2 * quarter, 3 * quarter), range(3 * quarter, count)
    valid, test = (test, dev) if sets == "L0" else (dev, test)
    return {"train": range(2 * quarter), "valid": valid, "test": test}[split]
