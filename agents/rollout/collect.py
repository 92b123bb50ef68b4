"""Rollouts: a policy acts in copies of an environment and every path ends with a typed outcome.

Invariant: what is drawn depends only on the keys (seed, step, task, branch, turn) and the weights, never on how many
rollouts are in flight, how fast their tools answer, or which of them failed and began again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from ...envs import TextEnv
from ..engine import Sampling
from ..incidents import OnIncident, ignore
from ..settings import DeadlineOptions
from ..trajectory import Tree
from .branching import Plan
from .deadlines import Deadlines, Watch
from .path import Actor, Driver
from .tree import TreeGrower


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
    retries: int = DeadlineOptions.retries,
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
        plan: Where paths are forked off; a tree then grows in rounds (`tree.py`).
        in_flight: The most paths at once; with a `plan`, trees are begun so that about as many are alive.
        deadlines: What may take how long; a path that overruns has failed.
        retries: How often a failed path begins again, with the same key in a fresh environment: from the prompt, or
            with a `plan` from its last turn.
        on_incident: Called with every failure, retry, passed deadline and stall.
        on_tree: Called with each tree as it is finished, in order of finishing.

    Raises:
        EngineFailure: the engine cannot be had with the policy's weights as they are.
    """
    trees: list[Tree] = []

    async def run() -> None:
        await actor.engine.sync()
        watch = Watch(deadlines, on_incident)
        driver = Driver(actor, sampling, watch)
        paths = asyncio.Semaphore(in_flight)
        alive = asyncio.Semaphore(max(in_flight // group, 1)) if plan else nullcontext()

        async def grow(task: int) -> Tree:
            async with alive:
                tree = await TreeGrower(driver, Tree((*key, task), task, ""), plan, group, paths, retries).grow(env)
            if on_tree is not None:
                on_tree(tree)
            return tree

        stalls = asyncio.create_task(watch.report_stalls())
        try:
            trees.extend(await asyncio.gather(*(grow(task) for task in tasks)))
        finally:
            stalls.cancel()

    # Python formats the task's result where `asyncio.run` gives the signal handler back; trees there cost seconds.
    asyncio.run(run())
    return trees


def shuffled_scores(trees: Sequence[Tree], key: tuple[int, ...]) -> list[Tree]:
    """Return the trees with their scores dealt out at random among all rewarded paths."""
    scores = [leaf.score for tree in trees for leaf in tree.leaves if leaf.rewarded]
    dealt = iter(np.random.default_rng(key).permutation(np.array(scores)).tolist())
    return [
        replace(tree, leaves=[replace(leaf, score=next(dealt)) if leaf.rewarded else leaf for leaf in tree.leaves])
        for tree in trees
    ]
