"""JSON over HTTP: requests over reused connections, with a deadline, bounded answers and retries.

`JsonClient` is for threads, `Connections` for an event loop. The deadline covers a whole request:
name lookup, waiting for a connection, sending, receiving, and all retries. Socket timeouts cannot
ensure that: a server that sends a byte a second restarts them with each byte. So the requests of
threads run on an event loop in a separate thread, where they can be cancelled at any point.
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

PROBE_TIMEOUT = 1.5  # seconds, for `JsonClient.check` and for error pages
MAX_CONNECTIONS = 256  # at once, for one client
# Seconds that an idle connection stays open: less than the 5 after which common servers close it.
KEEPALIVE = 4.0
BACKOFF = 0.1  # seconds before the second try; each further pause is twice as long
MAX_EXCERPT = 200  # characters of an error page in a message
MAX_ERROR_PAGE = 2**16  # bytes of an error page that are read
DEFAULT_HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "turngym"}


class JsonClient:
    """Sends and receives JSON, from any thread.

    A forked process may go on using it and gets its own connections.

    Args:
        url: `http(s)://host[:port][/path]`.
        path: Added to `url`.
        authorization: The value of the `Authorization` header; "" sends none. It is masked in
            errors.
        limits: The limits of each request; None means the default ones.

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
        _all_clients.add(self)

    def _reset(self) -> None:
        """Start without connections: in a new client, and after a fork."""
        self._lock = threading.Lock()
        self._loop_thread: _EventLoopThread | None = None  # started by the first request

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
        """Raise `HttpFailure` unless a server answers at this URL within `PROBE_TIMEOUT`.

        Args:
            query: Added to the URL.
        """
        limits = Limits(deadline=PROBE_TIMEOUT, tries=1, max_bytes=self.limits.max_bytes)
        try:
            self._request("GET", self.url + query, b"", limits)
        except HttpFailure as failure:
            # A server that accepts only POST at this URL answers with a status 4xx. This shows that
            # it is there, unless the URL does not exist (404) or this client may not use it.
            is_client_error = 400 <= failure.status < 500
            if not is_client_error or failure.status in (401, 403, 404, 407):
                raise

    def close(self) -> None:
        """Cancel running requests and close all connections; may be called twice."""
        with self._lock:
            self._closed = True
            loop_thread = self._loop_thread
            self._loop_thread = None
        if loop_thread is not None:
            loop_thread.stop()
            loop_thread.thread.join()

    def _request_json(self, method: str, content: bytes) -> Node:
        """Send a request and return its answer as JSON; raises `HttpFailure`."""
        deadline = time.monotonic() + self.limits.deadline
        answer = self._request(method, self.url, content, self.limits)
        try:
            node = Node(parse(answer))
        except ShapeError as error:
            raise HttpFailure(Fault.MALFORMED, str(error)) from None
        # Parsing cannot be interrupted, so its time is checked afterwards.
        if time.monotonic() > deadline:
            raise HttpFailure(
                Fault.TIMEOUT, f"no answer within {self.limits.deadline:g} s, its reading included"
            )
        return node

    def _request(self, method: str, url: str, content: bytes, limits: Limits) -> bytes:
        """Send a request from the calling thread, with retries, and return the body of the answer.

        Args:
            method: The HTTP method, such as `GET`.
            url: The URL.
            content: The JSON to send; b"" for none.
            limits: The limits of this request.

        Raises:
            HttpFailure: The request failed. The secret is masked in its message and page.
        """
        with self._lock:
            if self._closed:
                raise HttpFailure(Fault.CONNECT, "the client is closed")
            if self._loop_thread is None:
                self._loop_thread = self._start_loop_thread()
            connections = self._loop_thread.connections

            def attempt() -> Awaitable[bytes]:
                return connections.send(method, url, content, limits.max_bytes)

            future = asyncio.run_coroutine_threadsafe(
                send_with_retries(attempt, limits), self._loop_thread.loop
            )
        try:
            return future.result()
        except CancelledError:
            raise HttpFailure(Fault.CONNECT, "the client was closed meanwhile") from None
        except HttpFailure as failure:
            # The server may have repeated the secret in an error page.
            if self._secret:
                failure.what = failure.what.replace(self._secret, "…")
                failure.page = failure.page.replace(self._secret, "…")
                failure.args = (failure.what,)
            raise
        finally:
            # Does nothing unless the wait was interrupted, as by Ctrl-C.
            future.cancel()

    def _start_loop_thread(self) -> _EventLoopThread:
        """Start an event loop with connections, which ends with this client."""
        headers = {"Authorization": self._secret} if self._secret else {}
        connections = Connections(secure=self.url.startswith("https:"), headers=headers)
        loop_thread = _EventLoopThread(connections)
        # A client that nobody closes stops its loop when it is garbage-collected. At the end of the
        # process nothing has to be done: the thread is a daemon.
        weakref.finalize(self, loop_thread.stop).atexit = False
        return loop_thread


