"""Rollouts: a policy acts in copies of an environment and every path ends with a typed outcome.

Invariant: what is drawn depends only on the keys (seed, step, task, branch, turn) and the weights, never on how many
rollouts are in flight, how fast their tools answer, or which of them failed and began again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any, TypeVar

import numpy as np

from ..envs import StopReason, TextEnv, outcome_of
from ..tools.threads import start
from .answer import Answer, failure, pays, take
from .chat import Chat
from .deadlines import Deadlines, Key, Overdue, Watch
from .engine import Completion, Cut, Engine, Sampling, Session
from .incidents import Incident, OnIncident, ignore
from .trajectory import Leaf, Tree, Turn, given, opening

T = TypeVar("T")

RETRIES = 2  # how often a path that an infrastructure failure ended begins again
CLOSING = 2.0  # seconds that closing an environment may take before it is left behind


@dataclass(frozen=True)
class Actor:
    """A policy that speaks: an engine, its chat format, and what ends its turns at a call."""

    engine: Engine
    chat: Chat
    end_ids: frozenset[int]
    cut: Cut | None = None


def collect(
    actor: Actor,
    env: TextEnv,
    tasks: Sequence[int],
    *,
    group: int,
    key: tuple[int, int],
    sampling: Sampling,
    in_flight: int = 64,
    deadlines: Deadlines = Deadlines(),  # noqa: B008 (immutable)
    retries: int = RETRIES,
    on_incident: OnIncident = ignore,
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
        deadlines: What may take how long; a path that overruns has failed.
        retries: How often a failed path begins again, with the same key in a fresh environment.
        on_incident: Called with every failure, retry, passed deadline and stall.
        on_tree: Called with each tree as it is finished, in order of finishing.
    """

    async def run() -> list[Tree]:
        watch = Watch(deadlines, on_incident)
        grower = _Grower(actor, env, sampling, asyncio.Semaphore(in_flight), watch, retries)
        stalls = asyncio.create_task(watch.report_stalls())
        try:
            return list(await asyncio.gather(*(grower.grow((*key, task), group, on_tree) for task in tasks)))
        finally:
            stalls.cancel()

    return asyncio.run(run())


