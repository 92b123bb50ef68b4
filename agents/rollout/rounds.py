"""A tree that grows in rounds: every path takes a turn, then a plan says where more paths are forked off.

Invariant: the tree has exactly as many trained paths as its budget, failed ones among them, and what is granted
depends on keys and weights alone. A path that an infrastructure failure ends begins its last turn again, in an
environment that has replayed the turns before.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from ...envs import TextEnv
from ..engine import Session
from ..incidents import Incident
from ..trajectory import Leaf, Tree, Turn
from .branching import Event, Plan, Spawn
from .deadlines import Overdue
from .path import Failed, Head, Path, Stage

PROBES = 64  # a tree may have


@dataclass(frozen=True)
class Point:
    """Where a path can begin: behind an answer of the environment, whose tokens its session has yet to be given."""

    snapshot: dict[str, Any]
    session: Session | None  # None at the prompt
    length: int  # tokens of the session by then
    score: float
    turn: int


@dataclass(eq=False)
class Grown:
    """A path of the tree with what it needs to go on; `leaf` is set where it has ended."""

    path: Path
    spawn: Spawn
    parent: int  # the branch it was forked from
    env: TextEnv
    session: Session
    tree: Tree  # with the turn that it is taking
    leaf: Leaf | None = None

    def ended(self, leaf: Leaf) -> Leaf:
        """Return `leaf` with where the path comes from."""
        spawn = self.spawn
        return replace(leaf, parent=self.parent, fork=spawn.node, token=spawn.token, trained=spawn.trained)


class Rounds:
    """One tree and the paths in it."""

    def __init__(
        self, stage: Stage, tree: Tree, root: TextEnv, budget: int, plan: Plan, gate: asyncio.Semaphore, retries: int
    ) -> None:
        self.stage, self.tree, self.root, self.plan = stage, tree, root, plan
        self.gate, self.retries, self.left = gate, retries, budget
        self.probes = 0
        self.paths: list[Grown] = []
        self.points = {0: Point(root.snapshot(), None, 0, 0.0, 0)}
        self.branch_of: dict[int, int] = {0: -1}  # of each turn: the first path through it

    async def grow(self) -> None:
        """Grow the tree until its budget is spent and every path has ended."""
        try:
            await self._grow()
        finally:
            for one in self.paths:
                if one.leaf is None:
                    await self._end(one)
        self.tree.leaves += [one.ended(one.leaf) for one in self.paths if one.leaf is not None]

    async def _grow(self) -> None:
        await self._ask("start", None)
        while True:
            active = [one for one in self.paths if one.leaf is None]
            if active:
                await asyncio.gather(*(self._turn(one) for one in active))
                for one in active:
                    self._settle(one)
                for one in active:
                    await self._ask("turn" if one.leaf is None else "end", one)
            elif not self.left:
                return
            elif not await self._ask("idle", None):
                await self._grant(Spawn(0, n=self.left))

    async def _ask(self, kind: Any, one: Grown | None) -> bool:
        """Ask the plan and grant what it asks for; return whether a path began."""
        node, branch = (0, -1) if one is None else (one.path.node, one.path.branch)
        before = len(self.paths)
        event = Event(kind, node, branch, self.left)
        for spawn in self.plan(self.tree, event, (*self.tree.key, branch)):
            await self._grant(spawn)
        return len(self.paths) > before

    async def _grant(self, spawn: Spawn) -> None:
        for _ in range(min(spawn.n, self.left) if spawn.trained else spawn.n):
            self.left -= spawn.trained
            self.probes += not spawn.trained
            if self.probes > PROBES:
                raise ValueError(f"the plan asked for more than {PROBES} probes of tree {self.tree.key}")
            await self._sprout(spawn)

    async def _sprout(self, spawn: Spawn) -> None:
        """Begin a path; where its environment cannot be had there, it has failed before its first turn."""
        point, head = self._point(spawn)
        branch, node = len(self.paths), self._before(spawn)
        path = Path((*self.tree.key, branch), branch, self.stage.watch.episode(), node, point.score, point.turn, head)
        one = Grown(path, spawn, self.branch_of[spawn.node], self.root, self._session(spawn, point), self.tree)
        for tries in range(self.retries + 1):
            try:
                one.env = await self._environment(point, path, again=tries > 0)
                break
            except Failed as failed:
                if self._gives_up(failed, tries, path):
                    one.leaf = failed.leaf
                    break
        self.paths.append(one)

    async def _environment(self, point: Point, path: Path, again: bool) -> TextEnv:
        """Return a copy of the environment at `point`: that of a path that is there now, else the root's, replayed.

        A live environment that cannot be forked there is replayed when it is tried again.
        """
        if path.node == 0:
            return await self.stage.fork(self.root, path)
        live = next((one for one in self.paths if one.leaf is None and one.path.node == path.node), None)
        if live is None or again:
            return await self.stage.restore(self.root, point.snapshot, path)
        return await self.stage.fork(live.env, path)

    def _gives_up(self, failed: Failed, tries: int, path: Path) -> bool:
        """Write down a failure and return whether it was the last try."""
        last = tries == self.retries or failed.leaf.info.get("deadline") == "step"
        self.stage.watch.on_incident(Incident("failed" if last else "retry", str(failed), path.key))
        return last

    def _session(self, spawn: Spawn, point: Point) -> Session:
        engine = self.stage.actor.engine
        if not spawn.token:
            return engine.session() if point.session is None else point.session.fork(point.length)
        # Inside a turn: whoever drew it has the tokens up to there.
        before = self._before(spawn)
        drew = self.paths[self.branch_of[spawn.node]].session
        return drew.fork(point.length + len(self.tree.turns[before].tokens) + spawn.token)

    def _before(self, spawn: Spawn) -> int:
        return self.tree.turns[spawn.node].parent if spawn.token else spawn.node

    def _point(self, spawn: Spawn) -> tuple[Point, Head | None]:
        """Return where a spawn begins, and how its first turn does.

        Raises:
            ValueError: no path can begin there.
        """
        turns = self.tree.turns
        node = self._before(spawn) if spawn.node < len(turns) else -1
        if node not in self.points or spawn.token > len(turns[spawn.node].tokens):
            raise ValueError(
                f"the plan asked for a path behind token {spawn.token} of turn {spawn.node} of tree {self.tree.key}; "
                "paths begin behind the prompt or an answer of the environment (token 0), or inside an agent's turn"
            )
        sampling = self.stage.sampling
        most = max(min(spawn.max_tokens or sampling.max_tokens, sampling.max_tokens) - spawn.token, 1)
        heat = sampling.temperature if spawn.temperature is None else spawn.temperature
        chosen = replace(sampling, max_tokens=most, temperature=heat)
        if chosen == sampling and not spawn.token and spawn.forced_token is None:
            return self.points[node], None
        return self.points[node], Head(chosen, spawn.node if spawn.token else -1, spawn.token, spawn.forced_token)

    async def _turn(self, one: Grown) -> None:
        """Take a turn of a path, begun again as long as an infrastructure failure ends it."""
        path, length = one.path, one.session.length
        node, score = path.node, path.score
        try:
            await self.stage.watch.queue(self.gate.acquire(), "waiting for a place among the paths in flight")
        except Overdue as overdue:
            one.leaf = path.failure(overdue).leaf
            return
        try:
            for tries in range(self.retries + 1):
                path.node, path.score = node, score
                # Of its own: in which order paths are done must not show in the tree.
                one.tree = replace(self.tree, turns=list(self.tree.turns))
                try:
                    if tries:
                        await self._again(one, length)
                    one.leaf = await self.stage.turn(one.tree, one.env, one.session, path)
                    break
                except Failed as failed:
                    if self._gives_up(failed, tries, path):
                        one.leaf = failed.leaf
                        break
        finally:
            self.gate.release()
        if one.leaf is not None:
            await self._end(one)

    def _settle(self, one: Grown) -> None:
        """Take over into the tree what a path has added to its own."""
        added, node = list[Turn](), one.path.node
        while node >= len(self.tree.turns) or one.tree.turns[node] is not self.tree.turns[node]:
            added.append(one.tree.turns[node])
            node = added[-1].parent
        for turn in reversed(added):
            node = self.tree.add(replace(turn, parent=node))
            self.branch_of[node] = one.path.branch
        one.path.node = node
        if one.leaf is not None:
            one.leaf = replace(one.leaf, node=node)
            return
        snapshot = one.env.snapshot()
        self.points[node] = Point(snapshot, one.session, one.session.length, one.path.score, one.path.turn)

    async def _again(self, one: Grown, length: int) -> None:
        """Give a path a fresh environment and session, as they were before its last turn."""
        await self._end(one)
        one.session = one.session.fork(length)
        one.env = self.root  # until it has another
        one.env = await self.stage.restore(self.root, self.points[one.path.node].snapshot, one.path)

    async def _end(self, one: Grown) -> None:
        one.session.close()
        if one.env is not self.root:
            await self.stage.close(one.env)
