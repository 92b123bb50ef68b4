"""Requests over reused connections, asynchronous or from threads: one deadline a request, bounded answers, retries.

The deadline covers a whole request: name lookup, waiting for a connection, each byte both ways, and all tries. Timeouts
of sockets cannot promise that, since a server that sends a byte a second restarts them with each. So requests of
threads run on an event loop in a thread of the client's, where they can be cancelled at any point.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
import weakref
import zlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from .failures import Fault, HttpFailure, Limits, ShapeError
from .json_values import Node, parse, serialize

PROBE = 1.5  # seconds in which a server must show that it is there
CONNECTIONS = 256
KEEP = 4.0  # seconds an idle connection is kept: less than the 5 after which common servers close theirs
BACKOFF = 0.1  # seconds before the second try; each further pause is twice as long
EXCERPT = 200  # characters of an error page in a message
PAGE = 2**16  # bytes of an error page that are read
HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "turngym"}


class JsonClient:
    """Sends and receives JSON, from any thread; it may be used again in a forked process, with connections of its own.

    `url` is `http(s)://host[:port][/path]`, to which `path` is added, `authorization` the value of that header, which
    is never shown, and `limits` are those of each request. Raises ValueError for a wrong URL or authorization.
    """

    def __init__(
        self, url: str, path: str = "", *, authorization: str = "", limits: Limits | None = None
    ) -> None:
        self.url, self.limits, self._secret = address(url) + path, limits or Limits(), authorization
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise ValueError(f"the secret for {self.url} holds characters that no header can carry")
        self._closed = False
        self._reset()
        _clients.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._runner: _Runner | None = None

    def post(self, body: Any) -> Node:
        """Send `body` and return the answer; raises `HttpFailure`."""
        return self._ask("POST", serialize(body))

    def get(self) -> Node:
        """Return what is at the URL; raises `HttpFailure`."""
        return self._ask("GET", b"")

    def _ask(self, method: str, content: bytes) -> Node:
        end = time.monotonic() + self.limits.deadline
        answer = self._send(method, self.url, content, self.limits)
        try:
            read = Node(parse(answer))
        except ShapeError as error:
            raise HttpFailure(Fault.MALFORMED, str(error)) from None
        # Nothing can end the reading of JSON; `max_bytes` bounds it. An answer that took too long is none.
        if time.monotonic() > end:
            raise HttpFailure(
                Fault.TIMEOUT, f"no answer within {self.limits.deadline:g} s, its reading included"
            )
        return read

    def send(self, body: Any) -> bytes:
        """Send `body` and return the answer as it came, JSON or not; raises `HttpFailure`."""
        return self._send("POST", self.url, serialize(body), self.limits)

    def check(self, query: str = "") -> None:
        """Raise `HttpFailure` unless a server answers soon that something takes requests at the URL."""
        try:
            self._send("GET", self.url + query, b"", Limits(PROBE, 1, self.limits.max_bytes))
        except HttpFailure as failure:
            # A server that takes only POST there says so; one that has no such path says 404.
            if not 400 <= failure.status < 500 or failure.status in (401, 403, 404, 407):
                raise

    def close(self) -> None:
        """Cancel requests under way and close all connections; it may be called twice."""
        with self._lock:
            self._closed, runner, self._runner = True, self._runner, None
        if runner is not None:
            runner.stop()
            runner.thread.join()

    def _send(self, method: str, url: str, content: bytes, limits: Limits) -> bytes:
        with self._lock:
            if self._closed:
                raise HttpFailure(Fault.CONNECT, "the client is closed")
            if self._runner is None:
                headers = {"Authorization": self._secret} if self._secret else {}
                self._runner = _Runner(
                    Connections(secure=self.url.startswith("https:"), headers=headers)
                )
                weakref.finalize(
                    self, self._runner.stop
                ).atexit = False  # for who forgets to close it
            connections = self._runner.connections
            sending = retried(
                lambda: connections.send(method, url, content, limits.max_bytes), limits
            )
            future = asyncio.run_coroutine_threadsafe(sending, self._runner.loop)
        try:
            return future.result()
        except CancelledError:
            raise HttpFailure(Fault.CONNECT, "the client was closed meanwhile") from None
        except HttpFailure as failure:
            if self._secret:
                failure.what = failure.what.replace(self._secret, "…")
                failure.page = failure.page.replace(self._secret, "…")
                failure.args = (failure.what,)
            raise
        finally:
            future.cancel()  # where the caller was interrupted


class _Runner:
    def __init__(self, connections: Connections) -> None:
        self.loop, self.connections = asyncio.new_event_loop(), connections
        self.thread = threading.Thread(target=self._run, name="turngym-http", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Cancel all requests and end; it may be called twice."""
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.loop.stop)

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
            await asyncio.sleep(
                0
            )  # a cancelled request has yet to begin the task that ends its body
        await self.connections.aclose()
        await self.loop.shutdown_asyncgens()


