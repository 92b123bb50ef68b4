"""What a path of a rollout does: its turns, and what its environment does off the event loop, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...envs import StopReason, TextEnv, outcome_of
from ...tools.threads import start
from ..chat.chat import Chat
from ..engine import Completion, Continued, Cut, Engine, EngineFailure, Sampling, Session
from ..incidents import Incident
from ..trajectory import Answer, Leaf, Tree, Turn, failure, given, opening, pays, take
from .deadlines import Key, Overdue, Watch
from .phases import begins, tokens_before

T = TypeVar("T")

CLOSING = 2.0  # seconds that closing an environment may take before it is left behind


@dataclass(frozen=True)
class Actor:
    """A policy that speaks: an engine, its chat format, and what ends its turns at a call."""

    engine: Engine
    chat: Chat
    end_ids: frozenset[int]
    cut: Cut | None = None
    begins: Callable[[str], int | None] | None = None  # where in a turn's text its call or marked answer begins

    def thought(self, text: str, tokens: NDArray[np.int32]) -> int:
        """Return how many tokens of a turn are thought; `text` is what `chat.text` makes of them."""
        characters = begins(text, self.begins and self.begins(text)) - len(self.chat.opened)
        return tokens_before(tokens, characters, self.chat.tokenizer.decode)


class Failed(Exception):
    """An infrastructure failure ended a path where `leaf` is."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__(str(leaf.info.get("error", leaf.stop)))
        self.leaf = leaf


@dataclass(frozen=True)
class Head:
    """How a turn begins where not all of it is drawn: the first `copied` tokens of the turn `twin`, a forced one."""

    sampling: Sampling
    twin: int = -1
    copied: int = 0
    forced: int | None = None

    def turn(self, tree: Tree) -> Turn:
        """Return the turn as far as it is not drawn."""
        if self.twin < 0:
            head = given(-1, "assistant", "", np.zeros(0, np.int32))
        else:
            twin, part = tree.turns[self.twin], slice(self.copied)
            columns = {name: getattr(twin, name)[part] for name in _COLUMNS}
            head = replace(twin, **columns, twin=self.twin, copied=self.copied)
        if self.forced is None:
            return head
        token = given(-1, "assistant", "", np.array([self.forced], np.int32))
        return replace(head, **_joined(head, token))


@dataclass
class Path:
    """A path, or one attempt at it, and how far it has come."""

    key: Key  # (seed, step, task, branch)
    branch: int
    ends: float  # when its deadline passes
    node: int = 0
    score: float = 0.0
    turn: int = 0
    head: Head | None = field(default=None, compare=False)  # of its next turn

    def leaf(self, stop: StopReason, info: dict[str, Any]) -> Leaf:
        """Return the end of the path where it is."""
        return Leaf(self.node, self.branch, outcome_of(stop), str(stop), self.score if pays(stop) else nan, info)

    def failure(self, error: Exception) -> Failed:
        """Return what to raise where `error` ends the path."""
        return Failed(self.leaf(StopReason.INFRA_ERROR, _told(error)))


