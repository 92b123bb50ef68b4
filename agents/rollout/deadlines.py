"""How long a rollout waits, and what it is waiting for.

Invariant: every wait of a rollout has a deadline, so that nothing that never answers can stop it (R27).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from math import isfinite
from typing import TypeVar

from ..journal import Incident, OnIncident
from ..settings import DeadlineOptions
from ..trajectory import Key

T = TypeVar("T")

SHOWN = 20  # pending keys that an incident names


@dataclass(frozen=True)
class Deadlines:
    """Seconds that the parts of a rollout may take. What overruns is an infrastructure failure and earns no score.

    turn: drawing one turn, or one answer of the environment
    episode: one path, from where its environment is made
    step: the whole rollout of a step; paths that are under way then have failed
    stall: after so long without any movement an incident names what is pending

    Raises:
        ValueError: one of them is not above 0.
    """

    turn: float = DeadlineOptions.turn_deadline
    episode: float = DeadlineOptions.episode_deadline
    step: float = DeadlineOptions.step_deadline
    stall: float = 120.0

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if not (isfinite(seconds) and seconds > 0):
                raise ValueError(f"the {name} deadline is {seconds} seconds; it must be above 0")


class Overdue(RuntimeError):
    """A deadline passed; `deadline` names which."""

    def __init__(self, deadline: str, message: str) -> None:
        super().__init__(message)
        self.deadline = deadline


class Watch:
    """Keeps the deadlines of one rollout. Made inside its event loop, where the step's time begins."""

    def __init__(self, deadlines: Deadlines, on_incident: OnIncident) -> None:
        self.deadlines, self.on_incident = deadlines, on_incident
        self.pending: dict[Key, str] = {}
        self._clock = asyncio.get_running_loop().time
        self._step_ends = self._clock() + deadlines.step
        self._moved = self._clock()

    def episode(self) -> float:
        """Return when an episode that begins now must have ended."""
        return self._clock() + self.deadlines.episode

    async def wait(self, work: Awaitable[T], key: Key, what: str, ends: float) -> T:
        """Return what `work` gives. `key` is who waits, `what` for what, `ends` when its episode must have ended.

        Raises:
            Overdue: a deadline passed first; `work` was cancelled.
        """
        turn_ends = self._clock() + self.deadlines.turn
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
            seconds = getattr(self.deadlines, name)
            raise Overdue(name, f"{what} was not over when the {name} deadline of {seconds:g} s passed") from None

    async def report_stalls(self) -> None:
        """Write an incident with the pending keys whenever nothing has moved for `stall` seconds; never returns."""
        while True:
            await asyncio.sleep(max(self._moved + self.deadlines.stall - self._clock(), 0.01))
            still = self._clock() - self._moved
            if still >= self.deadlines.stall and self.pending:
                self.on_incident(Incident("stall", f"nothing has moved for {still:.1f} s; pending: {self._names()}"))
                self._moved = self._clock()

    def _names(self) -> str:
        names = [f"{'/'.join(map(str, key))} ({what})" for key, what in list(self.pending.items())[:SHOWN]]
        more = f" and {len(self.pending) - SHOWN} more" if len(self.pending) > SHOWN else ""
        return ", ".join(names) + more
