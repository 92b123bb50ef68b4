"""A small client of JSON over HTTP for search servers: pooled connections, one deadline a request, bounded sizes.

The deadline covers a whole request: name lookup, waiting for a connection, each byte both ways, and all tries. Timeouts
of sockets cannot promise that, since a server that sends a byte a second restarts them with each. So requests run on an
event loop in a thread of the client's, where they can be cancelled at any point. No cookies, redirects or proxies.
"""

import asyncio
import base64
import os
import re
import threading
import weakref
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import httpx

from .core import Fault, SearchFailure
from .exchange import Bounds, Trouble, exchange, persist
from .shape import Misfit, Node, parse, unparse

CONNECTIONS = 256
KEEP = 4.0  # seconds an idle connection is kept: less than the 5 after which common servers close theirs
PROBE = 1.5  # seconds in which a server must show that it is there
FIXES = {
    Fault.TIMEOUT: "give it more time (deadline) or less to do",
    Fault.STATUS: "the server's log may say why",
    Fault.TOO_LARGE: "ask for fewer or shorter passages, or allow more (max_bytes)",
    Fault.MALFORMED: "check that this is the address of such a server",
}


class JsonClient:
    """Sends and receives JSON, from any thread; it may be used again in a forked process, with connections of its own.

    url: `http(s)://[user:password@]host[:port][/path]`; a user and password are sent as basic authentication
    path: added to the URL
    authorization: the value of that header, in place of one from the URL; never shown
    down: what to do where no server answers, for messages

    Raises ValueError for what is no such URL, or an authorization that no header can carry.
    """

    _lock: threading.Lock
    _runner: "_Runner | None"

    def __init__(
        self, url: str, path: str, *, authorization: str = "", bounds: Bounds | None = None, down: str
    ) -> None:
        base, secret = split_url(url)
        self.url = base + path
        self._secret = authorization or secret
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise ValueError(f"the secret for {self.url} holds characters that no header can carry")
        self.bounds, self._down = bounds or Bounds(), down
        self._headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "turngym"}
        if self._secret:
            self._headers["Authorization"] = self._secret
        self._closed = False
        self._begin()
        _clients.add(self)

    def __repr__(self) -> str:
        return f"<client of {self.url}>"

    def post(self, body: Any) -> Node:
        """Send `body` and return the answer; raises `SearchFailure`."""
        try:
            return Node(parse(self._wait("POST", self.url, unparse(body), self.bounds)))
        except (Trouble, Misfit) as trouble:
            self.fail(trouble)

    def probe(self, query: str = "") -> None:
        """Raise `SearchFailure` unless a server answers soon that something takes requests at the URL."""
        try:
            self._wait("GET", self.url + query, b"", Bounds(PROBE, 1, self.bounds.max_bytes))
        except Trouble as trouble:
            # A server that takes only POST there says so; one that has no such path says 404.
            if not 400 <= trouble.status < 500 or trouble.status in (401, 403, 404, 407):
                self.fail(trouble)

    def fail(self, trouble: Trouble | Misfit) -> NoReturn:
        """Raise what the caller of a search sees."""
        fault = trouble.fault if isinstance(trouble, Trouble) else Fault.MALFORMED
        fix = self._down if fault is Fault.CONNECT else FIXES[fault]
        if isinstance(trouble, Trouble) and trouble.status in (401, 403):
            fix = "give the secret that it asks for"
        trouble.__traceback__ = None  # its frames hold the answer
        raise SearchFailure(fault, f"{self.url}: {trouble}; {fix}") from None

    def close(self) -> None:
        """Break off what is under way and end all connections; it may be called twice."""
        with self._lock:
            self._closed, runner, self._runner = True, self._runner, None
        if runner is not None:
            runner.stop(wait=True)

    def _begin(self) -> None:
        self._lock, self._runner = threading.Lock(), None

    def _wait(self, method: str, url: str, content: bytes, bounds: Bounds) -> bytes:
        with self._lock:
            if self._closed:
                raise Trouble(Fault.CONNECT, "the client is closed")
            if self._runner is None:
                self._runner = _Runner(secure=self.url.startswith("https:"))
                weakref.finalize(self, self._runner.stop).atexit = False  # for who forgets to close it
            headers = {**self._headers, "Content-Type": "application/json"} if content else self._headers
            request = httpx.Request(method, url, headers=headers, content=content)
            asked = self._runner.begin(request, bounds)
        try:
            return asked.result()
        except CancelledError:
            raise Trouble(Fault.CONNECT, "the client was closed meanwhile") from None
        except Trouble as trouble:
            if self._secret:
                trouble.args = (trouble.what.replace(self._secret, "…"),)
            raise
        finally:
            asked.cancel()  # where the caller was interrupted


class _Runner:
    """An event loop in a daemon thread, with the connections that live on it."""

    def __init__(self, *, secure: bool) -> None:
        self.loop, self._free = asyncio.new_event_loop(), list[httpx.AsyncHTTPTransport]()
        self._places = asyncio.Semaphore(CONNECTIONS)
        # Without TLS there is no use in reading the certificates of all authorities.
        self._tls = httpx.create_ssl_context(verify=secure, trust_env=False)
        self._thread = threading.Thread(target=self._run, name="turngym-http", daemon=True)
        self._thread.start()

    def begin(self, request: httpx.Request, bounds: Bounds) -> "Future[bytes]":
        """Start a request, from any thread."""
        return asyncio.run_coroutine_threadsafe(
            persist(partial(self._try, request, bounds.max_bytes), bounds), self.loop
        )

    async def _try(self, request: httpx.Request, most: int) -> bytes:
        # The pool of httpx looks through all its connections for each request, so each connection has one of its own.
        async with self._places:
            transport = self._free.pop() if self._free else self._transport()
            try:
                return await exchange(transport, request, most)
            finally:
                self._free.append(transport)

    def _transport(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)

    def stop(self, *, wait: bool = False) -> None:
        """Cancel all requests and end; it may be called twice."""
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.loop.stop)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        own = asyncio.current_task()
        for request in asyncio.all_tasks() - {own}:
            request.cancel()
        while left := asyncio.all_tasks() - {own}:
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.sleep(0)  # a request that is broken off has yet to begin the task that ends its body
        for transport in self._free:
            await transport.aclose()
        await self.loop.shutdown_asyncgens()


def split_url(url: str) -> tuple[str, str]:
    """The URL without user, password and last slash, and the basic authentication that they make."""
    shown = re.sub(r"//.*@", "//", url)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{shown!r} is no URL: {error}") from None
    good = parsed.scheme in ("http", "https") and parsed.host and (parsed.port or 1) <= 65535
    if not good or parsed.query or parsed.fragment:
        raise ValueError(f"{shown!r} is no address of a search server; it looks like http://127.0.0.1:8000/path")
    pair = f"{parsed.username}:{parsed.password}".encode()
    secret = f"Basic {base64.b64encode(pair).decode()}" if parsed.userinfo else ""
    return str(parsed.copy_with(userinfo=b"")).rstrip("/"), secret


_clients: weakref.WeakSet[JsonClient] = weakref.WeakSet()
_inherited: list[Any] = []


def _begin_anew() -> None:
    """Leave the loops of the process that this one was forked from as they are: it goes on using their sockets."""
    for client in list(_clients):
        _inherited.append(client._runner)
        client._begin()


os.register_at_fork(after_in_child=_begin_anew)