class Connections:
    """Up to `most` connections on one event loop; further requests wait. Only if `secure` are certificates read."""

    def __init__(
        self, *, secure: bool, headers: Mapping[str, str] | None = None, most: int = CONNECTIONS
    ) -> None:
        self._tls = httpx.create_ssl_context(verify=secure, trust_env=False)
        self._headers = {**HEADERS, **(headers or {})}
        self._places, self._idle = asyncio.Semaphore(most), list[httpx.AsyncHTTPTransport]()

    async def send(self, method: str, url: str, content: bytes, max_bytes: int) -> bytes:
        """Send a request once, again where a reused connection breaks, and return the body; raises `HttpFailure`."""
        headers = (
            {**self._headers, "Content-Type": "application/json"} if content else self._headers
        )
        request = httpx.Request(method, url, headers=headers, content=content)
        async with self._places:
            reused = bool(self._idle)
            try:
                return await self._send(
                    self._idle.pop() if reused else self._open(), request, max_bytes
                )
            except HttpFailure as failure:
                if not (reused and failure.fault is Fault.CONNECT):
                    raise
            return await self._send(self._open(), request, max_bytes)

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().aclose()

    async def _send(
        self, transport: httpx.AsyncHTTPTransport, request: httpx.Request, max_bytes: int
    ) -> bytes:
        try:
            body = await _exchange(transport, request, max_bytes)
        except BaseException:
            await transport.aclose()
            raise
        self._idle.append(transport)
        return body

    def _open(self) -> httpx.AsyncHTTPTransport:
        # A pool of httpx looks through all its connections for each request: 200 in one triple the processor time.
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)


class BoundedBody:
    """Collects a body of at most `most` bytes, as sent and as unpacked; `name` is for messages.

    Unpacked by httpx, a block of any ratio would be so at once. Raises HttpFailure: MALFORMED or TOO_LARGE.
    """

    def __init__(self, name: str, encoding: str, most: int) -> None:
        if (encoding := encoding.strip().lower()) not in ("", "identity", "gzip", "x-gzip"):
            found = f"{name} has the encoding {encoding[:60]!r}"
            raise HttpFailure(Fault.MALFORMED, f"{found}, and only gzip was offered")
        self._inflate = (
            zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding.endswith("gzip") else None
        )
        self._name, self._most, self._sent, self._body = name, most, 0, bytearray()
        self.too_large = HttpFailure(Fault.TOO_LARGE, f"{name} is larger than {most} bytes")

    def add(self, chunk: bytes) -> None:
        self._sent += len(chunk)
        try:
            # One byte more than allowed is enough to see; 0 would mean no limit.
            left = self._most + 1 - len(self._body)
            self._body += self._inflate.decompress(chunk, left) if self._inflate else chunk
        except zlib.error:
            raise HttpFailure(
                Fault.MALFORMED, f"{self._name} has damaged compressed bytes"
            ) from None
        if max(self._sent, len(self._body)) > self._most:
            raise self.too_large

    @property
    def beginning(self) -> bytes:
        """What has come so far, unpacked, at most as much as is allowed."""
        return bytes(self._body[: self._most])

    def end(self) -> bytes:
        if self._inflate and not self._inflate.eof:
            raise HttpFailure(
                Fault.MALFORMED, f"{self._name} has compressed bytes that end too soon"
            )
        return bytes(self._body)


