"""An environment, a tool and an engine in trouble: they never answer, answer late, or fail for a while."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from turngym.agents.engine import Completion, Cut, Engine, Sampling, Session
from turngym.envs import Reply, StopReason, TextEnv
from turngym.envs.tasks import ListTasks, Task

TASK = 1  # the one that meets the trouble
PLACES = ("reset", "fork", "step", "close")


class Troubled(TextEnv):
    """Three turns about anything; in `place`, one of `PLACES`, task 1 calls `trouble`, which may wait, raise or return.

    What it answers depends on the text alone, so that its episodes are the same whenever they are played.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "trouble", "closed"}

    def __init__(self, place: str = "", trouble: Callable[[], object] = lambda: None) -> None:
        super().__init__(max_turns=9)
        self.place, self.trouble, self.task = place, trouble, 0
        self.tasks = ListTasks([Task(str(i), "", "") for i in range(4)])
        self.closed: list[int] = []  # the tasks of the copies that were closed

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Name the task."""
        self.task, self.task_id = options["task"], str(options["task"])
        self._meet("reset")
        return f"Say {self.task}."

    def on_step(self, text: str) -> Reply:
        """Pay by the text; end after three turns."""
        self._meet("step")
        stop = StopReason.ANSWERED if self.turn == 2 else None
        return Reply("and", reward=0.25 * (sha256(text.encode()).digest()[0] % 4), stop=stop)

    def fork(self) -> Troubled:
        """Return a copy."""
        self._meet("fork")
        return super().fork()

    def close(self) -> None:
        """Note which task was closed."""
        self._meet("close")
        self.closed.append(self.task)

    def _meet(self, place: str) -> None:
        if self.place == place and self.task == TASK:
            self.trouble()


class Flaky:
    """Raises `error` for the first `times` calls."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.lock = times, error, threading.Lock()

    def __call__(self) -> None:
        """Count one call."""
        with self.lock:
            self.times -= 1
            left = self.times
        if left >= 0:
            raise self.error


class StuckEngine:
    """Another engine that never draws the second turn of task 1."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.max_context = engine, engine.max_context

    def session(self) -> StuckSession:
        """A conversation that gets stuck."""
        return StuckSession(self.engine.session())

    async def sync(self) -> None:
        """As the other engine does."""
        await self.engine.sync()

    def close(self) -> None:
        """The other engine is closed by who made it."""

    async def __aenter__(self) -> StuckEngine:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class StuckSession:
    """A conversation whose second turn never comes, for task 1."""

    def __init__(self, session: Session) -> None:
        self.inner = session

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.inner.length

    async def sample(
        self,
        tokens: NDArray[np.int32],
        sampling: Sampling,
        key: tuple[int, ...],
        cut: Cut | None = None,
    ) -> Completion:
        """Draw, or wait for ever."""
        if key[2] == TASK and key[-1] == 1:
            await asyncio.Event().wait()
        return await self.inner.sample(tokens, sampling, key, cut)

    def fork(self, length: int | None = None) -> StuckSession:
        """A sibling that gets stuck, too."""
        return StuckSession(self.inner.fork())

    def close(self) -> None:
        """Give the place back."""
        self.inner.close()