class Stage:
    """Where the paths of a rollout are played: who acts, how tokens are drawn, and what may take how long."""

    def __init__(self, actor: Actor, sampling: Sampling, watch: Watch) -> None:
        self.actor, self.sampling, self.watch = actor, sampling, watch

    async def begin(self, template: TextEnv, tree: Tree, path: Path) -> TextEnv:
        """Return an environment at the beginning of the task, and make its prompt the tree's root."""
        env = await self.fork(template, path)
        try:
            observation, info = await self.call(
                lambda: env.reset(seed=tree.key[0], options={"task": tree.task}), path, "resetting the environment"
            )
        except BaseException:
            await self.close(env)
            raise
        tree.task_id = info["task_id"]
        tree.add(opening(observation, info, self.actor.chat.prompt(info["messages"], info["tools"])))
        return env

    async def turn(self, tree: Tree, env: TextEnv, session: Session, path: Path) -> Leaf | None:
        """Draw a turn, let the environment answer and add both to the tree; return the path's end if this is it.

        Raises:
            Failed: an infrastructure failure ended the path.
        """
        drawn, turn = await self._draw(tree, session, path)
        if turn is None:
            return path.leaf(StopReason.CONTEXT, {})
        answer = await self._answer(env, turn.text, path)
        path.score += answer.reward
        path.node = tree.add(replace(turn, reward=answer.reward, info=answer.info))
        if answer.stop is not None and not pays(answer.stop):
            raise Failed(path.leaf(answer.stop, answer.info))
        if answer.stop is not None:
            return path.leaf(answer.stop, answer.info)
        if drawn.stop == "context":
            return path.leaf(StopReason.CONTEXT, answer.info)
        said = answer.messages[0]
        tokens = self.actor.chat.reply(answer.messages, int(turn.tokens[-1]))
        path.node = tree.add(given(path.node, str(said["role"]), str(said["content"]), tokens))
        path.turn, path.head = path.turn + 1, None
        return None

    async def _draw(self, tree: Tree, session: Session, path: Path) -> tuple[Completion, Turn | None]:
        """Return what was drawn, and the turn that it makes without the environment's answer; None without room."""
        chat, cut, head = self.actor.chat, self.actor.cut, path.head
        tokens, sampling, begun = tree.turns[path.node].tokens, self.sampling, None
        if head is not None:
            sampling, begun = head.sampling, head.turn(tree)
            if len(begun.tokens):
                cut = cut and Continued(cut, chat.text(begun.tokens, self.actor.end_ids))
                tokens = tokens if head.twin < 0 else np.zeros(0, np.int32)  # else the session has them already
                tokens = np.concatenate((tokens, begun.tokens[head.copied :]))
        drawing = session.sample(tokens, sampling, (*path.key, path.turn), cut)
        try:
            drawn = await self.watch.wait(drawing, path.key, f"drawing turn {path.turn}", path.ends)
        except (Overdue, EngineFailure) as error:
            raise path.failure(error) from None
        if not len(drawn.tokens):
            return drawn, None
        if not (np.isfinite(drawn.logp).all() and np.isfinite(drawn.entropy).all()):
            raise path.failure(ValueError(f"the engine drew turn {path.turn} with numbers that are not finite"))
        turn = Turn(
            parent=path.node,
            role="assistant",
            text="",
            tokens=drawn.tokens,
            sampled=np.ones(len(drawn.tokens), np.bool_),
            logp_roll=drawn.logp,
            entropy=drawn.entropy,
            temperature=sampling.temperature,
            version=drawn.version,
            ended=drawn.stop,
            estimate=drawn.estimate,
        )
        if begun is not None:
            turn = replace(turn, **_joined(begun, turn), twin=begun.twin, copied=begun.copied)
        text = chat.text(turn.tokens, self.actor.end_ids)
        return drawn, replace(turn, text=text, thought=self.actor.thought(text, turn.tokens))

    async def _answer(self, env: TextEnv, text: str, path: Path) -> Answer:
        """Step an environment; what it raises and its deadline are failures, never scored."""
        try:
            return await self.call(lambda: take(env, text), path, f"the environment's answer to turn {path.turn}")
        except Failed as failed:
            return failure(failed.leaf.info)

    async def fork(self, env: TextEnv, path: Path) -> TextEnv:
        """Return a copy of `env` for `path`."""
        return await self.call(env.fork, path, "forking the environment", late=lambda twin: twin.close())

    async def restore(self, root: TextEnv, snapshot: dict[str, Any], path: Path) -> TextEnv:
        """Return a copy of `root`, in which the task has begun, that has come as far as `snapshot` says."""
        env = await self.fork(root, path)
        try:
            await self.call(partial(env.restore, snapshot), path, "replaying the path")
        except BaseException:
            await self.close(env)
            raise
        return env

    async def call(self, work: Callable[[], T], path: Path, what: str, late: Callable[[T], None] | None = None) -> T:
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

    async def close(self, env: TextEnv) -> None:
        """Close an environment; one that cannot be closed is an incident."""
        try:
            async with asyncio.timeout(CLOSING):
                await asyncio.wrap_future(start(env.close, "turngym-close"))
        except Exception as error:
            what = f"closing {type(env).__name__} failed or took over {CLOSING:g} s: {type(error).__name__}: {error}"
            self.watch.on_incident(Incident("close", what))


_COLUMNS = ("tokens", "sampled", "logp_roll", "entropy")


def _joined(one: Turn, other: Turn) -> dict[str, Any]:
    return {name: np.concatenate((getattr(one, name), getattr(other, name))) for name in _COLUMNS}


def _told(error: Exception) -> dict[str, Any]:
    """Return how an infrastructure failure is written down."""
    if isinstance(error, Overdue):
        return {"error": str(error), "deadline": error.deadline}
    if isinstance(error, EngineFailure):
        return {"error": str(error), "engine": str(error.fault)}
    return {"error": f"{type(error).__name__}: {error}"}
