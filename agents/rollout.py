"""Rollouts: a policy acts in copies of an environment and every path ends with a typed outcome.

Invariant: what is drawn depends only on the keys (seed, step, task, branch, turn) and the weights, never on how many
rollouts are in flight or how fast their tools answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from ..envs import Message, Outcome, StopReason, TextEnv, outcome_of
from .chat import Chat
from .engine import Completion, Engine, Sampling, Session
from .trajectory import Leaf, Tree, Turn, given


@dataclass(frozen=True)
class Actor:
    """A policy that speaks: an engine, its chat format, and the strings at which its turns are cut."""

    engine: Engine
    chat: Chat
    end_ids: frozenset[int]
    closers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """What an environment answered, as the rollout needs it."""

    messages: list[Message]
    reward: float
    stop: StopReason | None
    info: dict[str, Any]


def collect(
    actor: Actor,
    env: TextEnv,
    tasks: Sequence[int],
    *,
    group: int,
    key: tuple[int, int],
    sampling: Sampling,
    in_flight: int = 64,
    on_tree: Callable[[Tree], None] | None = None,
) -> list[Tree]:
    """Grow one tree of `group` branches for each task and return them in the order of `tasks`.

    Args:
        actor: Who acts.
        env: A template that is forked for every branch; it is not stepped itself.
        tasks: Task indices.
        group: Branches a tree, all from the prompt.
        key: (seed, step), from which all randomness derives.
        sampling: How tokens are drawn.
        in_flight: The most branches at once.
        on_tree: Called with each tree as it is finished, in order of finishing.
    """

    async def run() -> list[Tree]:
        gate = asyncio.Semaphore(in_flight)
        with ThreadPoolExecutor(in_flight, thread_name_prefix="turngym-env") as pool:
            grower = _Grower(actor, env, sampling, gate, pool)
            return list(await asyncio.gather(*(grower.grow((*key, task), group, on_tree) for task in tasks)))

    return asyncio.run(run())


class _Grower:
    def __init__(
        self, actor: Actor, env: TextEnv, sampling: Sampling, gate: asyncio.Semaphore, pool: ThreadPoolExecutor
    ) -> None:
        self.actor, self.env, self.sampling, self.gate, self.pool = actor, env, sampling, gate, pool

    async def grow(self, key: tuple[int, ...], group: int, on_tree: Callable[[Tree], None] | None) -> Tree:
        root = self.env.fork()
        observation, info = root.reset(seed=key[0], options={"task": key[-1]})
        tree = Tree(key, key[-1], info["task_id"])
        tree.add(given(-1, "user", observation, self.actor.chat.prompt(info["messages"], info["tools"])))
        try:
            await asyncio.gather(*(self._branch(tree, root, branch) for branch in range(group)))
        finally:
            root.close()
        tree = tree.canonical()
        if on_tree is not None:
            on_tree(tree)
        return tree

    async def _branch(self, tree: Tree, root: TextEnv, branch: int) -> None:
        async with self.gate:
            # The engine feeds the prompt of a group once; nothing needs to be shared here.
            env, session = root.fork(), self.actor.engine.session()
            try:
                tree.leaves.append(await self._play(tree, env, session, branch))
            finally:
                session.close()
                env.close()

    async def _play(self, tree: Tree, env: TextEnv, session: Session, branch: int) -> Leaf:
        node, score, turn = 0, 0.0, 0
        loop = asyncio.get_running_loop()
        while True:
            drawn = await session.sample(
                tree.turns[node].tokens, self.sampling, (*tree.key, branch, turn), self.actor.closers
            )
            if not len(drawn.tokens):
                return _leaf(node, branch, StopReason.CONTEXT, score, {})
            text = self.actor.chat.text(drawn.tokens, self.actor.end_ids)
            step = await loop.run_in_executor(self.pool, _step, env, text)
            score += step.reward
            node = tree.add(self._reply(node, text, drawn, step))
            if step.stop is not None:
                return _leaf(node, branch, step.stop, score, step.info)
            if drawn.stop == "context":
                return _leaf(node, branch, StopReason.CONTEXT, score, step.info)
            said = step.messages[0]
            tokens = self.actor.chat.reply(step.messages, int(drawn.tokens[-1]))
            node = tree.add(given(node, str(said["role"]), str(said["content"]), tokens))
            turn += 1

    def _reply(self, parent: int, text: str, drawn: Completion, step: Step) -> Turn:
        return Turn(
            parent=parent,
            role="assistant",
            text=text,
            tokens=drawn.tokens,
            sampled=np.ones(len(drawn.tokens), np.bool_),
            logp_roll=drawn.logp,
            entropy=drawn.entropy,
            temperature=self.sampling.temperature,
            version=drawn.version,
            ended=drawn.stop,
            reward=step.reward,
            info=step.info,
        )


def _leaf(node: int, branch: int, stop: StopReason, score: float, info: dict[str, Any]) -> Leaf:
    return Leaf(node, branch, outcome_of(stop), str(stop), score if _pays(stop) else float("nan"), info)


def _pays(stop: StopReason) -> bool:
    return outcome_of(stop) in (Outcome.DONE, Outcome.TRUNCATED)


def _step(env: TextEnv, text: str) -> Step:
    """Step an environment; what it raises and a reward that is no number are infrastructure failures, never scored."""
    try:
        _, reward, terminated, truncated, info = env.step(text)
    except Exception as error:
        return _failure(f"{type(error).__name__}: {error}")
    messages = info.pop("messages")
    stop = StopReason(info["stop"]) if terminated or truncated else None
    if not isfinite(reward) and (stop is None or _pays(stop)):
        return _failure(f"the environment paid a reward of {reward}")
    return Step(
        messages, reward, stop, {name: value for name, value in info.items() if name not in ("stop", "outcome")}
    )


def _failure(error: str) -> Step:
    return Step([], float("nan"), StopReason.INFRA_ERROR, {"error": error})


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
