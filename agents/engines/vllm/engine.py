"""The engine whose turns are drawn by vLLM servers, from token ids to token ids.

A conversation is kept here, as its tokens; a server knows nothing of it but what lies in its prefix cache. So turns and
branches are cheap there, and a server that is started again loses nothing: requests are sent again with the same seed.
"""

import asyncio
from functools import partial
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from ...engine import (
    Completion,
    Cut,
    EngineFailure,
    EngineFault,
    Generation,
    Sampling,
    Stop,
    StopRule,
    check_turn,
    keyed_rng,
)
from ...policy import Policy
from .client import TOP, CompletionRequest, Drawn, Endpoint
from .fleet import Fleet
from .publish import Publisher

NOISE = 1e-6  # a missing mass below this is rounding
LEAST_TEMPERATURE = 0.01  # below it, but for 0, a server draws as if it were this


class VllmEngine:
    """Draws turns of a `Policy` on the servers of `fleet`.

    Args:
        policy: Whose turns.
        fleet: The servers.
        publisher: Keeps them at the policy's weights.
        top: Likeliest tokens shown at each, from which `Completion.entropy` is estimated; servers allow 20 by default.

    `max_context` (tokens) is the policy's limit, which `sync` lowers to that of the servers.
    """

    mode: Literal["server"] = "server"  # accounting and distributions are promised, not bits
    forward = "vllm"
    mode_reason = "a server's numbers depend on what else is in its batch"

    def __init__(self, policy: Policy, fleet: Fleet, publisher: Publisher, *, top: int = TOP) -> None:
        if top < 2:
            raise ValueError(f"top is {top}; an entropy needs 2 tokens or more")
        self.policy, self.fleet, self.publisher, self.top = policy, fleet, publisher, top
        self.max_context = policy.max_context
        self.version: int | None = None  # of the weights that the servers have
        self.ends = StopRule(policy.tokenizer)
        self.drawing: set[VllmSession] = set()
        self._open = True
        fleet.admit = self._admit

    def session(self) -> "VllmSession":
        """Return a new, empty conversation."""
        return VllmSession(self)

    async def sync(self) -> None:
        """Bring the servers to the policy's weights; those that are away are admitted when they are back.

        Raises:
            EngineFailure: no server can be had, or one has other weights.
            ValueError: a server does not show the log-probabilities by which it samples.
        """
        version = self.policy.version
        await self.publisher.publish()
        self.version = version
        for server in self.fleet.servers:
            try:
                if not server.model:
                    raise EngineFailure(EngineFault.CONNECT, "it was away when weights were published")
                await self._inspect(server)
                server.up = True
            except EngineFailure as failure:
                if failure.fault is not EngineFault.CONNECT:
                    raise
                server.set_down(str(failure))

    def close(self) -> None:
        """End every turn in progress with RuntimeError. Connections end with the event loop they were made on."""
        self._open = False
        for session in list(self.drawing):
            session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.fleet.aclose()

    def check(self) -> int:
        """Return the version that a turn is drawn with; raises RuntimeError where none can be."""
        if not self._open:
            raise RuntimeError("the engine is closed; open another")
        if self.version != self.policy.version:
            versions = f"the policy is at version {self.policy.version} and the servers at {self.version}"
            raise RuntimeError(f"{versions}; await the engine's sync() behind an update")
        return self.version

    def request(
        self, prompt: list[int], most: int, sampling: Sampling, key: tuple[int, ...], stops: tuple[str, ...] = ()
    ) -> CompletionRequest:
        """Return a request for up to `most` tokens behind `prompt`, whose draws `key` alone decides."""
        seed, policy = int(keyed_rng(key).integers(2**63)), self.policy
        return CompletionRequest(prompt, most, seed, sampling, policy.end_ids, policy.vocabulary, stops, self.top)

    async def _admit(self, server: Endpoint) -> None:
        """Take a server back that was down."""
        await self.publisher.restore(server)
        await self._inspect(server)

    async def _inspect(self, server: Endpoint) -> None:
        """See how much a server that was started anew can hold, and which numbers it shows."""
        if server.inspected:
            return
        _, limit = await server.base_model()
        self.max_context = min(self.max_context, limit)
        prompt = self.policy.tokenizer.encode("1 + 1 =", add_special_tokens=False).ids[: self.max_context - 1]
        spread = []
        for temperature in (1.0, 2.0):
            drawn = await server.draw(self.request(prompt, 1, Sampling(temperature), (0,)))
            top = np.sort(drawn.top[0][np.isfinite(drawn.top[0])])[-self.top :]
            spread.append(float(top[-1] - top[0]))
        # Tempered log-probabilities lie half as far apart; the numbers in between are the nearest to neither.
        if spread[1] > 0.75 * spread[0]:
            raise ValueError(
                f"{server.url}: its log-probabilities are not those it samples by: {spread[0]:.4f} nats apart at "
                f"temperature 1 and {spread[1]:.4f} at 2; start it with --logprobs-mode processed_logprobs"
            )
        server.inspected = True


