"""JSON over HTTP: requests over reused connections, with a deadline, bounded answers and retries.

`JsonClient` is for threads, `Connections` for an event loop. The deadline covers a whole request:
name lookup, waiting for a connection, each byte both ways, and all retries. Timeouts of sockets
cannot promise that, as a server that sends a byte a second restarts them with each byte. So the
requests of threads run on an event loop in a thread of the client's, where they can be cancelled at
any point.
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
CONNECTIONS = 256  # at once, for one client
# Seconds that an idle connection is kept: less than the 5 after which common servers close theirs.
KEEP = 4.0
BACKOFF = 0.1  # seconds before the second try; each further pause is twice as long
EXCERPT = 200  # characters of an error page in a message
PAGE = 2**16  # bytes of an error page that are read
HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "turngym"}


class JsonClient:
    """Sends and receives JSON, from any thread.

    A forked process may go on using it and gets its own connections.

    Args:
        url: `http(s)://host[:port][/path]`.
        path: Added to `url`.
        authorization: The value of the header of that name, which is never shown; "" sends none.
        limits: Of each request; None is the default.

    Raises:
        ValueError: The URL is not as above, or no header can carry `authorization`.
    """

    def __init__(
        self, url: str, path: str = "", *, authorization: str = "", limits: Limits | None = None
    ) -> None:
        self.url = normalize_address(url) + path
        self.limits = limits or Limits()
        self._secret = authorization
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise ValueError(f"the secret for {self.url} holds characters that no header can carry")
        self._closed = False
        self._reset()
        _clients.add(self)

    def _reset(self) -> None:
        """Begin without connections: at first, and in a forked process."""
        self._lock = threading.Lock()
        self._runner: _Runner | None = None  # started by the first request

    def post(self, body: Any) -> Node:
        """Send `body` and return the answer; raises `HttpFailure`."""
        return self._request_json("POST", serialize(body))

    def get(self) -> Node:
        """Return the JSON at the URL; raises `HttpFailure`."""
        return self._request_json("GET", b"")

    def send(self, body: Any) -> bytes:
        """Send `body` and return the answer as it came, JSON or not; raises `HttpFailure`."""
        return self._request("POST", self.url, serialize(body), self.limits)

    def check(self, query: str = "") -> None:
        """Raise `HttpFailure` unless a server answers, within `PROBE` seconds, for this URL.

        Args:
            query: Added to the URL.
        """
        limits = Limits(deadline=PROBE, tries=1, max_bytes=self.limits.max_bytes)
        try:
            self._request("GET", self.url + query, b"", limits)
        except HttpFailure as failure:
            # A server that takes only POST there answers with some status 4xx. That is enough,
            # unless it means that there is nothing (404) or that this client may not use it.
            is_client_error = 400 <= failure.status < 500
            if not is_client_error or failure.status in (401, 403, 404, 407):
                raise

    def close(self) -> None:
        """Cancel requests under way and close all connections; may be called twice."""
        with self._lock:
            self._closed = True
            runner = self._runner
            self._runner = None
        if runner is not None:
            runner.stop()
            runner.thread.join()

    def _request_json(self, method: str, content: bytes) -> Node:
        """Send a request and return its answer as JSON; raises `HttpFailure`."""
        end = time.monotonic() + self.limits.deadline
        answer = self._request(method, self.url, content, self.limits)
        try:
            node = Node(parse(answer))
        except ShapeError as error:
            raise HttpFailure(Fault.MALFORMED, str(error)) from None
        # Parsing cannot be interrupted; `max_bytes` bounds it. If it took too long, the deadline
        # has passed all the same.
        if time.monotonic() > end:
            raise HttpFailure(
                Fault.TIMEOUT, f"no answer within {self.limits.deadline:g} s, its reading included"
            )
        return node

    def _request(self, method: str, url: str, content: bytes, limits: Limits) -> bytes:
        """Send a request from the calling thread, with retries, and return the body of the answer.

        Raises `HttpFailure`, in which the secret is masked.
        """
        with self._lock:
            if self._closed:
                raise HttpFailure(Fault.CONNECT, "the client is closed")
            if self._runner is None:
                self._runner = self._start_runner()
            connections = self._runner.connections
            sending = send_with_retries(
                lambda: connections.send(method, url, content, limits.max_bytes), limits
            )
            future = asyncio.run_coroutine_threadsafe(sending, self._runner.loop)
        try:
            return future.result()
        except CancelledError:
            raise HttpFailure(Fault.CONNECT, "the client was closed meanwhile") from None
        except HttpFailure as failure:
            if self._secret:  # which the server may have repeated in an error page
                failure.what = failure.what.replace(self._secret, "…")
                failure.page = failure.page.replace(self._secret, "…")
                failure.args = (failure.what,)
            raise
        finally:
            future.cancel()  # if the caller was interrupted

    def _start_runner(self) -> _Runner:
        """Start the event loop of this client, which ends with it."""
        headers = {"Authorization": self._secret} if self._secret else {}
        connections = Connections(secure=self.url.startswith("https:"), headers=headers)
        runner = _Runner(connections)
        # If nobody closes the client, its loop stops when it is collected. At the end of the
        # process nothing has to be done: the thread is a daemon.
        weakref.finalize(self, runner.stop).atexit = False
        return runner


class _Runner:
    """An event loop on a thread of its own, with the connections that are used on it."""

    def __init__(self, connections: Connections) -> None:
        self.loop = asyncio.new_event_loop()
        self.connections = connections
        self.thread = threading.Thread(target=self._run, name="turngym-http", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Cancel all requests and end; may be called twice."""
        with suppress(RuntimeError):  # the loop is closed already
            self.loop.call_soon_threadsafe(self.loop.stop)

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self._cancel_and_close())
        self.loop.close()

    async def _cancel_and_close(self) -> None:
        this_task = asyncio.current_task()
        for task in asyncio.all_tasks() - {this_task}:
            task.cancel()
        while remaining_tasks := asyncio.all_tasks() - {this_task}:
            await asyncio.gather(*remaining_tasks, return_exceptions=True)
            # A cancelled request begins a task that ends its body; let it begin.
            await asyncio.sleep(0)
        await self.connections.aclose()
        await self.loop.shutdown_asyncgens()


