"""The servers of an engine: which one is asked, how often a request is sent, and which are down.

A server to which a connection breaks, or that does not know the weights it was asked for, is down: nothing is sent
there until it is healthy and has been admitted again. Requests wait meanwhile, or go to another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TypeVar
from weakref import WeakKeyDictionary

from ....tools.http.core import HttpFailure
from ...engine import EngineFailure, EngineFault
from .client import Endpoint

T = TypeVar("T")

POLL = 0.5  # seconds between two looks at a server that is down
HEALTH = 5.0  # seconds in which a server must say that it is well
PAUSE = 0.1  # seconds before the second try of a request; each further pause is twice as long
LONGEST = 2.0  # the longest pause
SPILL = 8  # requests by which a server may be ahead of another, besides having twice as many


class Fleet:
    """Servers of the same weights.

    Args:
        urls: `http(s)://host[:port][/path]`, where a last `/v1` may stand.
        in_flight: Turns at a time, for each server.
        tries: Of a request, whatever comes between.
        deadline: Seconds for a turn, from when it is first sent, and for each other answer.
        ended: Where the server is our own, why it has ended for good, if it has; no request waits for it then.

    Raises:
        ValueError: there is no URL, one is none, or a number is out of range.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        in_flight: int = 64,
        tries: int = 12,
        deadline: float = 600.0,
        ended: Callable[[], EngineFailure | None] = lambda: None,
    ) -> None:
        if not urls or len(set(urls)) < len(urls):
            raise ValueError(f"urls is {list(urls)}; name at least 1 server, and each once")
        if in_flight < 1 or tries < 1 or deadline <= 0:
            raise ValueError(f"in_flight is {in_flight}, tries {tries}, deadline {deadline}; use 1, 1, above 0 or more")
        self.servers = [Endpoint(url, deadline) for url in urls]
        self.in_flight, self.tries, self.deadline, self.ended = in_flight, tries, deadline, ended
        self.admit: Callable[[Endpoint], Awaitable[None]] | None = None  # for a server that was down; may raise
        self._waking: dict[Endpoint, asyncio.Task[None]] = {}
        self._places = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    def place(self) -> asyncio.Semaphore:
        """Return what holds one of the places for turns, in `async with`."""
        places = asyncio.Semaphore(self.in_flight * len(self.servers))
        return self._places.setdefault(asyncio.get_running_loop(), places)

    async def run(self, home: bytes, attempt: Callable[[Endpoint], Awaitable[T]], ends: float) -> T:
        """Await `attempt` with a server, and again where another try may help, until the loop's time is `ends`.

        `home` decides which server it is, as long as that one is up and not far ahead of another.

        Raises:
            EngineFailure: it failed for good, or too often, or time is over.
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
            why = last or next((f" ({s.url} is down: {s.why})" for s in self.servers if not s.up), "")
            raise EngineFailure(EngineFault.TIMEOUT, f"no answer before the turn's deadline{why}") from None

    async def aclose(self) -> None:
        """Close all connections; the fleet may be used again."""
        waking = [task for task in self._waking.values() if not task.done()]
        for task in waking:
            task.cancel()
        await asyncio.gather(*waking, return_exceptions=True)
        for server in self.servers:
            await server.aclose()

    async def _server(self, home: bytes) -> Endpoint:
        """Return the server to ask, waiting where all are down."""
        while waking := self._watch():
            if self.ended() or any(server.up for server in self.servers):
                break
            await asyncio.wait(waking, return_when=asyncio.FIRST_COMPLETED)
        if (failure := self.ended()) is not None:
            raise failure
        return choose([server for server in self.servers if server.up], home)

    def _watch(self) -> list[asyncio.Task[None]]:
        """Return tasks, one for each server that is down, that have it admitted as soon as it is healthy."""
        for server in self.servers:
            if not server.up and (server not in self._waking or self._waking[server].done()):
                self._waking[server] = asyncio.get_running_loop().create_task(self._wake(server))
        return [task for task in self._waking.values() if not task.done()]

    async def _wake(self, server: Endpoint) -> None:
        """Look at a server that is down until it has been admitted, or has ended for good."""
        while not server.up and self.ended() is None:
            try:
                async with asyncio.timeout(HEALTH):
                    await server.send("GET", "/health")
                if self.admit is not None:
                    await self.admit(server)
            except (HttpFailure, TimeoutError):
                await asyncio.sleep(POLL)
            except Exception as error:
                server.why = f"{type(error).__name__}: {error}"  # requests that wait end in time, and say this
                await asyncio.sleep(POLL)
            else:
                server.up = True


def choose(servers: Sequence[Endpoint], home: bytes) -> Endpoint:
    """Return the server of rendezvous hashing for `home` (Thaler and Ravishankar 1998), or a far less busy one.

    When a server goes or comes, only what was or will be at home there moves.
    """
    mine = max(servers, key=lambda server: blake2b(home + server.url.encode(), digest_size=8).digest())
    idlest = min(servers, key=lambda server: server.flying)
    return idlest if mine.flying > 2 * idlest.flying + SPILL else mine
