"""One tree of a rollout: it grows path by path, and forks where a method asks for it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from ...envs import TextEnv
from ..engine import Session
from ..journal.trees import Incident
from ..trajectory import NO_TOKENS, Event, Leaf, Plan, Spawn, Tree, Turn
from .path import Driver, FirstTurn, Path, PathFailed, PathOverdue

T = TypeVar("T")
OnPath = Callable[[Tree], None]
PROBES = 64  # a tree may have


@dataclass(frozen=True)
class Point:
    """Where a path can start: behind an answer of the environment, whose tokens its session has yet to be given."""

    node: int
    snapshot: dict[str, Any]  # empty at the prompt: there the root environment is forked
    session: Session | None  # None at the prompt
    length: int  # tokens of the session by then
    score: float
    turn: int


class TreeGrower:
    """Grows one tree of `budget` trained paths, in rounds: paths advance, then the plan is asked where more start.

    Without a plan there is one round, in which every path goes from the prompt to its end and none waits for another;
    with one, a path takes one turn a round. Then the plan is asked about every path in the order of their numbers, so
    what it is granted depends on keys and weights alone. Failed paths count too: the tree has exactly `budget`.
    `skipped` and `on_path` are those of `collect`.
    """

    def __init__(
        self,
        driver: Driver,
        tree: Tree,
        plan: Plan | None,
        budget: int,
        skipped: Collection[int],
        on_path: OnPath,
    ) -> None:
        self.driver, self.tree, self.plan, self.on_path = driver, tree, plan, on_path
        self.left = budget - len(skipped)
        self.branches = (branch for branch in count() if branch not in skipped)
        self.probes = 0
        self.paths: list[Path] = []
        self.points = {0: Point(0, {}, None, 0, 0.0, 0)}
        self.branch_of: dict[int, int] = {0: -1}  # of each turn: the first path through it
        self.forking = asyncio.Lock()  # a tool of the root environment serves one thread at a time

    async def grow(self, template: TextEnv) -> Tree:
        """Begin the task in a fork of `template`, spend the budget, and return the tree when every path has ended."""
        start = Path(self.tree.key, -1, self.tree)
        try:
            self.root = await self._retried(start, lambda again: self.driver.begin(template, start))
        except PathFailed as failed:
            self.tree.add(Turn.unsampled(-1, "user", "", NO_TOKENS))
            self.tree.leaves += [
                replace(failed.leaf, branch=next(self.branches)) for _ in range(self.left)
            ]
            for leaf in self.tree.leaves:
                self.on_path(replace(self.tree, leaves=[leaf]))
            return self.tree
        try:
            await self._grow()
        finally:
            for path in self.paths:
                if path.leaf is None:
                    await self._close(path)
            await self.driver.close(self.root)
        self.tree.leaves += [path.leaf for path in self.paths if path.leaf is not None]
        return self.tree.canonical()

    async def _grow(self) -> None:
        await self._ask("start", None)
        while True:
            active = [path for path in self.paths if path.leaf is None]
            if active:
                await asyncio.gather(*(self._advance(path) for path in active))
                for path in active:
                    self._merge(path)
                for path in active:
                    await self._ask("turn" if path.leaf is None else "end", path)
            elif not self.left:
                return
            elif not await self._ask("idle", None):
                await self._grant(Spawn(0, n=self.left))

    async def _ask(self, kind: Any, path: Path | None) -> bool:
        """Ask the plan and grant what it asks for; return whether a path was added."""
        if self.plan is None:
            return False
        node, branch = (0, -1) if path is None else (path.node, path.branch)
        before = len(self.paths)
        for spawn in self.plan(
            self.tree, Event(kind, node, branch, self.left), (*self.tree.key, branch)
        ):
            await self._grant(spawn)
        return len(self.paths) > before

    async def _grant(self, spawn: Spawn) -> None:
        for _ in range(min(spawn.n, self.left) if spawn.trained else spawn.n):
            self.left -= spawn.trained
            self.probes += not spawn.trained
            if self.probes > PROBES:
                raise ValueError(
                    f"the plan asked for more than {PROBES} probes of tree {self.tree.key}"
                )
            point, first = self._start_of(spawn)
            branch, ends = next(self.branches), self.driver.watch.episode()
            path = Path((*self.tree.key, branch), branch, self.tree, ends, spawn=spawn, first=first)
            path.parent = self.branch_of[spawn.node]
            path.node, path.session = point.node, self._session(spawn, point)
            live = (one.env for one in self.paths if one.env is not None and one.node == point.node)
            if (
                point.node and (env := next(live, None)) is not None
            ):  # it is forked before the path there goes on
                try:
                    path.env = await self.driver.fork(env, path)
                except PathFailed as failed:  # its turns will be replayed instead
                    self.driver.watch.on_incident(Incident("retry", str(failed), path.key))
            self.paths.append(path)

    def _session(self, spawn: Spawn, point: Point) -> Session | None:
        if not spawn.token:
            return point.session and point.session.fork(point.length)
        # Inside a turn: the session that drew the turn has the tokens up to there.
        drew = self.paths[self.branch_of[spawn.node]].session
        assert drew is not None
        return drew.fork(point.length + len(self.tree.turns[point.node].tokens) + spawn.token)

    def _start_of(self, spawn: Spawn) -> tuple[Point, FirstTurn]:
        turns, node = self.tree.turns, spawn.node
        if spawn.token and node < len(turns):
            node = turns[node].parent
        if node not in self.points or spawn.token > len(turns[spawn.node].tokens):
            rule = "paths begin behind the prompt or an answer of the environment (token 0), or inside an agent's turn"
            where = f"token {spawn.token} of turn {spawn.node} of tree {self.tree.key}"
            raise ValueError(f"the plan asked for a path behind {where}; {rule}")
        sampling = self.driver.sampling
        most = min(spawn.max_tokens or sampling.max_tokens, sampling.max_tokens)
        temperature = sampling.temperature if spawn.temperature is None else spawn.temperature
        chosen = replace(sampling, max_tokens=most, temperature=temperature)
        first = replace(chosen, max_tokens=max(most - spawn.token, 1))
        later = chosen if spawn.whole else None
        twin = spawn.node if spawn.token else -1
        return self.points[node], FirstTurn(first, twin, spawn.token, spawn.forced_token, later)

    async def _advance(self, path: Path) -> None:
        """Let a path take a turn, or without a plan all its turns."""
        point, origin = self.points[path.node], path.session
        attempt = partial(self._attempt, path, point, origin, origin.length if origin else 0)
        path.begin(point.node, point.score, point.turn, self.tree)
        try:
            path.leaf = await self._retried(path, attempt)
        except PathFailed as failed:
            path.leaf = failed.leaf
        if path.leaf is not None:
            await self._close(path)
            self.on_path(replace(path.tree, leaves=[path.leaf]))

    async def _attempt(
        self, path: Path, point: Point, origin: Session | None, length: int, again: bool
    ) -> Leaf | None:
        """Advance a path from `point`, of which `origin` holds `length` tokens; again in fresh copies of both."""
        driver = self.driver
        if again:
            path.begin(point.node, point.score, point.turn, self.tree)
        try:
            if again or path.session is None:
                path.session = origin.fork(length) if origin else driver.actor.engine.session()
            if path.env is None:
                path.ends = driver.watch.episode()
                async with self.forking:
                    path.env = await driver.fork(self.root, path)
                if point.node:
                    await driver.call(
                        partial(path.env.restore, point.snapshot), path, "replaying the path"
                    )
            while (leaf := await driver.turn(path)) is None and self.plan is None:
                pass
            return leaf
        except BaseException:
            await self._close(path)
            raise

    async def _retried(self, path: Path, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Return what `attempt` gives, called again with the same key as long as an infrastructure failure ends it."""
        watch = self.driver.watch
        retries = watch.deadlines.retries
        try:
            await watch.queue(
                watch.places.acquire(), "waiting for a place among the paths in flight"
            )
        except PathOverdue as overdue:
            watch.on_incident(Incident("failed", str(overdue), path.key))
            raise path.failure(overdue) from None
        try:
            for tries in range(retries + 1):
                try:
                    return await attempt(tries > 0)
                except PathFailed as failed:
                    last = tries == retries or failed.leaf.info.get("deadline") == "step"
                    watch.on_incident(
                        Incident("failed" if last else "retry", str(failed), path.key)
                    )
                    if last:
                        raise
        finally:
            watch.places.release()
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _merge(self, path: Path) -> None:
        """Take the turns that a path has added into the tree, in the order of paths, whichever was the fastest."""
        node = (
            path.tree.turns[path.shared].parent if len(path.tree.turns) > path.shared else path.node
        )
        for turn in path.tree.turns[path.shared :]:
            node = self.tree.add(replace(turn, parent=node))
            self.branch_of[node] = path.branch
        path.node = node
        if path.leaf is not None:
            fork, token, trained = path.spawn.node, path.spawn.token, path.spawn.trained
            path.leaf = replace(
                path.leaf, node=node, parent=path.parent, fork=fork, token=token, trained=trained
            )
        else:
            assert path.env is not None and path.session is not None
            snapshot, length = path.env.snapshot(), path.session.length
            self.points[node] = Point(node, snapshot, path.session, length, path.score, path.turn)

    async def _close(self, path: Path) -> None:
        if path.session is not None:
            path.session.close()
        env, path.env = path.env, None
        if env is not None:
            await self.driver.close(env)
