"""`ScienceWorld-v0`: experiments of elementary science in a house, in the official simulator.

`make_scienceworld` makes the environment `ScienceWorld`; each of its episodes plays in a
`SimulatedWorld`. The simulator has one random generator for all its worlds, so each episode has a
JVM of its own. A fork repeats the actions in another JVM and is refused if it sees anything else.

Source: R. Wang et al., "ScienceWorld: Is your Agent Smarter than a 5th Grader?" (2203.07540),
package `scienceworld` (Apache-2.0). The sets L0, L1 and L2 are those of RLVMR (2507.22844), on
which EPO (2509.22576) reports.
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

from ..household.env import extract_command
from ..outcomes import EnvFailure, Reply, StopReason
from ..rewards import Rewards
from ..splits import check_split
from ..tasks import Message, check_known, choose_index, strict
from ..text_env import TextEnv
from .jvm import HEAP_MIB, POOL, TIMEOUT, AllLent, Jvm, describe_missing

# The system prompt, the simplifications, the tasks with the number of their variations, and which
# tasks the sets of RLVMR leave out.
OFFICIAL: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SETS = ("official", "L0", "L1", "L2")
REWARDS = ("score", "won")
MAX_COMMAND_CHARACTERS = 300
GOLD_HEAP_MIB = 1024  # the search for a gold path needs more memory than a world
# How the simulator's answer begins if it did not understand a command, and so did nothing.
NOT_UNDERSTOOD = ("No known action matches that input.", "Unknown action.")


class ScienceWorld(TextEnv):
    """Carry out an experiment; the reward is the official score / 100, or 1 for a won episode.

    `info["rewards"]` has both rewards, whichever of them is paid. `score` is paid as it grows; an
    episode that failed ends at -1. `won` is 1 at the end of a task with a score above 0. An action
    is one command, or the text in its first `<action>…</action>`.

    Args:
        tasks: The tasks and their variations; `reset(options={"task": i})` picks one.
        simplification: Official simplifications, separated by commas; `easy` is all of them.
        reward: Which reward is paid: `score` or `won`.
        max_turns: Turn limit.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks"}
    # The environments that are not closed; with the last one all idle JVMs end.
    open: ClassVar[WeakSet[ScienceWorld]] = WeakSet()

    def __init__(
        self,
        tasks: Sequence[tuple[str, int]],
        simplification: str = "easy",
        reward: str = "score",
        max_turns: int = 100,
    ) -> None:
        super().__init__(max_turns)
        self.tasks = tuple(tasks)
        self.simplification = simplification
        self.weights = {name: float(name == reward) for name in REWARDS}
        self.world: SimulatedWorld | None = None
        self.paid_score = 0.0
        self.open.add(self)

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Load a variation of a task; return what the task is and a first look around."""
        self._leave_world()
        task, variation = self.tasks[choose_index(rng, options, self.tasks)]
        self.world = SimulatedWorld(task, variation, self.simplification)
        self.paid_score = 0.0
        self.task_id = f"{task}/{variation}"
        self.category = task
        return f"{self.world.task}\n\n{self.world.opening.text}"

    def messages(self, observation: str) -> list[Message]:
        """Return the system prompt, which lists the commands, and the first observation."""
        return [
            {"role": "system", "content": OFFICIAL["system"]},
            {"role": "user", "content": observation},
        ]

    def on_step(self, text: str) -> Reply:
        """Carry out the one command of a reply."""
        world = self._require_world()
        command, fault = extract_command(text, "look around")
        if not fault and len(command) > MAX_COMMAND_CHARACTERS:
            fault = (
                f"this command has {len(command)} characters, and nothing was done; "
                f"at most {MAX_COMMAND_CHARACTERS} are read"
            )
        if fault:
            unchanged = self._pay(self.paid_score, won=False)
            return Reply(f"Error: {fault}", unchanged, info={"command": None}, valid=False)
        answer = world.step(command)
        won = answer.done and answer.score > 0
        reward = self._pay(answer.score / 100, won)
        stop = None
        if answer.done:
            stop = StopReason.GOAL if won else StopReason.ANSWERED
        if answer.done or self.turn + 1 >= self.max_turns:
            self._leave_world()
        return Reply(
            answer.text,
            reward,
            stop,
            info={"command": command, "score": answer.score, "won": won},
            valid=not answer.text.startswith(NOT_UNDERSTOOD),
        )

    def gold(self) -> list[str]:
        """Return the remaining commands of the official gold path.

        They are all of them if the agent has left that path.
        """
        world = self._require_world()
        gold_path = list(_gold_path(*world.start))
        commands = world.commands[1:]  # without the first look around
        if gold_path[: len(commands)] == commands:
            return gold_path[len(commands) :]
        return gold_path

    def valid_actions(self) -> list[str]:
        """Return the commands that have an effect now, sorted; takes as long as several steps."""
        combinations = self._require_world().call("getValidActionObjectCombinationsJSON")
        valid_actions = json.loads(combinations)["validActions"]
        return sorted({str(combination["action"]) for combination in valid_actions})

    def fork(self) -> Self:
        """Return a live copy, whose world is another JVM in which the same was done.

        Raises:
            EnvFailure: The copy sees something else, or there is no JVM for it.
        """
        twin = super().fork()
        self.open.add(twin)
        return twin

    def close(self) -> None:
        """Give the JVM back; the last environment to be closed ends all idle JVMs."""
        self._leave_world()
        self.live = False
        self.open.discard(self)
        if not self.open:
            POOL.close()

    def _pay(self, score: float, won: bool) -> Rewards:
        """Return the rewards of a turn after which the episode's score is `score` (1 is full)."""
        gain = score - self.paid_score
        # Not `score`: the sum of the rewards, to the last bit, or rounding errors would add up.
        self.paid_score += gain
        return Rewards({"score": gain, "won": float(won)}, self.weights)

    def _require_world(self) -> SimulatedWorld:
        if self.world is None:
            raise RuntimeError("there is no world: call reset() first")
        return self.world

    def _leave_world(self) -> None:
        if self.world is not None:
            self.world.close()