class VllmSession:
    """One conversation on a `VllmEngine`; `home` decides which server draws its turns, the same for a whole tree."""

    def __init__(self, engine: VllmEngine) -> None:
        self.engine = engine
        self.tokens: list[int] = []
        self.home = b""
        self.version: int | None = None
        self.closed = False
        self._task: asyncio.Task[Completion] | None = None

    @property
    def length(self) -> int:
        """Tokens so far, fed and drawn."""
        return len(self.tokens)

    async def sample(
        self, tokens: NDArray[np.int32], sampling: Sampling, key: tuple[int, ...], cut: Cut | None = None
    ) -> Completion:
        """Append `tokens` int32 [q], then draw one turn (see `engine.Session`).

        Raises:
            RuntimeError: it is closed, already drawing, or under other weights than it began or the servers have.
            ValueError: an id is outside the vocabulary, there is nothing to begin with, servers do not take the
                temperature, or the cut has no closers.
        """
        check_turn(self, self.engine.policy, self._task is not None, tokens, cut)
        if 0 < sampling.temperature < LEAST_TEMPERATURE:
            what = f"vLLM raises values below {LEAST_TEMPERATURE} to that: use it, or 0"
            raise ValueError(f"temperature is {sampling.temperature}; {what}")
        version = self.engine.check()
        room = self.engine.max_context - self.length - len(tokens)
        turn = Generation(sampling, min(sampling.max_tokens, room), cut)
        if room <= 0:
            return turn.completion("context", version, estimate=True)
        self.version = version
        self.home = self.home or np.asarray(tokens, np.int32).tobytes()
        self.tokens.extend(int(token) for token in tokens)
        self._task = asyncio.get_running_loop().create_task(self._draw(turn, key, version))
        self.engine.drawing.add(self)
        try:
            return await self._task
        except BaseException as error:
            if self.closed and isinstance(error, asyncio.CancelledError):
                raise RuntimeError("the session was closed while it drew a turn") from None
            self.close()  # with tokens fed and no turn behind them the session has no sensible next
            raise
        finally:
            self.engine.drawing.discard(self)
            self._task = None

    def fork(self, length: int | None = None) -> "VllmSession":
        """Return an independent sibling with the same first tokens.

        Raises:
            RuntimeError: a turn is being drawn.
            ValueError: the session does not have this length.
        """
        if self._task is not None:
            raise RuntimeError("the session is drawing; fork it between two turns")
        length = self.length if length is None else length
        if not 0 <= length <= self.length:
            raise ValueError(f"length is {length}; the session has {self.length} tokens")
        twin = VllmSession(self.engine)
        twin.tokens, twin.home, twin.version = self.tokens[:length], self.home, self.version
        return twin

    def close(self) -> None:
        """End the session; a turn in progress ends with RuntimeError."""
        self.closed = True
        if self._task is not None:
            self._task.cancel()

    async def _draw(self, turn: Generation, key: tuple[int, ...], version: int) -> Completion:
        """Draw a turn: ask, and ask on where a server stopped at a text that completes nothing."""
        engine, stop = self.engine, None
        closers = turn.cut.closers if turn.cut else ()
        async with engine.fleet.place():
            ends = asyncio.get_running_loop().time() + engine.fleet.deadline
            while stop is None:
                n = len(turn.tokens)
                request = engine.request(self.tokens + turn.tokens, turn.most - n, turn.sampling, (*key, n), closers)
                drawn = await engine.fleet.run(self.home, partial(Endpoint.draw, request=request), ends)
                stop = self._accept(turn, drawn)
        self.tokens.extend(turn.tokens)
        if turn.sampling.temperature == 0:
            turn.logp = [0.0] * len(turn.tokens)
        return turn.completion(stop, version, estimate=True)

    def _accept(self, turn: Generation, drawn: Drawn) -> Stop | None:
        """Take what was drawn up to where the turn ends, and return why it does; what lies behind is dropped."""
        policy, stop, n = self.engine.policy, None, 0
        while stop is None and n < len(drawn.tokens):
            turn.tokens.append(drawn.tokens[n])
            n += 1
            stop = self.engine.ends.reason(turn, policy.end_ids)
        if stop is None and drawn.stopped is not None:
            text = policy.tokenizer.decode(turn.tokens[-len(drawn.stopped.encode()) - 1 :], skip_special_tokens=False)
            if drawn.stopped not in text:
                message = f"it stopped at {drawn.stopped!r}, and its tokens are {text[-60:]!r}"
                raise EngineFailure(EngineFault.MISMATCH, message)
        # A truncated distribution has no more tokens than top_k; of top_p that number is not known.
        top_k = 0 if turn.sampling.temperature == 0 else turn.sampling.top_k
        turn.logp += drawn.logp[:n].tolist()
        turn.entropy += entropies(drawn.top[:n], turn.sampling.temperature, policy.vocabulary, top_k).tolist()
        return stop


def entropies(top: NDArray[np.float64], temperature: float, vocabulary: int, top_k: int = 0) -> NDArray[np.float64]:
    """Estimate entropies [n], nats, at temperature 1 from log-probabilities `top` [n, k] at `temperature`.

    The mass that `top` lacks lies on tokens not shown. On as few as can hold it, each as likely as the least shown, it
    has the least entropy, on all of them the most; its tokens are taken to be the geometric mean of the two in number,
    which at temperature 1 is the mean of the two entropies.
    """
    shown = np.isfinite(top)
    missing = 1.0 - np.exp(top).sum(1)
    with np.errstate(divide="ignore"):
        mass = np.log(np.where(missing < NOISE, 0.0, missing))
    most = np.log(np.maximum((top_k or vocabulary) - shown.sum(1), 1))
    few = np.clip(mass - np.where(shown, top, np.inf).min(1), 0.0, most)
    count = np.zeros((len(top), top.shape[1] + 1))  # log of the number of tokens in each column; the last is hidden
    count[:, -1] = (few + most) / 2
    weight = (temperature or 1.0) * np.column_stack([top, mass - count[:, -1]])  # log, at temperature 1
    logp = weight - np.logaddexp.reduce(weight + count, 1)[:, None]
    entropy: NDArray[np.float64] = -(np.exp(logp + count) * np.where(np.isfinite(logp), logp, 0.0)).sum(1)
    return entropy
