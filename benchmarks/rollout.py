r"""What a rollout costs besides drawing: `collect` with a policy that answers at once, beside a bare loop.

    python benchmarks/rollout.py [--rounds 5] [--turns 4]

The policy is an engine whose sessions return scripted tokens without a pause; the environment answers every turn with
a line of text. Trees have 8 paths, all from the prompt, or branching: two begin there and every turn forks one more
while the budget lasts. The peer is a plain loop over the same environments with the same words: a fork and a reset a
path, no tokens, threads, deadlines or trees. Microseconds are CPU time of the process a turn, medians of rounds in
which both take turns; turns/s are by the clock.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from turngym.agents.chat.chat import Chat
from turngym.agents.engine import Completion, Cut, Sampling
from turngym.agents.models.resolve import TINY
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.agents.trajectory import Event, Plan, Spawn, Tree
from turngym.envs import Reply, StopReason, TextEnv

PATHS = (1, 8, 64, 512)
GROUP = 8


class Echo(TextEnv):
    """Answers each turn with a line; pays at the end."""

    tasks = range(100_000)

    def __init__(self, turns: int) -> None:
        super().__init__(max_turns=turns + 1)
        self.turns = turns

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Ask."""
        self.task_id = f"echo-{options.get('task', 0)}"
        return "What is 17 + 25?"

    def on_step(self, text: str) -> Reply:
        """Answer, or end the episode."""
        if self.turn + 1 < self.turns:
            return Reply(f"line {self.turn}: 42", role="tool")
        return Reply("", 1.0, StopReason.ANSWERED)


class Script:
    """An engine and its sessions in one, which draw the same tokens at once."""

    max_context = 4096

    def __init__(self, tokens: NDArray[np.int32]) -> None:
        zeros = np.zeros(len(tokens), np.float32)
        self.said = Completion(tokens, zeros - 1, zeros + 1, "end", 0)
        self.length = self.turns = 0

    async def sample(
        self,
        tokens: NDArray[np.int32],
        sampling: Sampling,
        key: tuple[int, ...],
        cut: Cut | None = None,
    ) -> Completion:
        """Answer at once."""
        self.turns += 1
        return self.said

    def session(self) -> Self:
        """Return the one there is."""
        return self

    def fork(self, length: int | None = None) -> Self:
        """Return the one there is."""
        return self

    async def sync(self) -> None:
        """Have nothing to do."""

    def close(self) -> None:
        """Have nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Have nothing to close."""


def branching(tree: Tree, event: Event, key: tuple[int, ...]) -> list[Spawn]:
    """Begin with two paths and fork one more behind every turn."""
    if event.kind == "start":
        return [Spawn(0, n=2)]
    return [Spawn(event.node)] if event.kind == "turn" else []


@dataclass(frozen=True)
class Cost:
    """Seconds and turns of some rollouts."""

    cpu: float
    clock: float
    turns: int

    @property
    def each(self) -> float:
        """Return microseconds of CPU time a turn."""
        return 1e6 * self.cpu / self.turns


def timed(work: Callable[[], int]) -> Cost:
    """Time what returns how many turns it took."""
    cpu, clock = time.process_time(), time.perf_counter()
    turns = work()
    return Cost(time.process_time() - cpu, time.perf_counter() - clock, turns)


def plain(env: TextEnv, text: str, paths: int) -> int:
    """Step the environments of `paths` paths; return the turns."""
    turns = 0
    for path in range(paths):
        one = env.fork()
        one.reset(seed=0, options={"task": path // GROUP})
        over = False
        while not over:
            *_, terminated, truncated, _ = one.step(text)
            over, turns = terminated or truncated, turns + 1
        one.close()
    return turns


def rollout(
    chat: Chat, env: TextEnv, tokens: NDArray[np.int32], paths: int, plan: Plan | None
) -> int:
    """Collect `paths` paths; return the turns that were drawn."""
    script, group = Script(tokens), min(GROUP, paths)
    actor = Actor(script, chat, chat.end_ids)
    trees = collect(
        actor,
        env,
        range(paths // group),
        group=group,
        key=(0, 0),
        sampling=Sampling(),
        plan=plan,
        in_flight=paths,
    )
    assert all(leaf.score == 1 for tree in trees for leaf in tree.leaves)
    return script.turns


def main() -> int:
    """Print a line for each kind and number of paths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed rollouts of each kind")
    parser.add_argument("--turns", type=int, default=4, help="turns a path")
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    options.rounds = 1 if options.quick else options.rounds
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.turns} turns a path")
    chat, env, text = Chat.from_folder(TINY), Echo(options.turns), "<tool_call>17 + 25</tool_call>"
    tokens = np.array([*chat.tokenizer.encode(text).ids, *chat.end_ids], np.int32)
    kinds: dict[str, Plan | None] = {"all from the prompt": None, "branching": branching}
    for name, plan in kinds.items():
        for paths in PATHS:
            bare, ours = (
                partial(plain, env, text, paths),
                partial(rollout, chat, env, tokens, paths, plan),
            )
            times = [(timed(bare), timed(ours)) for _ in range(options.rounds)]
            least, each = (median(cost.each for cost in column) for column in zip(*times))
            rate, turns = median(cost.turns / cost.clock for _, cost in times), times[0][1].turns
            print(f"{name:20} {paths:4} paths, {turns:5} turns   {rate:7,.0f} turns/s", end="   ")
            print(
                f"{each:6.0f} us CPU a turn, {each / least:5.1f}x the {least:.0f} of a plain loop",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