class SimulatorAnswer(NamedTuple):
    """What the simulator says to a command."""

    text: str
    score: int  # of the episode so far, from -100 to 100
    done: bool  # whether the task is over, solved or not


class WorldStart(NamedTuple):
    """What a world is loaded from."""

    task: str
    variation: int
    simplification: str


class SimulatedWorld:
    """The world of one episode, in a JVM that no other world uses, and the commands given in it.

    There may be more worlds than JVMs. A world that nobody uses at the moment can be set aside: it
    gives its JVM to another world, and repeats its commands in a new JVM when it is used again.

    Args:
        task: The name of the task.
        variation: The number of its variation.
        simplification: Official simplifications, separated by commas.

    Raises:
        EnvFailure: The variation cannot be loaded, or there is no JVM for it.
    """

    # How many worlds of this process saw something else when their commands were repeated.
    diverged: ClassVar[int] = 0
    live: ClassVar[WeakSet[SimulatedWorld]] = WeakSet()  # the worlds that have a JVM

    def __init__(self, task: str, variation: int, simplification: str) -> None:
        self.start = WorldStart(task, variation, simplification)
        self.commands: list[str] = []
        self.digest = ""  # of all answers so far
        self.closed = False
        self.lock = RLock()
        self.jvm: Jvm | None = None
        self._load()
        self.task = str(self.call("getTaskDescription"))
        self.opening = self.step("look around")

    def step(self, command: str) -> SimulatorAnswer:
        """Carry out a command."""
        text = str(self.call("step", command))
        score = round(100 * self.call("getScore"))
        # As in the official client, a negative score ends the task: the simulator itself goes on.
        answer = SimulatorAnswer(text, score, done=self.call("getCompleted") or score < 0)
        self.commands.append(command)
        digest_input = repr((self.digest, *answer)).encode("utf-8", "replace")
        self.digest = hashlib.sha256(digest_input).hexdigest()
        return answer

    def call(self, method: str, *args: str | int | bool) -> Any:
        """Call a method of the simulator; a world that was set aside is restored first.

        Raises:
            EnvFailure: The JVM fails, or the world cannot be restored; the world is closed then.
        """
        with self.lock:
            if self.closed:
                raise RuntimeError("this world is closed: call reset()")
            try:
                if self.jvm is None:
                    self._repeat_commands()
                assert self.jvm is not None
                return self.jvm.call(method, *args)
            except EnvFailure:
                self.close()
                raise

    def fork(self) -> SimulatedWorld:
        """Return a world in another JVM, in which the same commands were given.

        Raises:
            EnvFailure: The other world gives other answers, or there is no JVM for it.
        """
        twin = copy(self)
        twin.lock = RLock()
        twin.jvm = None
        twin.commands = list(self.commands)
        if not self.closed:
            twin._repeat_commands()
        return twin

    def set_aside(self) -> bool:
        """Give the JVM back, unless another thread uses it right now.

        Returns:
            Whether there was a JVM, and it was given back.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
            had_jvm = self.jvm is not None
            self._give_back_jvm()
            return had_jvm
        finally:
            self.lock.release()

    def close(self) -> None:
        """Give the JVM back; this world cannot be used any more."""
        with self.lock:
            self.closed = True
            self._give_back_jvm()

    def __del__(self) -> None:
        if vars(self).get("jvm"):  # the attribute is missing if `__init__` has raised
            self.close()

    def _load(self) -> None:
        """Take a JVM and load the task in its initial state."""
        self.jvm = take_jvm()
        with _LIVE_LOCK:
            self.live.add(self)
        with_gold_path = False
        error = self.call("load", *self.start, with_gold_path)
        if error:
            raise EnvFailure(f"{self.start.task}/{self.start.variation} cannot be loaded: {error}")

    def _repeat_commands(self) -> None:
        """Load the world in another JVM and repeat all commands.

        Raises:
            EnvFailure: The answers are not those of the first time; the world is closed then.
        """
        commands = self.commands
        digest = self.digest
        self.commands = []
        self.digest = ""
        self._load()
        for command in commands:
            self.step(command)
        if self.digest != digest:
            SimulatedWorld.diverged += 1
            self.close()
            raise EnvFailure(
                f"{self.start.task}/{self.start.variation} played again for "
                f"{len(commands) - 1} commands is another world: the simulator is not "
                f"deterministic there ({SimulatedWorld.diverged} of this process); "
                "replay it, or fork at another turn"
            )

    def _give_back_jvm(self) -> None:
        if self.jvm is not None:
            with _LIVE_LOCK:
                self.live.discard(self)
            POOL.give_back(self.jvm)
            self.jvm = None


# Guards `SimulatedWorld.live`. It is reentrant, as the garbage collector may run the `__del__` of a
# world, which needs the lock, in a thread that has it.
_LIVE_LOCK = RLock()


def take_jvm(heap: int = HEAP_MIB) -> Jvm:
    """Return a JVM; if all are in use, the one of an unused world with the fewest commands.

    Args:
        heap: The limit of its heap in MiB.

    Raises:
        EnvFailure: None can be started, or all worlds are in use for the whole timeout.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return POOL.take(heap)
        except AllLent:
            with _LIVE_LOCK:
                cheapest_first = sorted(SimulatedWorld.live, key=lambda world: len(world.commands))
            if any(world.set_aside() for world in cheapest_first):
                continue
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


