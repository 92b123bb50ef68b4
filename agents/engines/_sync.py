"""Publishing the policy's weights to servers, and proof that they have them before anything is drawn.

Each version is written whole, loaded under a name that was never used before, and probed. The version before it stays
loaded, since requests may still name it; older ones are unloaded and deleted.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import numpy as np

from ..engine import EngineFailure, EngineFault
from ..policy import Policy
from ._probe import Answer, Belief, Finding, Noise, Verdict, belief, compare, prompts
from ._remote import Line, ask, base_name, load, unload
from .checks import base_noise
from .servable import write_adapter

PAUSE = 0.5  # seconds between two attempts at a server that is not there
_AWAY = frozenset({EngineFault.CONNECT, EngineFault.TIMEOUT, EngineFault.FULL})


@dataclass(frozen=True)
class Present:
    """What is published: its name on the servers, its folder (None: no adapter), and what the learner says there."""

    name: str
    folder: Path | None
    belief: Belief


def _ignore(line: str) -> None:
    del line


class Publisher:
    """Keeps servers at the policy's weights.

    Args:
        policy: Whose weights; without LoRA the servers' own model is only probed.
        urls: The servers; they must see `adapters` under the same path.
        adapters: Folder for the adapters; what is in it is deleted.
        deadline: Seconds for one server's answer, and for one to come back.
        log: Gets a line for each finding that is not plainly right.
    """

    def __init__(
        self,
        policy: Policy,
        urls: Sequence[str],
        adapters: Path,
        *,
        deadline: float = 300.0,
        log: Callable[[str], None] = _ignore,
    ) -> None:
        self.version = -1
        self.verified: dict[str, str] = {}  # what each server was last found to have, by its URL
        self._policy, self._urls, self._adapters = policy, tuple(urls), adapters
        self._deadline, self._log = deadline, log
        self._run, self._count = uuid4().hex[:8], 0
        self._used: set[str] = set()  # a server may keep what it computed under a name
        self._prompts = prompts(policy)
        self._present: Present | None = None
        self._before: Present | None = None
        with policy.reference():
            self._reference = belief(policy, self._prompts)
        self._noise: dict[str, Noise] = {}
        self._restoring: dict[str, asyncio.Task[None]] = {}
        shutil.rmtree(adapters, ignore_errors=True)
        adapters.mkdir(parents=True)

    @property
    def name(self) -> str:
        """The name that requests must give to be drawn by the published weights."""
        if self._present is None:
            raise RuntimeError("nothing was published yet; await publish()")
        return self._present.name

    async def publish(self) -> dict[str, Finding]:
        """Bring every server to the policy's weights as they are, and prove it; findings by URL.

        Where servers cannot be reached it does so for the others and leaves those out of `verified`; where none can,
        it waits for one. Servers that have these weights already are only probed.

        Raises:
            EngineFailure: VERSION, a server has other weights; MISMATCH, another model; else why none could be reached.
            OSError: the adapter cannot be written.
        """
        now = await asyncio.to_thread(belief, self._policy, self._prompts)
        present = self._present
        if present is None or self.version != self._policy.version or _differ(now, present.belief):
            present = await asyncio.to_thread(self._write, now)
        until = time.monotonic() + self._deadline
        while True:
            answers = await asyncio.gather(*(self._bring(url, present) for url in self._urls), return_exceptions=True)
            away = [a for a in answers if isinstance(a, EngineFailure) and a.fault in _AWAY]
            if wrong := [a for a in answers if isinstance(a, BaseException) and a not in away]:
                await self._drop(present)
                raise wrong[0]
            if len(away) < len(self._urls):
                break
            if time.monotonic() > until:
                raise away[0]
            await asyncio.sleep(PAUSE)
        if present.folder is None:
            present = replace(present, name=next(iter(self.verified.values())))
        await self._advance(present)
        return {url: a for url, a in zip(self._urls, answers, strict=True) if isinstance(a, Finding)}

    async def restore(self, url: str) -> None:
        """Load what is published into a server that was started again, and prove it; callers at a time share one.

        Raises:
            EngineFailure: CONNECT while it is not there; VERSION or MISMATCH, as in `publish`.
        """
        loop = asyncio.get_running_loop()
        task = self._restoring.get(url)
        if task is None or task.done() or task.get_loop() is not loop:
            task = self._restoring[url] = loop.create_task(self._restore(url))
        await asyncio.shield(task)

    async def _restore(self, url: str) -> None:
        if self._present is None:
            raise RuntimeError("nothing was published yet; await publish()")
        await self._bring(url, self._present)

    def _write(self, now: Belief) -> Present:
        if self._policy.lora is None:
            return Present("", None, now)
        self._count += 1
        folder = self._adapters / f"v{self._policy.version}"
        if folder.name in self._used:  # it failed before, or the version was not raised with the weights
            folder = folder.with_name(f"{folder.name}.{self._count}")
        self._used.add(folder.name)
        write_adapter(self._policy, folder)
        return Present(f"turngym-{self._run}-{folder.name}", folder, now)

    async def _advance(self, present: Present) -> None:
        self.version = self._policy.version
        if self._present is present:
            return
        old, self._before, self._present = self._before, self._present, present
        await self._drop(old)

    async def _drop(self, gone: Present | None) -> None:
        if gone is None or gone.folder is None or gone is self._present:
            return
        for url in self._urls:
            await unload(Line(url, self._deadline), gone.name)
        await asyncio.to_thread(shutil.rmtree, gone.folder, True)

    async def _bring(self, url: str, present: Present) -> Finding:
        """Load `present` into a server where it is not, and probe it."""
        self.verified.pop(url, None)
        line = Line(url, self._deadline)
        try:
            accepted = await self._accepted(line)
            name, answer = await self._ask(line, present)
        except EngineFailure as failure:
            if failure.fault is EngineFault.STATUS:
                await line.send("GET", "/health")  # one that is ending refuses everything, and is away
            raise
        finding = compare(answer, present.belief, self._others(present), accepted)
        if finding.verdict is Verdict.WRONG:
            raise EngineFailure(EngineFault.VERSION, _wrong(url, name, finding))
        if finding.verdict is Verdict.INDISTINGUISHABLE:
            self._log(
                f"{url}: {name} is right within {finding.error:.1e} nats, but the probe cannot tell it from "
                f"{' and '.join(finding.near)}: the weights differ too little"
            )
        self.verified[url] = name
        return finding

    async def _ask(self, line: Line, present: Present) -> tuple[str, Answer]:
        if present.folder is None:
            name = await base_name(line)
            return name, await ask(line, name, self._prompts)
        await load(line, present.name, present.folder)
        try:
            return present.name, await ask(line, present.name, self._prompts)
        except EngineFailure as failure:
            if failure.fault is not EngineFault.STATUS:
                raise
            await load(line, present.name, present.folder)  # it may have lost it by starting again in between
            return present.name, await ask(line, present.name, self._prompts)

    def _others(self, present: Present) -> dict[str, Belief]:
        """What the learner says at weights that a failed update would leave."""
        if present.folder is None:
            return {}
        before = self._before if present is self._present else self._present
        return {"no adapter": self._reference} | ({} if before is None else {f"adapter {before.name}": before.belief})

    async def _accepted(self, line: Line) -> Noise:
        if line.url not in self._noise:
            self._noise[line.url] = await base_noise(line, self._policy, self._reference, self._prompts)
        return self._noise[line.url]


def _differ(one: Belief, other: Belief) -> bool:
    return not np.array_equal(one.behind, other.behind)


def _wrong(url: str, name: str, finding: Finding) -> str:
    distances = ", ".join(f"{far:.2e} from {which}" for which, far in finding.distance.items())
    return (
        f"{url} does not answer with the weights of {name}: its log-probabilities are off by up to {finding.error:.2e} "
        f"nats (allowed {finding.allowed:.2e}); root mean square {distances}; nearest to {finding.nearest}. "
        "Nothing was drawn with them; start the server again, or look at what it loaded"
    )