async def retried(attempt: Callable[[], Awaitable[bytes]], limits: Limits) -> bytes:
    """Return what `attempt` returns, trying again after an `HttpFailure` that may pass; raises the last, or TIMEOUT."""
    end, tried, last = time.monotonic() + limits.deadline, 0, ""
    try:
        async with asyncio.timeout(limits.deadline):
            while True:
                try:
                    return await attempt()
                except HttpFailure as failure:
                    tried, last = tried + 1, f" (before that: {failure.what})"
                    pause = max(BACKOFF * 2 ** (tried - 1), failure.wait or 0.0)
                    if (
                        failure.wait is None
                        or tried == limits.tries
                        or time.monotonic() + pause >= end
                    ):
                        raise
                await asyncio.sleep(pause)
    except TimeoutError:
        raise HttpFailure(Fault.TIMEOUT, f"no answer within {limits.deadline:g} s{last}") from None


def address(url: str) -> str:
    """Return an address without its last slash; raises ValueError where it is no `http(s)://host[:port][/path]`."""
    shown = re.sub(r"//.*@", "//", url)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{shown!r} is no URL: {error}") from None
    good = parsed.scheme in ("http", "https") and parsed.host and (parsed.port or 1) <= 65535
    if not good or parsed.query or parsed.fragment:
        raise ValueError(
            f"{shown!r} is no address of a server; it looks like http://127.0.0.1:8000/path"
        )
    base = str(parsed.copy_with(userinfo=b"")).rstrip("/")
    if parsed.userinfo:
        raise ValueError(f"the address {base} has a user; a key is read from the environment")
    return base


async def _exchange(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, max_bytes: int
) -> bytes:
    try:
        response = await transport.handle_async_request(request)
        try:
            if not 200 <= response.status_code < 300:
                raise await _refusal(response)
            body = BoundedBody(
                "its answer", response.headers.get("content-encoding", ""), max_bytes
            )
            if int(response.headers.get("content-length", 0)) > max_bytes:
                raise body.too_large
            async for chunk in response.aiter_raw():
                body.add(chunk)
            return body.end()
        finally:
            await response.aclose()
    except (httpx.TransportError, OSError, UnicodeError) as error:
        cause: BaseException = error
        while below := cause.__cause__ or cause.__context__:  # those on top name no reason
            cause = below
        raise HttpFailure(
            Fault.CONNECT, f"{type(cause).__name__}: {cause}"[:EXCERPT], 0.0
        ) from None


async def _refusal(response: httpx.Response) -> HttpFailure:
    if 300 <= (status := response.status_code) < 400:
        to = response.headers.get("location", "")[:EXCERPT]
        what = f"it answered {status}, a redirect to {to!r}, which is not followed"
        return HttpFailure(Fault.STATUS, what, status=status)
    page = await _page(response)
    what = f"it answered {status}: {page[:EXCERPT]!r}"
    wait = (
        _retry_after(response.headers.get("retry-after", ""))
        if status >= 500 or status == 429
        else None
    )
    return HttpFailure(Fault.STATUS, what, wait, status, page)


async def _page(response: httpx.Response) -> str:
    """Return the beginning of an error page. The status is known already, so a page that breaks off is no failure."""
    try:
        body = BoundedBody("its error", response.headers.get("content-encoding", ""), PAGE)
    except HttpFailure as failure:
        return failure.what
    with suppress(HttpFailure, httpx.TransportError, TimeoutError):
        async with asyncio.timeout(PROBE):
            async for chunk in response.aiter_raw():
                body.add(chunk)
    return body.beginning.decode("utf-8", "replace")


def _retry_after(value: str) -> float:
    """Return the seconds that a server asks for, as a number or as a date; else 0 (RFC 9110, section 10.2.3)."""
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    with suppress(ValueError, OverflowError, OSError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0


_clients: weakref.WeakSet[JsonClient] = weakref.WeakSet()
_inherited: list[Any] = []


def _reset_after_fork() -> None:
    """Leave the event loops of the parent process alone: it goes on using their sockets."""
    for client in list(_clients):
        _inherited.append(client._runner)
        client._reset()


os.register_at_fork(after_in_child=_reset_after_fork)