class _EventLoopThread:
    """An event loop that runs in its own thread, and the connections that are used on it."""

    def __init__(self, connections: Connections) -> None:
        self.loop = asyncio.new_event_loop()
        self.connections = connections
        self.thread = threading.Thread(target=self._run, name="turngym-http", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Cancel all requests and end the thread; may be called twice."""
        with suppress(RuntimeError):  # the loop is closed already
            self.loop.call_soon_threadsafe(self.loop.stop)

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self._cancel_and_close())
        self.loop.close()

    async def _cancel_and_close(self) -> None:
        """Cancel all other tasks of the loop, wait until they end, and close the connections."""
        this_task = asyncio.current_task()
        for task in asyncio.all_tasks() - {this_task}:
            task.cancel()
        other_tasks = asyncio.all_tasks() - {this_task}
        while other_tasks:
            await asyncio.gather(*other_tasks, return_exceptions=True)
            # A cancelled request starts a task that closes its body. Let that task start, and wait
            # for it, too.
            await asyncio.sleep(0)
            other_tasks = asyncio.all_tasks() - {this_task}
        await self.connections.aclose()
        await self.loop.shutdown_asyncgens()


class Connections:
    """Reusable HTTP connections to one server, on one event loop.

    Args:
        secure: Whether the server uses https; only then are certificates loaded.
        headers: Sent with each request, in addition to `DEFAULT_HEADERS`.
        most: The largest number of connections at once; further requests wait for a free one.
    """

    def __init__(
        self, *, secure: bool, headers: Mapping[str, str] | None = None, most: int = MAX_CONNECTIONS
    ) -> None:
        self._tls = httpx.create_ssl_context(verify=secure, trust_env=False)
        self._headers = {**DEFAULT_HEADERS, **(headers or {})}
        self._connection_slots = asyncio.Semaphore(most)
        self._idle: list[httpx.AsyncHTTPTransport] = []  # each has one open connection

    async def send(self, method: str, url: str, content: bytes, max_bytes: int) -> bytes:
        """Send a request and return the body of its answer.

        If an idle connection turns out to be broken, the request is sent again over a new one.

        Args:
            method: The HTTP method, such as `GET`.
            url: The URL.
            content: The JSON to send; b"" for none.
            max_bytes: The largest body of the answer, both compressed and decompressed.

        Raises:
            HttpFailure: The request failed.
        """
        headers = self._headers
        if content:
            headers = {**headers, "Content-Type": "application/json"}
        request = httpx.Request(method, url, headers=headers, content=content)
        async with self._connection_slots:
            if self._idle:
                try:
                    return await self._send_over(self._idle.pop(), request, max_bytes)
                except HttpFailure as failure:
                    # The server may have closed the connection while it was idle.
                    if failure.fault is not Fault.CONNECT:
                        raise
            return await self._send_over(self._open_transport(), request, max_bytes)

    async def aclose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().aclose()

    async def _send_over(
        self, transport: httpx.AsyncHTTPTransport, request: httpx.Request, max_bytes: int
    ) -> bytes:
        """Send a request over one connection; keep it for reuse after success, else close it."""
        try:
            body = await _send_and_receive(transport, request, max_bytes)
        except BaseException:
            # Also after a cancellation: the rest of the answer may still arrive.
            await transport.aclose()
            raise
        self._idle.append(transport)
        return body

    def _open_transport(self) -> httpx.AsyncHTTPTransport:
        # Each connection has its own transport. A pool of httpx searches all its connections for
        # each request: with 200 in one pool a request takes three times the CPU time.
        limits = httpx.Limits(
            max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE
        )
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)


class BoundedBody:
    """Collects and decompresses the body of an answer, up to a limit.

    httpx would decompress a whole chunk at once, however large it becomes.

    Args:
        name: How errors call the body, such as `its answer`.
        encoding: The value of the header `Content-Encoding`.
        max_bytes: The limit for the body, both compressed and decompressed.

    Raises:
        HttpFailure: MALFORMED if the encoding is not gzip, or the bytes are not valid gzip;
            TOO_LARGE, from `add`, if the body is larger than the limit.
    """

    def __init__(self, name: str, encoding: str, max_bytes: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise HttpFailure(
                Fault.MALFORMED,
                f"{name} has the encoding {encoding[:60]!r}, and only gzip was offered",
            )
        self._decompressor: Any = None
        if encoding.endswith("gzip"):
            # zlib reads the header and checksum of gzip if 16 is added to the window size.
            self._decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._name = name
        self._max_bytes = max_bytes
        self._received_bytes = 0
        self._body = bytearray()
        self.too_large = HttpFailure(Fault.TOO_LARGE, f"{name} is larger than {max_bytes} bytes")

    def add(self, chunk: bytes) -> None:
        """Add bytes as they were received."""
        self._received_bytes += len(chunk)
        if self._decompressor is None:
            self._body += chunk
        else:
            # Allow one byte more than the limit, which shows that the body is too large. It also
            # keeps the argument above 0, which would mean no limit.
            max_length = self._max_bytes + 1 - len(self._body)
            try:
                self._body += self._decompressor.decompress(chunk, max_length)
            except zlib.error:
                raise HttpFailure(
                    Fault.MALFORMED, f"{self._name} has damaged compressed bytes"
                ) from None
        if self._received_bytes > self._max_bytes or len(self._body) > self._max_bytes:
            raise self.too_large

    @property
    def beginning(self) -> bytes:
        """The decompressed bytes so far, up to the limit."""
        return bytes(self._body[: self._max_bytes])

    def end(self) -> bytes:
        """Return the whole body, after its last chunk."""
        if self._decompressor is not None and not self._decompressor.eof:
            raise HttpFailure(
                Fault.MALFORMED, f"{self._name} has compressed bytes that end too soon"
            )
        return bytes(self._body)


async def send_with_retries(attempt: Callable[[], Awaitable[bytes]], limits: Limits) -> bytes:
    """Return the result of `attempt`, which is retried with exponential backoff.

    A failure is retried if it has a `wait`, the least seconds before a retry.

    Args:
        attempt: Sends the request; called for each try.
        limits: `deadline` is for all tries and pauses together, `tries` the most tries.

    Raises:
        HttpFailure: The last try failed, or TIMEOUT if the deadline passed during a try.
    """
    deadline = time.monotonic() + limits.deadline
    tries = 0
    last_problem = ""
    try:
        async with asyncio.timeout(limits.deadline):
            while True:
                tries += 1
                try:
                    return await attempt()
                except HttpFailure as failure:
                    if failure.wait is None or tries == limits.tries:
                        raise
                    backoff = BACKOFF * 2 ** (tries - 1)
                    pause = max(backoff, failure.wait)
                    if time.monotonic() + pause >= deadline:
                        raise
                    last_problem = f" (before that: {failure.what})"
                await asyncio.sleep(pause)
    except TimeoutError:
        raise HttpFailure(
            Fault.TIMEOUT, f"no answer within {limits.deadline:g} s{last_problem}"
        ) from None


def normalize_address(url: str) -> str:
    """Return the address of a server without a slash at its end.

    Raises:
        ValueError: It is not of the form `http(s)://host[:port][/path]`.
    """
    url_without_user = re.sub(r"//.*@", "//", url)  # safe to show: it may have a password
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url_without_user!r} is no URL: {error}") from None
    has_host = parsed.scheme in ("http", "https") and bool(parsed.host)
    has_valid_port = parsed.port is None or parsed.port <= 65535
    has_more_than_path = bool(parsed.query or parsed.fragment)
    if not has_host or not has_valid_port or has_more_than_path:
        raise ValueError(
            f"{url_without_user!r} is no address of a server; "
            "it looks like http://127.0.0.1:8000/path"
        )
    address = str(parsed.copy_with(userinfo=b"")).rstrip("/")
    if parsed.userinfo:
        raise ValueError(f"the address {address} has a user; a key is read from the environment")
    return address


async def _send_and_receive(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, max_bytes: int
) -> bytes:
    """Send a request over one connection, once, and return the body of the answer.

    Raises:
        HttpFailure: The connection broke, the status is not 2xx, or the body is too large or
            malformed.
    """
    try:
        response = await transport.handle_async_request(request)
        try:
            if not 200 <= response.status_code < 300:
                raise await _read_failure(response)
            encoding = response.headers.get("content-encoding", "")
            body = BoundedBody("its answer", encoding, max_bytes)
            announced_bytes = int(response.headers.get("content-length", 0))
            if announced_bytes > max_bytes:
                raise body.too_large
            async for chunk in response.aiter_raw():
                body.add(chunk)
            return body.end()
        finally:
            await response.aclose()
    except (httpx.TransportError, OSError, UnicodeError) as error:
        cause = _find_root_cause(error)
        message = f"{type(cause).__name__}: {cause}"[:MAX_EXCERPT]
        raise HttpFailure(Fault.CONNECT, message, wait=0.0) from None


def _find_root_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain: those of httpx around it do not give the reason."""
    while True:
        cause = error.__cause__ or error.__context__
        if cause is None:
            return error
        error = cause


async def _read_failure(response: httpx.Response) -> HttpFailure:
    """Return the failure that a response means whose status is not 2xx."""
    status = response.status_code
    if 300 <= status < 400:
        location = response.headers.get("location", "")[:MAX_EXCERPT]
        return HttpFailure(
            Fault.STATUS,
            f"it answered {status}, a redirect to {location!r}, which is not followed",
            status=status,
        )
    page = await _read_error_page(response)
    # Errors of the server and "too many requests" (429) may pass, so these are retried.
    is_temporary = status >= 500 or status == 429
    wait: float | None = None
    if is_temporary:
        wait = _parse_retry_after(response.headers.get("retry-after", ""))
    return HttpFailure(
        Fault.STATUS,
        f"it answered {status}: {page[:MAX_EXCERPT]!r}",
        wait=wait,
        status=status,
        page=page,
    )


async def _read_error_page(response: httpx.Response) -> str:
    """Return the beginning of an error page, or why it cannot be decompressed.

    Never fails, as the status already says that the request failed. A page that breaks off, is
    damaged or is slow ends where the problem begins.
    """
    encoding = response.headers.get("content-encoding", "")
    try:
        body = BoundedBody("its error", encoding, MAX_ERROR_PAGE)
    except HttpFailure as failure:
        return failure.what
    with suppress(HttpFailure, httpx.TransportError, TimeoutError):
        async with asyncio.timeout(PROBE_TIMEOUT):
            async for chunk in response.aiter_raw():
                body.add(chunk)
    return body.beginning.decode("utf-8", "replace")


def _parse_retry_after(value: str) -> float:
    """Return the seconds that a `Retry-After` header asks to wait, 0 if it cannot be read.

    The value is a number of seconds or a date (RFC 9110, section 10.2.3).
    """
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    with suppress(ValueError, OverflowError, OSError):
        seconds_until_date = parsedate_to_datetime(value).timestamp() - time.time()
        return max(0.0, seconds_until_date)
    return 0.0


_all_clients: weakref.WeakSet[JsonClient] = weakref.WeakSet()
_inherited_loop_threads: list[_EventLoopThread | None] = []  # those of the parent process


def _reset_after_fork() -> None:
    """Let all clients of a forked process start their own event loops.

    The loops of the parent stay referenced: collecting them would close sockets that the parent
    still uses.
    """
    for client in list(_all_clients):
        _inherited_loop_threads.append(client._loop_thread)
        client._reset()


os.register_at_fork(after_in_child=_reset_after_fork)
