"""One path of a rollout: its turns, and what its environment does off the event loop.

Invariant: every wait of a rollout has a deadline, so that nothing that never answers can stop it.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...envs import StopReason, TextEnv
from ...envs.split_episodes import begin
from ...tools import Format
from ...tools.subprocesses.deadlines import start_thread
from ...tools.thoughts import end_of_last_thought
from ..chat.chat import Chat
from ..cli.settings import Deadlines
from ..engine import Continued, Cut, Engine, EngineFailure, Sampling, Session
from ..journal.trees import Incident, OnIncident
from ..trajectory import (
    NO_TOKENS,
    Key,
    Leaf,
    Spawn,
    Tree,
    Turn,
    earns_reward,
    failed_step,
    root_turn,
    step,
)

T = TypeVar("T")
_COLUMNS = ("tokens", "sampled", "logp_roll", "entropy")
_BOX = "\\boxed{"
CLOSING = 2.0  # seconds that closing an environment may take before it is left behind
SHOWN = 20  # pending keys that an incident names


class PathOverdue(RuntimeError):
    """A deadline passed; `deadline` names which."""

    def __init__(self, deadline: str, message: str) -> None:
        super().__init__(message)
        self.deadline = deadline


class Watch:
    """Keeps the deadlines and the places of one rollout. Made inside its event loop, where the step's time begins."""

    def __init__(self, deadlines: Deadlines, on_incident: OnIncident, in_flight: int) -> None:
        deadlines.check()
        self.places = asyncio.Semaphore(in_flight)
        self.deadlines, self.on_incident = deadlines, on_incident
        self.pending: dict[Key, str] = {}
        self._clock = asyncio.get_running_loop().time
        self._step_ends = self._clock() + deadlines.step_deadline
        self._moved = self._clock()

    def episode(self) -> float:
        """Return when an episode that begins now must have ended."""
        return self._clock() + self.deadlines.episode_deadline

    async def wait(self, work: Awaitable[T], key: Key, what: str, ends: float) -> T:
        """Return what `work` gives to `key`, who waits for `what`. PathOverdue, `work` cancelled, if it is late."""
        turn_ends = self._clock() + self.deadlines.turn_deadline
        until, name = min((turn_ends, "turn"), (ends, "episode"), (self._step_ends, "step"))
        self.pending[key] = what
        try:
            return await self._until(until, name, work, what)
        finally:
            del self.pending[key]
            self._moved = self._clock()

    async def queue(self, work: Awaitable[T], what: str) -> T:
        """Return what `work` gives; only the step's deadline applies to those who wait for their turn to begin."""
        return await self._until(self._step_ends, "step", work, what)

    async def _until(self, until: float, name: str, work: Awaitable[T], what: str) -> T:
        try:
            async with asyncio.timeout_at(until) as scope:
                return await work
        except TimeoutError:
            if not scope.expired():
                raise
            seconds = getattr(self.deadlines, f"{name}_deadline")
            raise PathOverdue(
                name, f"{what} was not over when the {name} deadline of {seconds:g} s passed"
            ) from None

    async def report_stalls(self) -> None:
        """Write an incident with the pending keys whenever nothing moves for `stall_after` seconds; never returns."""
        while True:
            await asyncio.sleep(max(self._moved + self.deadlines.stall_after - self._clock(), 0.01))
            still = self._clock() - self._moved
            if still >= self.deadlines.stall_after and self.pending:
                names = [
                    f"{'/'.join(map(str, key))} ({what})"
                    for key, what in list(self.pending.items())[:SHOWN]
                ]
                named = ", ".join(names) + (
                    f" and {more} more" if (more := len(self.pending) - SHOWN) > 0 else ""
                )
                self.on_incident(
                    Incident("stall", f"nothing has moved for {still:.1f} s; pending: {named}")
                )
                self._moved = self._clock()


@dataclass(frozen=True)
class Actor:
    """A policy that speaks: an engine, its chat format, and what ends its turns at a call."""

    engine: Engine
    chat: Chat
    end_ids: frozenset[int]
    cut: Cut | None = None
    format: Format | None = None  # of calls and marked answers

    def spans(self, text: str, tokens: NDArray[np.int32]) -> dict[str, Any]:
        """Return `Turn.thought` and `Turn.values` of a turn; `text` is what `chat.text` makes of its tokens."""
        block, values = (
            (self.format.find_start(text), self.format.find_arguments(text))
            if self.format
            else (None, None)
        )
        thought = thought_length(text, block)
        if values is None and text.startswith(_BOX, thought):
            start, end = thought + len(_BOX), text.rfind("}")
            values = (start, end) if end >= start else None
        decode = partial(self.chat.tokenizer.decode, skip_special_tokens=False)
        before = partial(tokens_before, tokens, decode=decode)
        # A token is where it begins, so that of the arguments ends in front of the first that begins behind them.
        ends = [before(max(at - len(self.chat.opened), 1) - 1) + 1 for at in values or ()]
        return {
            "thought": before(thought - len(self.chat.opened)),
            "values": (ends[0], ends[1]) if ends else None,
        }