class _Failure(Exception):
    """An infrastructure failure ended a path where `leaf` is."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__(str(leaf.info.get("error", leaf.stop)))
        self.leaf = leaf


@dataclass
class _Path:
    """One attempt at a path, and how far it has come."""

    key: Key  # (seed, step, task, branch)
    branch: int
    ends: float  # when its deadline passes
    node: int = 0
    score: float = 0.0
    turn: int = 0

    def leaf(self, stop: StopReason, info: dict[str, Any]) -> Leaf:
        return Leaf(self.node, self.branch, outcome_of(stop), str(stop), self.score if pays(stop) else nan, info)

    def failure(self, error: Exception) -> _Failure:
        return _Failure(self.leaf(StopReason.INFRA_ERROR, _told(error)))


class _Grower:
    def __init__(
        self, actor: Actor, env: TextEnv, sampling: Sampling, gate: asyncio.Semaphore, watch: Watch, retries: int
    ) -> None:
        self.actor, self.env, self.sampling = actor, env, sampling
        self.gate, self.watch, self.retries = gate, watch, retries

    async def grow(self, key: Key, group: int, on_tree: Callable[[Tree], None] | None) -> Tree:
        tree = Tree(key, key[-1], "")
        try:
            root = await self._persist(key, -1, partial(self._begin, tree))
        except _Failure as failed:
            tree.add(given(-1, "user", "", np.zeros(0, np.int32)))
            tree.leaves += [replace(failed.leaf, branch=branch) for branch in range(group)]
        else:
            forking = asyncio.Lock()  # a tool serves one thread at a time
            try:
                await asyncio.gather(*(self._branch(tree, root, forking, branch) for branch in range(group)))
            finally:
                await self._close(root)
        tree = tree.canonical()
        if on_tree is not None:
            on_tree(tree)
        return tree

    async def _begin(self, tree: Tree, path: _Path) -> TextEnv:
        """Return an environment at the beginning of the task, and make its prompt the tree's root."""
        env = await self._fork(self.env, path)
        try:
            observation, info = await self._call(
                lambda: env.reset(seed=tree.key[0], options={"task": tree.task}), path, "resetting the environment"
            )
        except BaseException:
            await self._close(env)
            raise
        tree.task_id = info["task_id"]
        tree.add(opening(observation, info, self.actor.chat.prompt(info["messages"], info["tools"])))
        return env

    async def _branch(self, tree: Tree, root: TextEnv, forking: asyncio.Lock, branch: int) -> None:
        async def attempt(path: _Path) -> Leaf:
            async with forking:
                env = await self._fork(root, path)
            # The engine feeds the prompt of a group once; nothing needs to be shared here.
            session = self.actor.engine.session()
            try:
                return await self._play(tree, env, session, path)
            finally:
                session.close()
                await self._close(env)

        try:
            leaf = await self._persist((*tree.key, branch), branch, attempt)
        except _Failure as failed:
            leaf = failed.leaf
        tree.leaves.append(leaf)

    async def _persist(self, key: Key, branch: int, attempt: Callable[[_Path], Awaitable[T]]) -> T:
        """Return what `attempt` gives, begun again with the same key as long as an infrastructure failure ends it."""
        path = _Path(key, branch, self.watch.episode())
        try:
            await self.watch.queue(self.gate.acquire(), "waiting for a place among the paths in flight")
        except Overdue as overdue:
            self.watch.on_incident(Incident("failed", str(overdue), key))
            raise path.failure(overdue) from None
        try:
            for tries in range(self.retries + 1):
                try:
                    return await attempt(_Path(key, branch, self.watch.episode()))
                except _Failure as failed:
                    last = tries == self.retries or failed.leaf.info.get("deadline") == "step"
                    self.watch.on_incident(Incident("failed" if last else "retry", str(failed), key))
                    if last:
                        raise
        finally:
            self.gate.release()
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _play(self, tree: Tree, env: TextEnv, session: Session, path: _Path) -> Leaf:
        while True:
            drawing = session.sample(
                tree.turns[path.node].tokens, self.sampling, (*path.key, path.turn), self.actor.cut
            )
            try:
                drawn = await self.watch.wait(drawing, path.key, f"drawing turn {path.turn}", path.ends)
            except Overdue as overdue:
                raise path.failure(overdue) from None
            if not len(drawn.tokens):
                return path.leaf(StopReason.CONTEXT, {})
            if not (np.isfinite(drawn.logp).all() and np.isfinite(drawn.entropy).all()):
                raise path.failure(ValueError(f"the engine drew turn {path.turn} with numbers that are not finite"))
            text = self.actor.chat.text(drawn.tokens, self.actor.end_ids)
            answer = await self._answer(env, text, path)
            path.score += answer.reward
            path.node = tree.add(self._reply(path.node, text, drawn, answer))
            if answer.stop is not None and not pays(answer.stop):
                raise _Failure(path.leaf(answer.stop, answer.info))
            if answer.stop is not None:
                return path.leaf(answer.stop, answer.info)
            if drawn.stop == "context":
                return path.leaf(StopReason.CONTEXT, answer.info)
            said = answer.messages[0]
            tokens = self.actor.chat.reply(answer.messages, int(drawn.tokens[-1]))
            path.node = tree.add(given(path.node, str(said["role"]), str(said["content"]), tokens))
            path.turn += 1

    def _reply(self, parent: int, text: str, drawn: Completion, answer: Answer) -> Turn:
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
            reward=answer.reward,
            info=answer.info,
        )

    # -- what an environment does, off the event loop and with a deadline ------------------------------------------

    async def _answer(self, env: TextEnv, text: str, path: _Path) -> Answer:
        """Step an environment; what it raises and its deadline are failures, never scored."""
        try:
            return await self._call(lambda: take(env, text), path, f"the environment's answer to turn {path.turn}")
        except _Failure as failed:
            return failure(failed.leaf.info)

    async def _fork(self, env: TextEnv, path: _Path) -> TextEnv:
        return await self._call(env.fork, path, "forking the environment", late=lambda twin: twin.close())

    async def _call(self, work: Callable[[], T], path: _Path, what: str, late: Callable[[T], None] | None = None) -> T:
        """Return what `work` returns on a thread of its own; `late` gets what it returns after the caller has left."""
        future = start(work, "turngym-env")
        try:
            return await self.watch.wait(asyncio.wrap_future(future), path.key, what, path.ends)
        except BaseException as error:
            if late is not None:
                future.add_done_callback(lambda done: None if done.exception() else late(done.result()))
            if isinstance(error, Exception):
                raise path.failure(error) from error
            raise

    async def _close(self, env: TextEnv) -> None:
        try:
            async with asyncio.timeout(CLOSING):
                await asyncio.wrap_future(start(env.close, "turngym-close"))
        except Exception as error:
            what = f"closing {type(env).__name__} failed or took over {CLOSING:g} s: {type(error).__name__}: {error}"
            self.watch.on_incident(Incident("close", what))


def _told(error: Exception) -> dict[str, Any]:
    """Return how an infrastructure failure is written down."""
    if isinstance(error, Overdue):
        return {"error": str(error), "deadline": error.deadline}
    return {"error": f"{type(error).__name__}: {error}"}


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