_GOLD_SEARCH_LOCK = Lock()  # one search at a time, as each takes much memory


@lru_cache(maxsize=10_000)
def _gold_path(task: str, variation: int, simplification: str) -> tuple[str, ...]:
    """Return the commands of the official gold path, which the simulator finds while it loads."""
    with _GOLD_SEARCH_LOCK:
        jvm = take_jvm(GOLD_HEAP_MIB)
        try:
            with_gold_path = True
            jvm.call("load", task, variation, simplification, with_gold_path)
            java_list = jvm.call("getGoldActionSequence")
            length = jvm.call("size", target=java_list)
            return tuple(jvm.call("get", i, target=java_list) for i in range(length))
        finally:
            POOL.give_back(jvm)


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
        task: One or several of the 30 tasks, such as `boil`; by default all.
        split: `train`, `valid` (the official `dev`), `test`, or `all`, for the official sets only.
        sets: `official`, or sets without `use-thermometer`: `L0` tests on `dev`, `L1` on `test`,
            and `L2` on `test` of ten tasks, none of which is in its `train`. The remaining
            variations are `valid`.
        variation: The numbers of the variations to keep, one or several; by default all.
        simplification: `easy`, `""` for none, or some of them, separated by commas.
        reward: Which reward is paid: `score` or `won`.
        max_turns: Turn limit.

    Raises:
        ValueError: There is no such task, split, set, variation, simplification or reward, or
            what the simulator needs is not installed.
    """
    if task is None:
        task_names = list(OFFICIAL["variations"])
    elif isinstance(task, str):
        task_names = [task]
    else:
        task_names = list(task)
    for name in task_names:
        check_known(name, OFFICIAL["variations"], f"task is {name!r}", "there are")
    check_known(sets, SETS, f"sets is {sets!r}", "there are")
    check_known(reward, REWARDS, f"reward is {reward!r}", "there are")
    for name in simplification.split(","):
        if name:
            fault = f"simplification is {name!r}"
            check_known(name, OFFICIAL["simplifications"], fault, "there are")
    tasks = _select_variations(task_names, split, sets, variation)
    missing = describe_missing()
    if missing:
        raise ValueError(f"ScienceWorld: {missing}")
    return ScienceWorld(tasks, simplification, reward, max_turns)


def _select_variations(
    task_names: Sequence[str], split: str, sets: str, variation: int | Sequence[int] | None
) -> list[tuple[str, int]]:
    """Return pairs of a task and the number of a variation in the split, task by task.

    Args:
        task_names: The tasks.
        split: The split.
        sets: One of `SETS`.
        variation: The only numbers to keep, one or several; None for all.

    Raises:
        ValueError: Nothing is left, or a number in `variation` is in the split of no task.
    """
    wanted_numbers: set[int] | None = None
    if isinstance(variation, int):
        wanted_numbers = {variation}
    elif variation is not None:
        wanted_numbers = set(variation)
    selected: list[tuple[str, int]] = []
    for name in task_names:
        for number in variations(name, split, sets):
            if wanted_numbers is None or number in wanted_numbers:
                selected.append((name, number))
    selected_numbers = {number for _, number in selected}
    if selected and (wanted_numbers is None or wanted_numbers <= selected_numbers):
        return selected
    example_task = task_names[0]
    numbers = variations(example_task, split, sets)
    available = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
    raise ValueError(
        f"variation is {variation!r}, split {split!r}, sets {sets!r}: there is none such; "
        f"{example_task} has {available}"
    )


def variations(task: str, split: str, sets: str = "official") -> range:
    """Return the numbers of a task's variations in a split; none if the set leaves the task out.

    Officially the first half is `train`, the third quarter `dev`, and the last quarter `test`. `L0`
    swaps the latter two. `L2` tests on tasks that it never trains or validates on.

    Args:
        task: The name of the task.
        split: `train`, `valid` or `test`; in the official sets also `all`.
        sets: One of `SETS`.

    Raises:
        ValueError: There is no such split.
    """
    count = OFFICIAL["variations"][task]
    quarter = count // 4
    if sets == "official" and split == "all":
        return range(count)
    check_split(split)
    if sets != "official" and task in OFFICIAL["left_out"]:
        return range(0)
    if sets == "L2":
        is_test_task = task in OFFICIAL["unseen"]
        if is_test_task != (split == "test"):
            return range(0)
    train = range(2 * quarter)
    dev = range(2 * quarter, 3 * quarter)
    test = range(3 * quarter, count)
    if sets == "L0":
        return {"train": train, "valid": test, "test": dev}[split]
    return {"train": train, "valid": dev, "test": test}[split]