class Connections:
    """Reusable HTTP connections on one event loop; a request beyond `most` waits for a free one.

    Args:
        secure: Whether the server speaks https; only then are certificates loaded.
        headers: Sent with each request, besides `HEADERS`.
        most: Connections at once.
    """

    def __init__(
        self, *, secure: bool, headers: Mapping[str, str] | None = None, most: int = CONNECTIONS
    ) -> None:
        self._tls = httpx.create_ssl_context(verify=secure, trust_env=False)
        self._headers = {**HEADERS, **(headers or {})}
        self._free_places = asyncio.Semaphore(most)
        self._idle: list[httpx.AsyncHTTPTransport] = []  # a connection each

    async def send(self, method: str, url: str, content: bytes, max_bytes: int) -> bytes:
        """Send a request and return the body of its answer; raises `HttpFailure`.

        It is sent a second time only if a reused connection breaks, which the server may have
        closed meanwhile.

        Args:
            method: As `GET`.
            url: The URL.
            content: The JSON to send; b"" for none.
            max_bytes: The largest answer, as sent and as decompressed.
        """
        headers = self._headers
        if content:
            headers = {**headers, "Content-Type": "application/json"}
        request = httpx.Request(method, url, headers=headers, content=content)
        async with self._free_places:
            if self._idle:
                try:
                    return await self._send_over(self._idle.pop(), request, max_bytes)
                except HttpFailure as failure:
                    if failure.fault is not Fault.CONNECT:
                        raise
            return await self._send_over(self._open_transport(), request, max_bytes)

    async def aclose(self) -> None:
        """Close the connections that are idle."""
        while self._idle:
            await self._idle.pop().aclose()

    async def _send_over(
        self, transport: httpx.AsyncHTTPTransport, request: httpx.Request, max_bytes: int
    ) -> bytes:
        """Send a request over one connection, which is kept if that succeeds and else closed."""
        try:
            body = await _exchange(transport, request, max_bytes)
        except BaseException:  # also a cancellation, after which unread bytes may be on their way
            await transport.aclose()
            raise
        self._idle.append(transport)
        return body

    def _open_transport(self) -> httpx.AsyncHTTPTransport:
        # A transport for each connection: one pool of httpx looks through all its connections for
        # each request, and 200 in one triple the CPU time.
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)


