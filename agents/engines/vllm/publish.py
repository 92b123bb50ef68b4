"""Publishing the policy's weights to servers, and proof that they have them before anything is drawn.

Each version is written as a whole, loaded under a name that was never used before, and probed. The version before it
stays loaded, since requests may still name it; older ones are unloaded and deleted.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import numpy as np
from safetensors.torch import load_file, save_file

from ... import durable
from ...engine import EngineFailure, EngineFault
from ...policy import Policy
from .client import Endpoint
from .probe import LIMIT, Answer, Expected, Finding, Noise, Verdict, allowed, compare, expected, noise, prompts

PAUSE = 0.5  # seconds between two attempts at a server that is not there
AWAY = frozenset({EngineFault.CONNECT, EngineFault.TIMEOUT, EngineFault.FULL})


@dataclass(frozen=True)
class Published:
    """A version: its name on the servers, its folder (None: no adapter), and the learner's log-probabilities."""

    name: str
    folder: Path | None
    expected: Expected


class Publisher:
    """Keeps servers at the policy's weights; a server's `model` is the name of those that it was last seen to have.

    Args:
        policy: Whose weights; without LoRA the servers' own model is only probed.
        servers: They must see `adapters` under the same path.
        adapters: Folder for the adapters; what is in it is deleted.
        report: Gets a line for each finding that is not plainly right.
    """

    def __init__(
        self,
        policy: Policy,
        servers: Sequence[Endpoint],
        adapters: Path,
        *,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.version = -1
        self._policy, self.servers, self._adapters, self._report = policy, tuple(servers), adapters, report
        self._run, self._count = uuid4().hex[:8], 0
        self._used: set[str] = set()  # a server may keep what it computed under a name
        self._prompts = prompts(policy)
        self._present: Published | None = None
        self._before: Published | None = None
        with policy.reference():
            self._reference = expected(policy, self._prompts)
        self._noise: dict[Endpoint, Noise] = {}
        shutil.rmtree(adapters, ignore_errors=True)
        adapters.mkdir(parents=True)

    @property
    def name(self) -> str:
        """The name that requests must give to be drawn by the published weights."""
        if self._present is None:
            raise RuntimeError("nothing was published yet; await publish()")
        return self._present.name

    def check(self) -> None:
        """Refuse servers that cannot draw for the policy; each is asked once.

        Raises:
            ValueError: one cannot be reached, has another model or vocabulary, or does not take the policy's adapters.
        """
        try:
            asyncio.run(self._check())
        except EngineFailure as failure:
            raise ValueError(
                f"{failure}; start one with `--engine vllm` alone, or give the URL of one that fits"
            ) from None

    async def publish(self) -> dict[str, Finding]:
        """Bring every server to the policy's weights as they are, and prove it; findings by URL.

        Servers that cannot be reached are left without a `model`; where none can, one is waited for. Servers that have
        these weights already are only probed.

        Raises:
            EngineFailure: VERSION, a server has other weights; MISMATCH, another model; else why none could be reached.
            OSError: the adapter cannot be written.
        """
        now = await asyncio.to_thread(expected, self._policy, self._prompts)
        version, present = self._policy.version, self._present
        if present is None or self.version != version or not np.array_equal(now.logp, present.expected.logp):
            present = await asyncio.to_thread(self._write, now)
        for server in self.servers:
            server.model = ""
        until = time.monotonic() + max(server.deadline for server in self.servers)
        while True:
            answers = await asyncio.gather(
                *(self._bring(server, present) for server in self.servers), return_exceptions=True
            )
            away = [a for a in answers if isinstance(a, EngineFailure) and a.fault in AWAY]
            if wrong := [a for a in answers if isinstance(a, BaseException) and a not in away]:
                await self._drop(present)
                raise wrong[0]
            if len(away) < len(self.servers):
                break
            if time.monotonic() > until:
                raise away[0]
            await asyncio.sleep(PAUSE)
        found = {server: a for server, a in zip(self.servers, answers) if not isinstance(a, BaseException)}
        if present.folder is None:
            present = replace(present, name=next(iter(found.values()))[0])
        self.version = version
        if present is not self._present:
            old, self._before, self._present = self._before, self._present, present
            await self._drop(old)
        for server in self.servers:
            server.model = found[server][0] if server in found else ""
        return {server.url: finding for server, (_, finding) in found.items()}

    async def restore(self, server: Endpoint) -> None:
        """Load what is published into a server that was started again, and prove it.

        Raises:
            EngineFailure: CONNECT while it is not there; VERSION or MISMATCH, as in `publish`.
        """
        present = None
        while present is None or present is not self._present:  # other weights may be published meanwhile
            present = self._present
            if present is None:
                raise RuntimeError("nothing was published yet; await publish()")
            name, _ = await self._bring(server, present)
        server.model = name

    def _write(self, now: Expected) -> Published:
        if self._policy.lora is None:
            return Published("", None, now)
        self._count += 1
        folder = self._adapters / f"v{self._policy.version}"
        if folder.name in self._used:  # it failed before, or the version was not raised with the weights
            folder = folder.with_name(f"{folder.name}.{self._count}")
        self._used.add(folder.name)
        write_adapter(self._policy, folder)
        return Published(f"turngym-{self._run}-{folder.name}", folder, now)

    async def _drop(self, gone: Published | None) -> None:
        """Unload and delete a version, unless it is the published one."""
        if gone is None or gone.folder is None or gone is self._present:
            return
        for server in self.servers:
            await server.unload(gone.name)
        await asyncio.to_thread(shutil.rmtree, gone.folder, True)

    async def _bring(self, server: Endpoint, present: Published) -> tuple[str, Finding]:
        """Load `present` into a server that lacks it, and probe it; return the name that it has there."""
        try:
            accepted = await self._accepted(server)
            name, answer = await self._probe(server, present)
        except EngineFailure as failure:
            if failure.fault is EngineFault.STATUS:
                await server.ask("GET", "/health")  # one that is ending refuses everything, and is away
            raise
        finding = compare(answer, present.expected, self._others(present), accepted)
        if finding.verdict is Verdict.WRONG:
            raise EngineFailure(EngineFault.VERSION, _wrong(server.url, name, finding))
        if finding.verdict is Verdict.INDISTINGUISHABLE:
            self._report(
                f"{server.url}: {name} is right within {finding.error:.1e} nats, but the probe cannot tell it from "
                f"{' and '.join(finding.near)}: the weights differ too little"
            )
        return name, finding

    async def _probe(self, server: Endpoint, present: Published) -> tuple[str, Answer]:
        if present.folder is None:
            name = await server.base_model()
            return name, await server.answer(name, self._prompts)
        await server.load(present.name, present.folder)
        try:
            return present.name, await server.answer(present.name, self._prompts)
        except EngineFailure as failure:
            if failure.fault is not EngineFault.STATUS:
                raise
            await server.load(present.name, present.folder)  # it may have lost it by starting again in between
            return present.name, await server.answer(present.name, self._prompts)

    def _others(self, present: Published) -> dict[str, Expected]:
        """Return the learner's log-probabilities at weights that a failed update would leave."""
        if present.folder is None:
            return {}
        before = self._before if present is self._present else self._present
        return {"no adapter": self._reference} | ({} if before is None else {f"adapter {before.name}": before.expected})

    async def _check(self) -> None:
        for server in self.servers:
            known, right = await _vocabulary(server, self._policy.vocabulary), self._policy.vocabulary
            if known != right:
                raise server.failure(
                    EngineFault.MISMATCH, f"its model knows {known} token ids, and {self._policy.folder} knows {right}"
                )
            await self._accepted(server)

    async def _accepted(self, server: Endpoint) -> Noise:
        """Return what to take for noise of this server, after proof that it has the policy's model.

        With LoRA it is asked through an adapter of zeros: while adapters are loaded, some servers put a part of one on
        the model that is asked for without any.

        Raises:
            EngineFailure: MISMATCH, its model is another; STATUS, it refuses the adapter.
        """
        if server in self._noise:
            return self._noise[server]
        policy, dtype = self._policy, str(self._policy.base.dtype).removeprefix("torch.")
        if policy.lora is None:
            answer = await server.answer(await server.base_model(), self._prompts)
        else:
            answer = await self._answer_without_effect(server)
        found, limit = noise(answer, self._reference), LIMIT[dtype]
        if not (found.most <= limit.most and found.rms <= limit.rms):
            raise server.failure(
                EngineFault.MISMATCH,
                f"its model is not {policy.folder}: log-probabilities of the same tokens differ by up to "
                f"{found.most:.2e} nats ({limit.most:g} are allowed in {dtype}, root mean square {found.rms:.2e})",
            )
        self._noise[server] = allowed(found, dtype)
        return self._noise[server]

    async def _answer_without_effect(self, server: Endpoint) -> Answer:
        """Return the server's answer with an adapter of the policy's shape that changes nothing."""
        name = f"turngym-zero-{uuid4().hex[:8]}"
        with tempfile.TemporaryDirectory(prefix="turngym-") as folder:
            await asyncio.to_thread(_write_zeros, self._policy, Path(folder) / "zero")
            await server.load(name, Path(folder) / "zero")
            answer = await server.answer(name, self._prompts)
            await server.unload(name)
        return answer


def write_adapter(policy: Policy, folder: Path) -> None:
    """Write the adapter so that `folder` holds all of it, on the disk, or does not exist.

    Raises:
        OSError: it cannot be written.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    policy.save_adapter(temporary)
    for file in (*temporary.iterdir(), temporary):
        durable.sync(file)
    if folder.exists():
        shutil.rmtree(folder)
    temporary.rename(folder)
    durable.sync(folder.parent)


def _write_zeros(policy: Policy, folder: Path) -> None:
    policy.save_adapter(folder)
    file = folder / "adapter_model.safetensors"
    save_file({name: tensor.zero_() for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})


async def _vocabulary(server: Endpoint, expected: int) -> int:
    """Return how many token ids the server's model knows, found from those that it refuses."""
    name = await server.base_model()
    if await server.knows(name, expected - 1) and not await server.knows(name, expected):
        return expected
    low, high = 0, 1
    while await server.knows(name, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if await server.knows(name, middle) else (low, middle)
    return high


def _wrong(url: str, name: str, finding: Finding) -> str:
    distances = ", ".join(f"{far:.2e} from {which}" for which, far in finding.distance.items())
    return (
        f"{url} does not answer with the weights of {name}: its log-probabilities are off by up to {finding.error:.2e} "
        f"nats (allowed {finding.allowed:.2e}); root mean square {distances}; nearest to {finding.nearest}. "
        "Nothing was drawn with them; start the server again, or look at what it loaded"
    )