def thought_length(text: str, block: int | None) -> int:
    """Return how many characters of a turn's text are thought; `block` is where its call or tagged answer begins.

    A turn is thought up to where its call or its marked answer begins; without either, up to the end of its last
    thought in tags; where there is none of those it is all action.
    """
    if block is not None:
        return block
    end = end_of_last_thought(text)
    box = text.rfind(_BOX, end)
    return box if box >= 0 else end


def tokens_before(
    tokens: NDArray[np.int32], characters: int, decode: Callable[[list[int]], str]
) -> int:
    """Return how many `tokens` there are in front of the one that holds the character behind the first `characters`."""
    if characters <= 0:
        return 0
    ids = tokens.tolist()  # the text of more tokens is never shorter
    return bisect_right(range(len(ids)), characters, key=lambda n: len(decode(ids[: n + 1])))


class PathFailed(Exception):
    """An infrastructure failure ended a path where `leaf` is."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__(str(leaf.info.get("error", leaf.stop)))
        self.leaf = leaf


@dataclass(frozen=True)
class FirstTurn:
    """How a path is drawn, its first turn behind the first `copied` tokens of the turn `twin`, and a forced token."""

    sampling: Sampling
    twin: int = -1
    copied: int = 0
    forced: int | None = None
    later: Sampling | None = None  # of the turns behind it; None leaves it to the rollout

    def prefix(self, tree: Tree) -> Turn:
        forced = NO_TOKENS if self.forced is None else np.array([self.forced], np.int32)
        given = Turn.unsampled(-1, "assistant", "", forced)
        if self.twin < 0:
            return given
        copied = {name: getattr(tree.turns[self.twin], name)[: self.copied] for name in _COLUMNS}
        return replace(given, **_joined(copied, vars(given)), twin=self.twin, copied=self.copied)


def _joined(before: Mapping[str, Any], behind: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.concatenate((before[name], behind[name])) for name in _COLUMNS}


@dataclass(eq=False)
class Path:
    """A path and how far it has come; `tree` holds its turns, those since `begin` for itself alone."""

    key: Key  # (seed, step, task, branch)
    branch: int
    tree: Tree
    ends: float = 0.0  # when its deadline passes
    node: int = 0
    score: float = 0.0
    turn: int = 0
    first: FirstTurn | None = None  # of its next turn
    spawn: Spawn = Spawn(0)  # what asked for it
    parent: int = -1  # the branch that it was forked from
    env: TextEnv | None = None
    session: Session | None = None
    leaf: Leaf | None = None  # where it has ended
    shared: int = 0  # turns of `tree` that are not its own

    def begin(self, node: int, score: float, turn: int, tree: Tree) -> None:
        """Go on from a turn of `tree`, with no turns of its own."""
        self.node, self.score, self.turn = node, score, turn
        self.tree, self.shared = replace(tree, turns=list(tree.turns)), len(tree.turns)

    def end(self, stop: StopReason, info: dict[str, Any]) -> Leaf:
        return Leaf.ended(self.node, self.branch, stop, self.score, info)

    def failure(self, error: Exception) -> PathFailed:
        info = {"error": f"{type(error).__name__}: {error}"}
        if isinstance(error, PathOverdue):
            info = {"error": str(error), "deadline": error.deadline}
        elif isinstance(error, EngineFailure):
            info = {"error": str(error), "engine": str(error.fault)}
        return PathFailed(self.end(StopReason.INFRA_ERROR, info))


class Driver:
    """Drives paths: who acts, how tokens are drawn, and what may take how long."""

    def __init__(self, actor: Actor, sampling: Sampling, watch: Watch) -> None:
        self.actor, self.sampling, self.watch = actor, sampling, watch

    async def begin(self, template: TextEnv, path: Path) -> TextEnv:
        """Return an environment at the beginning of the task, and make its prompt the tree's root."""
        path.ends, tree = self.watch.episode(), path.tree
        env = await self.fork(template, path)
        try:
            resetting = partial(begin, env, tree.task, tree.key[0])
            observation, info = await self.call(resetting, path, "resetting the environment")
        except BaseException:
            await self.close(env)
            raise
        tree.task_id = info["task_id"]
        tree.add(
            root_turn(observation, info, self.actor.chat.prompt(info["messages"], info["tools"]))
        )
        return env

    async def turn(self, path: Path) -> Leaf | None:
        """Add a turn and the answer to it to the tree; return the path's end if this is it. Raises PathFailed."""
        tree = path.tree
        turn = await self._draw(path)
        if turn is None:
            return path.end(StopReason.CONTEXT, {})
        env, answering = path.env, f"the environment's answer to turn {path.turn}"
        assert env is not None
        try:
            result = await self.call(lambda: step(env, turn.text), path, answering)
        except PathFailed as failed:  # what it raises and its deadline are failures, never scored
            result = failed_step(failed.leaf.info)
        path.score += result.reward
        path.node = tree.add(replace(turn, reward=result.reward, info=result.info))
        if result.stop is not None and not earns_reward(result.stop):
            raise PathFailed(path.end(result.stop, result.info))
        if stop := result.stop or (StopReason.CONTEXT if turn.ended == "context" else None):
            return path.end(stop, result.info)
        message = result.messages[0]
        tokens = self.actor.chat.reply(result.messages, int(turn.tokens[-1]))
        path.node = tree.add(
            Turn.unsampled(path.node, str(message["role"]), str(message["content"]), tokens)
        )
        later = path.first and path.first.later
        path.turn, path.first = path.turn + 1, FirstTurn(later, later=later) if later else None
        return None

    async def _draw(self, path: Path) -> Turn | None:
        """Return the turn that is drawn, without the environment's answer; None without room."""
        chat, cut, tree = self.actor.chat, self.actor.cut, path.tree
        first = path.first or FirstTurn(self.sampling)
        tokens, sampling, prefix = tree.turns[path.node].tokens, first.sampling, first.prefix(tree)
        if len(prefix.tokens):
            begun = prefix.tokens.tolist()
            cut = cut and Continued(
                cut, chat.tokenizer.decode(begun, skip_special_tokens=False), tuple(begun)
            )
            tokens = tokens if first.twin < 0 else NO_TOKENS  # else the session has them already
            tokens = np.concatenate((tokens, prefix.tokens[first.copied :]))
        assert path.session is not None
        drawing = path.session.sample(tokens, sampling, (*path.key, path.turn), cut)
        try:
            drawn = await self.watch.wait(drawing, path.key, f"drawing turn {path.turn}", path.ends)
        except (PathOverdue, EngineFailure) as error:
            raise path.failure(error) from None
        if not len(drawn.tokens):
            return None
        if not (np.isfinite(drawn.logp).all() and np.isfinite(drawn.entropy).all()):
            raise path.failure(
                ValueError(f"the engine drew turn {path.turn} with numbers that are not finite")
            )
        sampled = np.ones(len(drawn.tokens), np.bool_)
        columns = _joined(
            vars(prefix), {**vars(drawn), "sampled": sampled, "logp_roll": drawn.logp}
        )
        text = chat.text(columns["tokens"], self.actor.end_ids)
        return replace(
            prefix,
            parent=path.node,
            text=text,
            **columns,
            temperature=sampling.temperature,
            version=drawn.version,
            ended=drawn.stop,
            estimate=drawn.estimate,
            **self.actor.spans(text, columns["tokens"]),
        )

    async def fork(self, env: TextEnv, path: Path) -> TextEnv:
        return await self.call(
            env.fork, path, "forking the environment", late=lambda twin: twin.close()
        )

    async def call(
        self, work: Callable[[], T], path: Path, what: str, late: Callable[[T], None] | None = None
    ) -> T:
        """Return what `work` returns on a thread of its own; `late` gets what it returns after the caller has left."""
        future = start_thread(work, "turngym-env")
        try:
            return await self.watch.wait(asyncio.wrap_future(future), path.key, what, path.ends)
        except BaseException as error:
            if late is not None:
                future.add_done_callback(
                    lambda done: None if done.exception() else late(done.result())
                )
            if isinstance(error, Exception):
                raise path.failure(error) from error
            raise

    async def close(self, env: TextEnv) -> None:
        """Close an environment; one that cannot be closed is an incident."""
        try:
            async with asyncio.timeout(CLOSING):
                await asyncio.wrap_future(start_thread(env.close, "turngym-close"))
        except Exception as error:
            what = f"closing {type(env).__name__} failed or took over {CLOSING:g} s: {type(error).__name__}: {error}"
            self.watch.on_incident(Incident("close", what))
