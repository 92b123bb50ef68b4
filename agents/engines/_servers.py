"""The servers of an engine: which one is asked, how often a request is sent, and which are down.

A server to which a connection breaks, or that does not know the weights it was asked for, is down: nothing is sent
there until it is healthy and has been let in again. Requests wait meanwhile, or go to another.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from typing import TypeVar

import httpx

from ...tools.http.connections import exchange
from ...tools.http.core import Fault, HttpFailure
from ..engine import EngineFailure, EngineFault

T = TypeVar("T")

KEEP = 4.0  # seconds an idle connection is kept: less than the 5 after which a server closes its own
POLL = 0.5  # seconds between two looks at a server that is down
DRAIN = 0.02  # seconds between two looks at whether its last requests have ended
HEALTH = 5.0  # seconds in which a server must say that it is well
PAUSE = 0.1  # seconds before the second try of a request; each further pause is twice as long
LONGEST = 2.0  # the longest pause
SPILL = 8  # requests by which a server may be ahead of another, besides having twice as many
FULL = (429, 503)
FAULTS = {
    Fault.CONNECT: EngineFault.CONNECT,
    Fault.TIMEOUT: EngineFault.TIMEOUT,
    Fault.STATUS: EngineFault.STATUS,
    Fault.TOO_LARGE: EngineFault.MALFORMED,
    Fault.MALFORMED: EngineFault.MALFORMED,
}


class Server:
    """A server at `url`.

    up: whether requests may go there. why: what was wrong when it went down. flying: how many requests are there.
    model: the name under which it serves the weights. inspected: whether it was seen to be fit since it was last down.
    """

    def __init__(self, url: str) -> None:
        self.url, self.model, self.why = url, "", ""
        self.up, self.inspected, self.flying = True, False, 0

    def failure(self, trouble: HttpFailure) -> EngineFailure:
        """What to raise where `trouble` with it is not tried again."""
        full = trouble.status in FULL
        fix = "; have fewer in flight (in_flight)" if full else ""
        return EngineFailure(EngineFault.FULL if full else FAULTS[trouble.fault], f"{self.url}: {trouble.what}{fix}")


class ServerPool:
    """Servers of the same weights.

    urls: `http(s)://host[:port][/path]`, where a last `/v1` may stand
    in_flight: requests at a time, for each server
    tries: of a request, whatever comes between
    ended: where the server is our own, why it has ended for good, if it has; no request waits for it then

    Raises ValueError for no URL, or one that is no such.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        in_flight: int = 64,
        tries: int = 12,
        ended: Callable[[], EngineFailure | None] = lambda: None,
    ) -> None:
        if not urls or len(set(urls)) < len(urls):
            raise ValueError(f"urls is {list(urls)}; name at least 1 server, and each once")
        if in_flight < 1 or tries < 1:
            raise ValueError(f"in_flight is {in_flight} and tries {tries}; they must be 1 or more")
        self.servers = [Server(_base(url)) for url in urls]
        self.in_flight, self.tries, self.ended = in_flight, tries, ended
        self.admit: Callable[[Server], Awaitable[None]] = _nothing  # lets a server in that was down; may raise
        tls = any(server.url.startswith("https:") for server in self.servers)
        self._tls = httpx.create_ssl_context(verify=tls, trust_env=False)
        self._room: _Room | None = None

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold one of the places for requests."""
        async with (await self._here()).places:
            yield

    async def run(self, home: bytes, attempt: Callable[[Server], Awaitable[T]], ends: float) -> T:
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
                        return await self.tried(server, attempt)
                    except HttpFailure as trouble:
                        tried += 1
                        last = f" (before that {server.url}: {trouble.what})"
                        lost = trouble.fault is Fault.CONNECT or trouble.status == 404
                        if tried == self.tries or not (lost or trouble.wait is not None):
                            raise server.failure(trouble) from None
                        if lost:
                            await self.lost(server, trouble.what)
                        pause = max(min(PAUSE * 2 ** (tried - 1), LONGEST), trouble.wait or 0.0)
                    await asyncio.sleep(pause)
        except TimeoutError:
            why = last or next((f" ({s.url} is down: {s.why})" for s in self.servers if not s.up), "")
            raise EngineFailure(EngineFault.TIMEOUT, f"no answer before the turn's deadline{why}") from None

    async def tried(self, server: Server, attempt: Callable[[Server], Awaitable[T]]) -> T:
        """Await `attempt` with `server`, once; an EngineFailure names the server."""
        server.flying += 1
        try:
            return await attempt(server)
        except EngineFailure as failure:
            raise EngineFailure(failure.fault, f"{server.url}: {failure}") from None
        finally:
            server.flying -= 1

    async def send(self, server: Server, method: str, path: str, body: bytes = b"", most: int = 2**20) -> bytes:
        """Send a request once, or twice where its connection had been kept too long; raises `HttpFailure`."""
        lines = (await self._here()).lines[server]
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "turngym"}
        if body:
            headers["Content-Type"] = "application/json"
        request = httpx.Request(method, server.url + path, headers=headers, content=body)
        kept = bool(lines)
        line = lines.pop() if kept else self._line()
        try:
            try:
                return await exchange(line, request, most)
            except HttpFailure as trouble:
                if not (kept and trouble.fault is Fault.CONNECT):
                    raise
                await line.aclose()  # the server closed it meanwhile, as it may; that says nothing of the server
                line = self._line()
                return await exchange(line, request, most)
        finally:
            lines.append(line)

    async def lost(self, server: Server, why: str) -> None:
        """Send nothing to `server` until it has been let in again."""
        server.up, server.inspected, server.why = False, False, why
        room = await self._here()
        if server not in room.waking:
            room.waking[server] = asyncio.get_running_loop().create_task(self._wake(room, server))

    async def aclose(self) -> None:
        """Close all connections; the pool may be used again."""
        if self._room is not None:
            room, self._room = self._room, None
            await room.life.aclose()

    async def _here(self) -> "_Room":
        """What lives on the running event loop."""
        loop = asyncio.get_running_loop()
        if self._room is None or self._room.loop is not loop:
            self._room = room = _Room(loop, self)
            await anext(room.life)
            for server in self.servers:
                server.flying = 0
                if not server.up:
                    await self.lost(server, server.why)
        return self._room

    async def _server(self, home: bytes) -> Server:
        """The server to ask, waited for where all are down."""
        room = await self._here()
        async with room.news:
            await room.news.wait_for(lambda: self.ended() or any(server.up for server in self.servers))
        if (failure := self.ended()) is not None:
            raise failure
        return choose([server for server in self.servers if server.up], home)

    async def _wake(self, room: "_Room", server: Server) -> None:
        """Look at a server that is down until it has been let in, or has ended for good."""
        while not server.up and self.ended() is None:
            try:
                async with asyncio.timeout(HEALTH):
                    await self.send(server, "GET", "/health")
                while server.flying:  # a probe may need the server for itself
                    await asyncio.sleep(DRAIN)
                await self.admit(server)
            except (HttpFailure, TimeoutError):
                await asyncio.sleep(POLL)
            except Exception as error:  # what waits for it ends in time, and says this
                server.why = f"{type(error).__name__}: {error}"
                await asyncio.sleep(POLL)
            else:
                server.up = True
        del room.waking[server]
        async with room.news:
            room.news.notify_all()

    def _line(self) -> httpx.AsyncHTTPTransport:
        # The pool of httpx looks through all its connections for each request, so each connection has one of its own.
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)


class _Room:
    """What of a pool lives on one event loop: idle connections, places, and tasks that look after servers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: ServerPool) -> None:
        self.loop = loop
        self.lines: dict[Server, list[httpx.AsyncHTTPTransport]] = {server: [] for server in pool.servers}
        self.places = asyncio.Semaphore(pool.in_flight * len(pool.servers))
        self.news = asyncio.Condition()
        self.waking: dict[Server, asyncio.Task[None]] = {}
        self.life = self._live()

    async def _live(self) -> AsyncGenerator[None]:
        """A generator that has begun is closed by its event loop when that ends, and connections with it."""
        try:
            yield
        finally:
            for task in self.waking.values():
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*self.waking.values(), return_exceptions=True)
            for line in [line for lines in self.lines.values() for line in lines]:
                await line.aclose()


def choose(servers: Sequence[Server], home: bytes) -> Server:
    """The server of rendezvous hashing for `home` (Thaler and Ravishankar 1998); the idlest where it is far ahead.

    When a server goes or comes, only what was or will be at home there moves.
    """
    mine = max(servers, key=lambda server: blake2b(home + server.url.encode(), digest_size=8).digest())
    idlest = min(servers, key=lambda server: server.flying)
    return idlest if mine.flying > 2 * idlest.flying + SPILL else mine


async def _nothing(server: Server) -> None:
    """A server needs nothing to be let in."""


def _base(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is no URL: {error}") from None
    good = parsed.scheme in ("http", "https") and parsed.host and (parsed.port or 1) <= 65535
    if not good or parsed.query or parsed.fragment or parsed.userinfo:
        raise ValueError(f"{url!r} is no address of a server; it looks like http://127.0.0.1:8000")
    return str(parsed).rstrip("/").removesuffix("/v1")
