"""The engine whose turns are drawn by vLLM servers, from token ids to token ids; which server is asked, and how often.

A conversation is kept here, as its tokens; a server knows nothing of it but what lies in its prefix cache. So turns and
branches are cheap there, and a server that is started again loses nothing: requests are sent again with the same seed.

A server to which a connection breaks, or that does not know the weights it was asked for, is down: nothing is sent
there until it is healthy and has been admitted again. Requests wait meanwhile, or go to another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Literal, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ....tools.http.failures import HttpFailure
from ...engine import (
    Completion,
    Cut,
    EngineFailure,
    EngineFault,
    Generation,
    OpenSession,
    Sampling,
    Stop,
    StopRule,
)
from ...policy import Policy
from .client import TOP, CompletionRequest, Drawn, Replica
from .publish import Publisher

T = TypeVar("T")
POLL = 0.5  # seconds between two looks at a server that is down
HEALTH = 5.0  # seconds in which a server must say that it is well
PAUSE = 0.1  # seconds before the second try of a request; each further pause is twice as long
LONGEST = 2.0  # the longest pause
SPILL = 8  # requests by which a server may be ahead of another, besides having twice as many
NOISE = 1e-6  # a missing mass below this is rounding
LEAST_TEMPERATURE = 0.01  # below it, but for 0, a server draws as if it were this


class VllmEngine:
    """Draws turns of a `Policy` on the servers of `fleet`, which `publisher` keeps at the policy's weights.

    `max_context` (tokens) is the policy's limit, which `sync` lowers to that of the servers. From the `top` likeliest
    tokens shown at each `Completion.entropy` is estimated.
    """

    mode: Literal["server"] = "server"  # accounting and distributions are promised, not bits
    forward, threads = "vllm", 0
    mode_reason = "a server's numbers depend on what else is in its batch"

    def __init__(
        self, policy: Policy, fleet: "Fleet", publisher: Publisher, *, top: int = TOP
    ) -> None:
        self.policy, self.fleet, self.publisher, self.top = policy, fleet, publisher, top
        self.max_context = policy.max_context
        self.version: int | None = None  # of the weights that the servers have
        self.ends = StopRule(policy.tokenizer)
        self.drawing: set[VllmSession] = set()
        self._open = True
        fleet.admit = self._admit

    def session(self) -> "VllmSession":
        return VllmSession(self)

    async def sync(self) -> None:
        """Bring the servers to the policy's weights; those that are away are admitted when they are back.

        Raises EngineFailure where no server can be had, or one has other weights; ValueError where a server does not
        show the log-probabilities by which it samples.
        """
        version = self.policy.version
        await self.publisher.publish()
        self.version = version
        for server in self.fleet.servers:
            try:
                if not server.model:
                    raise EngineFailure(
                        EngineFault.CONNECT, "it was away when weights were published"
                    )
                await self._inspect(server)
                server.up = True
            except EngineFailure as failure:
                if failure.fault is not EngineFault.CONNECT:
                    raise
                server.set_down(str(failure))

    def close(self) -> None:
        """End every turn in progress with RuntimeError; connections end with the event loop they were made on."""
        self._open = False
        for session in list(self.drawing):
            session.close()

    def check(self) -> int:
        """Return the version that a turn is drawn with; raises RuntimeError where none can be."""
        if not self._open:
            raise RuntimeError("the engine is closed; open another")
        if self.version != self.policy.version:
            versions = (
                f"the policy is at version {self.policy.version} and the servers at {self.version}"
            )
            raise RuntimeError(f"{versions}; await the engine's sync() behind an update")
        return self.version

    def request(
        self,
        prompt: list[int],
        most: int,
        sampling: Sampling,
        key: tuple[int, ...],
        stops: tuple[str, ...] = (),
    ) -> CompletionRequest:
        policy = self.policy
        return CompletionRequest(
            prompt, most, key, sampling, policy.end_ids, policy.vocabulary, stops, self.top
        )

    async def _admit(self, server: Replica) -> None:
        await self.publisher.restore(server)
        await self._inspect(server)

    async def _inspect(self, server: Replica) -> None:
        if server.inspected:
            return
        _, limit = await server.base_model()
        self.max_context = min(self.max_context, limit)
        prompt = self.policy.tokenizer.encode("1 + 1 =", add_special_tokens=False).ids[
            : self.max_context - 1
        ]
        spread = []
        for temperature in (1.0, 2.0):
            drawn = await server.draw(self.request(prompt, 1, Sampling(temperature), (0,)))
            top = np.sort(drawn.top[0][np.isfinite(drawn.top[0])])[-self.top :]
            spread.append(float(top[-1] - top[0]))
        if (
            spread[1] > 0.75 * spread[0]
        ):  # where they are those of the sampler they lie half as far apart
            apart = f"{spread[0]:.4f} nats apart at temperature 1 and {spread[1]:.4f} at 2"
            fix = "start it with --logprobs-mode processed_logprobs"
            raise ValueError(
                f"{server.url}: its log-probabilities are not those it samples by: {apart}; {fix}"
            )
        server.inspected = True


class VllmSession(OpenSession):
    """One conversation on a `VllmEngine`; `home` decides which server draws its turns, the same for a whole tree."""

    def __init__(self, engine: VllmEngine, tokens: Sequence[int] = (), home: bytes = b"") -> None:
        super().__init__([*tokens])
        self.engine, self.home = engine, home
        self._task: asyncio.Task[Completion] | None = None

    @property
    def drawing(self) -> bool:
        return self._task is not None

    async def sample(
        self,
        tokens: NDArray[np.int32],
        sampling: Sampling,
        key: tuple[int, ...],
        cut: Cut | None = None,
    ) -> Completion:
        """Append `tokens` int32 [q], then draw one turn; raises what `turn` does (see `engine.Session`)."""
        turn = self.turn(tokens, sampling, cut)
        if 0 < (given := sampling.temperature) < LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature is {given}; vLLM raises it to {LEAST_TEMPERATURE}: use that, or 0"
            )
        version = self.engine.check()
        if not turn.most:
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

    def _twin(self, length: int) -> Self:
        if not 0 <= length <= self.length:
            raise ValueError(f"length is {length}; the session has {self.length} tokens")
        return type(self)(self.engine, self.tokens[:length], self.home)

    def close(self) -> None:
        self.closed = True
        if self._task is not None:
            self._task.cancel()

    async def _draw(self, turn: Generation, key: tuple[int, ...], version: int) -> Completion:
        """Draw a turn: ask, and ask on where a server stopped at a text that completes nothing.

        A server looks for closers only in what it draws. Where one has begun in the prompt, only so many tokens are
        asked for as it may lack, and its end is found here.
        """
        engine, stop = self.engine, None
        closers = turn.cut.closers if turn.cut else ()
        async with engine.fleet.place():
            ends = asyncio.get_running_loop().time() + engine.fleet.deadline
            while stop is None:
                n = len(turn.tokens)
                most = turn.most - n
                if turn.cut and (missing := engine.ends.unfinished(turn.tokens, turn.cut)):
                    most = min(most, missing)
                request = engine.request(
                    self.tokens + turn.tokens, most, turn.sampling, (*key, n), closers
                )
                drawn = await engine.fleet.run(
                    self.home, partial(Replica.draw, request=request), ends
                )
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
            text = policy.tokenizer.decode(
                turn.tokens[-len(drawn.stopped.encode()) - 1 :], skip_special_tokens=False
            )
            if drawn.stopped not in text:
                message = f"it stopped at {drawn.stopped!r}, and its tokens are {text[-60:]!r}"
                raise EngineFailure(EngineFault.MISMATCH, message)
        # A truncated distribution has no more tokens than top_k; of top_p that number is not known.
        top_k = 0 if turn.sampling.temperature == 0 else turn.sampling.top_k
        turn.logp += drawn.logp[:n].tolist()
        turn.entropy += entropies(
            drawn.top[:n], turn.sampling.temperature, policy.vocabulary, top_k
        ).tolist()
        return stop


def entropies(
    top: NDArray[np.float64], temperature: float, vocabulary: int, top_k: int = 0
) -> NDArray[np.float64]:
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
    count = np.zeros(
        (len(top), top.shape[1] + 1)
    )  # log of the number of tokens in each column; the last is hidden
    count[:, -1] = (few + most) / 2
    weight = (temperature or 1.0) * np.column_stack(
        [top, mass - count[:, -1]]
    )  # log, at temperature 1
    logp = weight - np.logaddexp.reduce(weight + count, 1)[:, None]
    entropy: NDArray[np.float64] = -(
        np.exp(logp + count) * np.where(np.isfinite(logp), logp, 0.0)
    ).sum(1)
    return entropy


class Fleet:
    """Servers of the same weights.

    urls: `http(s)://host[:port][/path]`, each once, where a last `/v1` may stand.
    deadline: Seconds for a turn, from when it is first sent, and for each other answer.
    ended: Where the server is our own, why it has ended for good, if it has; no request waits for it then.
    """

    in_flight = 64  # turns at a time, for each server
    tries = 12  # of a request, whatever comes between

    def __init__(
        self,
        urls: Sequence[str],
        deadline: float = 600.0,
        ended: Callable[[], EngineFailure | None] = lambda: None,
    ) -> None:
        if not urls or len(set(urls)) < len(urls):
            raise ValueError(f"urls is {list(urls)}; name at least 1 server, and each once")
        self.servers = [Replica(url, deadline) for url in urls]
        self.deadline, self.ended = deadline, ended
        self.admit: Callable[[Replica], Awaitable[None]] | None = (
            None  # for a server that was down; may raise
        )
        self._waking: dict[Replica, asyncio.Task[None]] = {}
        self._places = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    def place(self) -> asyncio.Semaphore:
        places = asyncio.Semaphore(self.in_flight * len(self.servers))
        return self._places.setdefault(asyncio.get_running_loop(), places)

    async def run(self, home: bytes, attempt: Callable[[Replica], Awaitable[T]], ends: float) -> T:
        """Await `attempt` with a server, and again where another try may help, until the loop's time is `ends`.

        `home` decides which server it is, as long as that one is up and not far ahead of another.
        """
        tried, last = 0, ""
        try:
            async with asyncio.timeout_at(ends):
                while True:
                    server = await self._server(home)
                    try:
                        return await attempt(server)
                    except EngineFailure as failure:
                        tried += 1
                        last = f" (before that {failure})"
                        self._watch()
                        if tried == self.tries or failure.wait is None:
                            raise
                        pause = max(min(PAUSE * 2 ** (tried - 1), LONGEST), failure.wait)
                    await asyncio.sleep(pause)
        except TimeoutError:
            why = last or next(
                (f" ({each.url} is down: {each.why})" for each in self.servers if not each.up), ""
            )
            raise EngineFailure(
                EngineFault.TIMEOUT, f"no answer before the turn's deadline{why}"
            ) from None

    async def _server(self, home: bytes) -> Replica:
        while waking := self._watch():
            if self.ended() or any(server.up for server in self.servers):
                break
            await asyncio.wait(waking, return_when=asyncio.FIRST_COMPLETED)
        if (failure := self.ended()) is not None:
            raise failure
        return choose([server for server in self.servers if server.up], home)

    def _watch(self) -> list[asyncio.Task[None]]:
        """Return the tasks that have servers that are down admitted as soon as they are healthy."""
        for server in self.servers:
            if not server.up and (server not in self._waking or self._waking[server].done()):
                self._waking[server] = asyncio.get_running_loop().create_task(self._wake(server))
        return [task for task in self._waking.values() if not task.done()]

    async def _wake(self, server: Replica) -> None:
        while not server.up and self.ended() is None:
            try:
                async with asyncio.timeout(HEALTH):
                    await server.send("GET", "/health")
                if self.admit is not None:
                    await self.admit(server)
                server.up = True
            except Exception as error:
                if not isinstance(error, HttpFailure | TimeoutError):  # else it is still away
                    server.why = f"{type(error).__name__}: {error}"  # requests that wait end in time, and say this
                await asyncio.sleep(POLL)


def choose(servers: Sequence[Replica], home: bytes) -> Replica:
    """Return the server of rendezvous hashing for `home` (Thaler and Ravishankar 1998), or a far less busy one.

    When a server goes or comes, only what was or will be at home there moves.
    """
    mine = max(
        servers, key=lambda server: blake2b(home + server.url.encode(), digest_size=8).digest()
    )
    idlest = min(servers, key=lambda server: server.flying)
    return idlest if mine.flying > 2 * idlest.flying + SPILL else mine
