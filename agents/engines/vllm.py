"""The engine of a GPU policy: turns are drawn by vLLM servers, from token ids to token ids.

A conversation is kept here, as its tokens; a server knows nothing of it but what lies in its prefix cache, so turns and
branches are cheap there, and a server that is started again loses nothing: what it was asked is asked again, with the
same seed.
"""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

import numpy as np

from ...tools.http.core import Fault, HttpFailure
from ...tools.http.payload import Node, ShapeError, parse
from ..engine import EngineFailure, EngineFault, Sampling, keyed_rng
from ..policy import Policy
from ._served import VllmSession
from ._servers import Server, ServerPool
from ._sync import Publisher
from ._wire import Ask, Drawn, read
from .generation import StopRule

REASON = "a server's numbers depend on what else is in its batch"
FLAG = "--logprobs-mode processed_logprobs"


class Publishing(Protocol):
    """What keeps servers at the policy's weights (`_sync.Publisher`); `verified`: the model's name, by server."""

    version: int
    verified: dict[str, str]

    async def publish(self) -> object:
        """Bring servers to the policy's weights, and see that they have them."""

    async def restore(self, url: str) -> None:
        """Do so for a server that was started again."""


class VllmEngine:
    """Draws turns of a `Policy` on the servers of `pool`.

    adapters: folder for the weights that are published, which the servers see under the same path
    max_context: tokens, lowers the policy's own limit; `sync` lowers it to that of the servers
    deadline: seconds for a turn, from when it is first sent
    top: likeliest tokens shown at each, from which `Completion.entropy` is estimated; servers allow 20 by default
    publisher: in place of one made for the policy

    Raises ValueError on a value out of range.
    """

    def __init__(
        self,
        policy: Policy,
        pool: ServerPool,
        *,
        adapters: Path,
        max_context: int | None = None,
        deadline: float = 600.0,
        top: int = 20,
        publisher: Publishing | None = None,
    ) -> None:
        self.max_context = policy.max_context if max_context is None else max_context
        if not 2 <= self.max_context <= policy.max_context:
            raise ValueError(f"max_context is {max_context}; the policy takes 2..{policy.max_context} tokens")
        if deadline <= 0 or top < 2:
            raise ValueError(
                f"deadline is {deadline} and top {top}; a turn needs time, and an entropy 2 tokens or more"
            )
        self.policy, self.pool, self.deadline, self.top = policy, pool, deadline, top
        self.publisher = publisher or Publisher(policy, [server.url for server in pool.servers], adapters)
        self.version: int | None = None  # of the weights that the servers have
        self.closers = StopRule(policy.tokenizer)
        self.drawing: set[VllmSession] = set()
        self._numbers = itertools.count()
        self._open = True
        pool.admit = self._admit

    @property
    def mode(self) -> Literal["server"]:
        """How far bits are promised: accounting and distributions, not bits."""
        return "server"

    @property
    def mode_reason(self) -> str:
        """Why no bits are promised."""
        return REASON

    def session(self) -> VllmSession:
        """A new, empty conversation."""
        return VllmSession(self)

    async def sync(self) -> None:
        """Bring the servers to the policy's weights; those that are away are let in when they are back.

        Raises EngineFailure where no server can be had, or one has other weights; ValueError where one does not show
        the log-probabilities it samples by.
        """
        version = self.policy.version
        await self.publisher.publish()
        self.version = version
        for server in self.pool.servers:
            try:
                if server.url not in self.publisher.verified:
                    raise HttpFailure(Fault.CONNECT, "it was away when weights were published")
                await self._inspect(server)
            except HttpFailure as trouble:
                if trouble.fault is not Fault.CONNECT:
                    raise server.failure(trouble) from None
                await self.pool.lost(server, trouble.what)
            else:
                server.up = True

    def close(self) -> None:
        """End every turn in progress with RuntimeError. Connections end with the event loop they were made on."""
        self._open = False
        for session in list(self.drawing):
            session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self.pool.aclose()

    def check(self) -> int:
        """The version that a turn is drawn with; raises RuntimeError where none can be."""
        if not self._open:
            raise RuntimeError("the engine is closed; open another")
        if self.version != self.policy.version:
            raise RuntimeError(
                f"the policy is at version {self.policy.version} and the servers at {self.version}; "
                "await the engine's sync() behind an update"
            )
        return self.version

    def ask(
        self, prompt: list[int], most: int, sampling: Sampling, key: tuple[int, ...], stops: tuple[str, ...]
    ) -> Ask:
        """A request for up to `most` tokens behind `prompt`, whose draws `key` alone decides."""
        seed = int(keyed_rng(key).integers(2**63))
        return Ask(f"turngym-{seed:016x}", prompt, most, seed, sampling, self.policy.end_ids, stops, self.top)

    async def answer(self, ask: Ask, server: Server) -> Drawn:
        """What `server` answers; raises HttpFailure where it may be asked again."""
        model, ask = server.model, replace(ask, name=f"{ask.name}-{next(self._numbers)}")
        answer = await self.pool.send(server, "POST", "/v1/completions", ask.body(model), ask.most_bytes)
        return read(answer, ask, model, self.policy.vocabulary)

    async def _admit(self, server: Server) -> None:
        """Let a server in that was down."""
        await self.publisher.restore(server.url)
        await self._inspect(server)

    async def _inspect(self, server: Server) -> None:
        """Take over what a server now has; of one started anew, see what it can hold and which numbers it shows."""
        server.model = self.publisher.verified[server.url]
        if server.inspected:
            return
        self.max_context = min(self.max_context, await self._room(server))
        prompt = self.policy.tokenizer.encode("1 + 1 =", add_special_tokens=False).ids[: self.max_context - 1]
        tops = []
        for temperature in (1.0, 2.0):
            ask = self.ask(prompt, 1, Sampling(temperature), (0,), ())
            drawn = await self.pool.tried(server, partial(self.answer, ask))
            tops.append(np.sort(drawn.top[0][np.isfinite(drawn.top[0])])[-self.top :])
        spread = [float(top[-1] - top[0]) for top in tops]
        # Tempered log-probabilities lie half as far apart; the numbers in between are the nearest to neither.
        if spread[1] > 0.75 * spread[0]:
            raise ValueError(
                f"{server.url}: its log-probabilities are not those it samples by: {spread[0]:.4f} nats apart at "
                f"temperature 1 and {spread[1]:.4f} at 2; start it with {FLAG}"
            )
        server.inspected = True

    async def _room(self, server: Server) -> int:
        """The most tokens a server takes."""
        try:
            models = Node(parse(await self.pool.send(server, "GET", "/v1/models")))["data"].array()
            rooms = [model["max_model_len"] for model in models if model["max_model_len"].value is not None]
            return min([self.max_context, *(room.integer(1, 2**40) for room in rooms)])
        except ShapeError as error:
            raise EngineFailure(EngineFault.MALFORMED, f"{server.url}/v1/models: {error}") from None
