"""Rollouts: a policy acts in copies of an environment and every path ends with a typed outcome.

Invariant: what is drawn depends only on the keys (seed, step, task, branch, turn) and the weights, never on how many
rollouts are in flight, how fast their tools answer, or which of them failed and began again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from ...envs import TextEnv
from ..engine import Sampling
from ..incidents import Incident, OnIncident, ignore
from ..trajectory import Leaf, Tree, given
from .branching import Plan
from .deadlines import Deadlines, Key, Overdue, Watch
from .path import Actor, Failed, Path, Stage
from .rounds import Rounds

__all__ = ["RETRIES", "Actor", "collect", "shuffled_scores"]

T = TypeVar("T")

RETRIES = 2  # how often a path that an infrastructure failure ended begins again


def collect(
    actor: Actor,
    env: TextEnv,
    tasks: Sequence[int],
    *,
    group: int,
    key: tuple[int, int],
    sampling: Sampling,
    plan: Plan | None = None,
    in_flight: int = 64,
    deadlines: Deadlines = Deadlines(),  # noqa: B008 (immutable)
    retries: int = RETRIES,
    on_incident: OnIncident = ignore,
    on_tree: Callable[[Tree], None] | None = None,
) -> list[Tree]:
    """Grow one tree of `group` branches for each task and return them in the order of `tasks`.

    Args:
        actor: Who acts.
        env: A template that is forked for every path; it is not stepped itself.
        tasks: Task indices.
        group: Paths a tree: all from the prompt, or where `plan` says.
        key: (seed, step), from which all randomness derives.
        sampling: How tokens are drawn.
        plan: Where paths are forked off; a tree then grows in rounds (`rounds.py`).
        in_flight: The most paths at once; with a `plan`, trees are begun so that about as many are alive.
        deadlines: What may take how long; a path that overruns has failed.
        retries: How often a failed path begins again, with the same key in a fresh environment.
        on_incident: Called with every failure, retry, passed deadline and stall.
        on_tree: Called with each tree as it is finished, in order of finishing.

    Raises:
        EngineFailure: the engine cannot be had with the policy's weights as they are.
    """
    trees: list[Tree] = []

    async def run() -> None:
        await actor.engine.sync()
        watch = Watch(deadlines, on_incident)
        grower = _Grower(Stage(actor, sampling, watch), env, plan, in_flight, group, retries)
        stalls = asyncio.create_task(watch.report_stalls())
        try:
            trees.extend(await asyncio.gather(*(grower.grow((*key, task), on_tree) for task in tasks)))
        finally:
            stalls.cancel()

    # Python formats the task's result where `asyncio.run` gives the signal handler back; trees there cost seconds.
    asyncio.run(run())
    return trees


@dataclass
class _Grower:
    stage: Stage
    env: TextEnv
    plan: Plan | None
    in_flight: int
    group: int
    retries: int

    def __post_init__(self) -> None:
        self.gate = asyncio.Semaphore(self.in_flight)
        self.trees = asyncio.Semaphore(max(self.in_flight // self.group, 1))

    async def grow(self, key: Key, on_tree: Callable[[Tree], None] | None) -> Tree:
        tree = Tree(key, key[-1], "")
        async with self.trees if self.plan else nullcontext():
            try:
                root = await self._persist(key, -1, partial(self.stage.begin, self.env, tree))
            except Failed as failed:
                tree.add(given(-1, "user", "", np.zeros(0, np.int32)))
                tree.leaves += [replace(failed.leaf, branch=branch) for branch in range(self.group)]
            else:
                try:
                    await self._branches(tree, root)
                finally:
                    await self.stage.close(root)
        tree = tree.canonical()
        if on_tree is not None:
            on_tree(tree)
        return tree

    async def _branches(self, tree: Tree, root: TextEnv) -> None:
        if self.plan is not None:
            await Rounds(self.stage, tree, root, self.group, self.plan, self.gate, self.retries).grow()
        else:  # all paths from the prompt, none waiting for another
            forking = asyncio.Lock()  # a tool serves one thread at a time
            await asyncio.gather(*(self._branch(tree, root, forking, branch) for branch in range(self.group)))

    async def _branch(self, tree: Tree, root: TextEnv, forking: asyncio.Lock, branch: int) -> None:
        async def attempt(path: Path) -> Leaf:
            async with forking:
                env = await self.stage.fork(root, path)
            # The engine feeds the prompt of a group once; nothing needs to be shared here.
            session = self.stage.actor.engine.session()
            try:
                while (leaf := await self.stage.turn(tree, env, session, path)) is None:
                    pass
                return leaf
            finally:
                session.close()
                await self.stage.close(env)

        try:
            leaf = await self._persist((*tree.key, branch), branch, attempt)
        except Failed as failed:
            leaf = failed.leaf
        tree.leaves.append(leaf)

    async def _persist(self, key: Key, branch: int, attempt: Callable[[Path], Awaitable[T]]) -> T:
        """Return what `attempt` gives, begun again with the same key as long as an infrastructure failure ends it."""
        watch = self.stage.watch
        path = Path(key, branch, watch.episode())
        try:
            await watch.queue(self.gate.acquire(), "waiting for a place among the paths in flight")
        except Overdue as overdue:
            watch.on_incident(Incident("failed", str(overdue), key))
            raise path.failure(overdue) from None
        try:
            for tries in range(self.retries + 1):
                try:
                    return await attempt(Path(key, branch, watch.episode()))
                except Failed as failed:
                    last = tries == self.retries or failed.leaf.info.get("deadline") == "step"
                    watch.on_incident(Incident("failed" if last else "retry", str(failed), key))
                    if last:
                        raise
        finally:
            self.gate.release()
        raise AssertionError("unreachable: the last attempt returns or raises")


def shuffled_scores(trees: Sequence[Tree], key: tuple[int, ...]) -> list[Tree]:
    """Return the trees with their scores dealt out at random among all rewarded paths."""
    scores = [leaf.score for tree in trees for leaf in tree.leaves if leaf.rewarded]
    dealt = iter(np.random.default_rng(key).permutation(np.array(scores)).tolist())
    return [
        Tree(
            tree.key,
            tree.task,
            tree.task_id,
            tree.turns,
            [replace(leaf, score=next(dealt)) if leaf.rewarded else leaf for leaf in tree.leaves],
        )
        for tree in trees
    ]
