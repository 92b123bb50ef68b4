"""Rollouts: a policy acts in copies of an environment and every path ends with a typed outcome.

Invariant: what is drawn depends only on the keys (seed, step, task, branch, turn) and the weights, never on how many
rollouts are in flight, how fast their tools answer, or which of them failed and began again.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ...envs import TextEnv
from ...tools.progress import Progress
from ..cli.settings import Deadlines
from ..engine import Sampling
from ..journal.trees import OnIncident
from ..trajectory import Plan, Tree
from .path import Actor, Driver, Watch
from .tree_grower import OnPath, TreeGrower


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
    on_incident: OnIncident = lambda incident: None,
    skipped: Mapping[int, Collection[int]] = MappingProxyType({}),
    on_path: OnPath = lambda path: None,
) -> list[Tree]:
    """Grow one tree of `group` branches for each task and return them in the order of `tasks`.

    env: A template that is forked for every path; it is not stepped itself.
    group: Paths a tree: all from the prompt, or where `plan` says; a tree then grows in rounds.
    key: (seed, step), from which all randomness derives.
    in_flight: The most paths at once; with a `plan`, trees are begun so that about as many are alive.
    deadlines: What may take how long; a path that overruns has failed. A failed path begins again, up to `retries`
        times, with the same key in a fresh environment: from the prompt, or with a `plan` from its last turn.
    on_incident: Called with every failure, retry, passed deadline and stall.
    skipped, on_path: Branches of a task that are left out; called with each path as it ends, as a tree of its own.
        Both without a `plan` only.

    Raises EngineFailure where the engine cannot be had with the policy's weights as they are.
    """
    trees: list[Tree] = []
    count = len(tasks) * group - sum(len(skipped.get(task, ())) for task in tasks)

    def ended(path: Tree) -> None:
        if not plan:
            work.advance(tokens=sum(int(turn.sampled.sum()) for turn in path.turns))
        on_path(path)

    async def run() -> None:
        await actor.engine.sync()
        watch = Watch(deadlines, on_incident, in_flight)
        driver = Driver(actor, sampling, watch)
        alive = asyncio.Semaphore(max(in_flight // group, 1)) if plan else nullcontext()

        async def grow(task: int) -> Tree:
            async with alive:
                tree, left_out = Tree((*key, task), task, ""), skipped.get(task, ())
                tree = await TreeGrower(driver, tree, plan, group, left_out, ended).grow(env)
                work.advance(1 if plan else 0)
                return tree

        stalls = asyncio.create_task(watch.report_stalls())
        try:
            trees.extend(await asyncio.gather(*(grow(task) for task in tasks)))
        finally:
            stalls.cancel()

    # Python formats the task's result where `asyncio.run` gives the signal handler back; trees there cost seconds.
    with Progress("trees", len(tasks)) if plan else Progress("paths", count) as work:
        asyncio.run(run())
    return trees


def shuffled_scores(trees: Sequence[Tree], key: tuple[int, ...]) -> list[Tree]:
    """Return the trees with their scores dealt out at random among all rewarded paths."""
    scores = [leaf.score for tree in trees for leaf in tree.leaves if leaf.rewarded]
    dealt = iter(np.random.default_rng(key).permutation(np.array(scores)).tolist())
    leaves = (
        [replace(one, score=next(dealt)) if one.rewarded else one for one in tree.leaves]
        for tree in trees
    )
    return [replace(tree, leaves=own) for tree, own in zip(trees, leaves)]