class BoundedBody:
    """Collects a body of limited size, and decompresses it.

    httpx would decompress a chunk at once, however large it becomes.

    Args:
        name: What the body is, for messages.
        encoding: The header `Content-Encoding`.
        max_bytes: The most bytes, as sent and as decompressed.

    Raises:
        HttpFailure: MALFORMED if it is not compressed as it says; from `add`, TOO_LARGE.
    """

    def __init__(self, name: str, encoding: str, max_bytes: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise HttpFailure(
                Fault.MALFORMED,
                f"{name} has the encoding {encoding[:60]!r}, and only gzip was offered",
            )
        self._inflate: Any = None
        if encoding.endswith("gzip"):
            self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: with gzip's header
        self._name = name
        self._max_bytes = max_bytes
        self._sent_bytes = 0
        self._body = bytearray()
        self.too_large = HttpFailure(Fault.TOO_LARGE, f"{name} is larger than {max_bytes} bytes")

    def add(self, chunk: bytes) -> None:
        """Add bytes as they were sent."""
        self._sent_bytes += len(chunk)
        if self._inflate is None:
            self._body += chunk
        else:
            # One byte more than allowed shows that it is too large. 0 would mean no limit.
            limit = self._max_bytes + 1 - len(self._body)
            try:
                self._body += self._inflate.decompress(chunk, limit)
            except zlib.error:
                raise HttpFailure(
                    Fault.MALFORMED, f"{self._name} has damaged compressed bytes"
                ) from None
        if self._sent_bytes > self._max_bytes or len(self._body) > self._max_bytes:
            raise self.too_large

    @property
    def beginning(self) -> bytes:
        """The decompressed bytes so far, at most as many as are allowed."""
        return bytes(self._body[: self._max_bytes])

    def end(self) -> bytes:
        """Return the whole body, after its last chunk."""
        if self._inflate is not None and not self._inflate.eof:
            raise HttpFailure(
                Fault.MALFORMED, f"{self._name} has compressed bytes that end too soon"
            )
        return bytes(self._body)


async def send_with_retries(attempt: Callable[[], Awaitable[bytes]], limits: Limits) -> bytes:
    """Return what `attempt` returns, with retries after failures that may pass.

    Args:
        attempt: Sends a request; called for each try.
        limits: `deadline` is for all tries and pauses, `tries` the most tries.

    Raises:
        HttpFailure: The failure of the last try; TIMEOUT if the deadline passes during a try.
    """
    end = time.monotonic() + limits.deadline
    failed_tries = 0
    last_problem = ""
    try:
        async with asyncio.timeout(limits.deadline):
            while True:
                try:
                    return await attempt()
                except HttpFailure as failure:
                    failed_tries += 1
                    last_problem = f" (before that: {failure.what})"
                    if failure.wait is None or failed_tries == limits.tries:
                        raise
                    pause = max(BACKOFF * 2 ** (failed_tries - 1), failure.wait)
                    if time.monotonic() + pause >= end:
                        raise
                await asyncio.sleep(pause)
    except TimeoutError:
        raise HttpFailure(
            Fault.TIMEOUT, f"no answer within {limits.deadline:g} s{last_problem}"
        ) from None


def normalize_address(url: str) -> str:
    """Return the address of a server without a slash at its end.

    Raises ValueError unless it is `http(s)://host[:port][/path]`.
    """
    shown = re.sub(r"//.*@", "//", url)  # without user and password
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{shown!r} is no URL: {error}") from None
    has_host = parsed.scheme in ("http", "https") and bool(parsed.host)
    has_valid_port = parsed.port is None or parsed.port <= 65535
    if not (has_host and has_valid_port) or parsed.query or parsed.fragment:
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
    """Send a request and return the body; raises `HttpFailure` unless the status is 2xx."""
    try:
        response = await transport.handle_async_request(request)
        try:
            if not 200 <= response.status_code < 300:
                raise await _read_refusal(response)
            encoding = response.headers.get("content-encoding", "")
            body = BoundedBody("its answer", encoding, max_bytes)
            if int(response.headers.get("content-length", 0)) > max_bytes:
                raise body.too_large
            async for chunk in response.aiter_raw():
                body.add(chunk)
            return body.end()
        finally:
            await response.aclose()
    except (httpx.TransportError, OSError, UnicodeError) as error:
        root_cause: BaseException = error
        while cause := root_cause.__cause__ or root_cause.__context__:
            root_cause = cause  # the errors around it do not say why
        raise HttpFailure(
            Fault.CONNECT, f"{type(root_cause).__name__}: {root_cause}"[:EXCERPT], wait=0.0
        ) from None


async def _read_refusal(response: httpx.Response) -> HttpFailure:
    """Return the failure for an answer whose status is not 2xx."""
    status = response.status_code
    if 300 <= status < 400:
        location = response.headers.get("location", "")[:EXCERPT]
        return HttpFailure(
            Fault.STATUS,
            f"it answered {status}, a redirect to {location!r}, which is not followed",
            status=status,
        )
    page = await _read_error_page(response)
    wait: float | None = None
    if status >= 500 or status == 429:  # errors that may pass; 429 is "too many requests"
        wait = _retry_after(response.headers.get("retry-after", ""))
    return HttpFailure(
        Fault.STATUS,
        f"it answered {status}: {page[:EXCERPT]!r}",
        wait=wait,
        status=status,
        page=page,
    )


async def _read_error_page(response: httpx.Response) -> str:
    """Return the beginning of an error page, or why it cannot be read.

    The failure is known by its status already, so a page that breaks off, is damaged or slow is
    cut.
    """
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
    """Return the seconds that a `Retry-After` header asks to wait, 0 if it cannot be read.

    It is a number of seconds or a date (RFC 9110, section 10.2.3).
    """
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    with suppress(ValueError, OverflowError, OSError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0


_clients: weakref.WeakSet[JsonClient] = weakref.WeakSet()
_inherited: list[Any] = []  # event loops of the parent process


def _reset_after_fork() -> None:
    """Give all clients of a forked process their own event loops.

    Those of the parent stay referenced here: collecting them would close sockets that the parent
    still uses.
    """
    for client in list(_clients):
        _inherited.append(client._runner)
        client._reset()


os.register_at_fork(after_in_child=_reset_after_fork)
