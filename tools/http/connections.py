"""Asynchronous requests over reused connections: answers of bounded size, retries with growing pauses."""

import asyncio
import base64
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime

import httpx

from .core import Fault, HttpFailure, Limits

CONNECTIONS = 256
KEEP = 4.0  # seconds an idle connection is kept: less than the 5 after which common servers close theirs
BACKOFF = 0.1  # seconds before the second try; each further pause is twice as long
EXCERPT = 200  # characters of an error page in a message
HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "turngym"}


class Connections:
    """Up to `most` connections, on one event loop.

    Args:
        secure: Whether `https` is used; without it no certificate is read, which takes long.
        headers: Sent with each request, besides `HEADERS`.
        most: Requests at a time; further ones wait.
    """

    def __init__(self, *, secure: bool, headers: Mapping[str, str] | None = None, most: int = CONNECTIONS) -> None:
        self._tls = httpx.create_ssl_context(verify=secure, trust_env=False)
        self._headers = {**HEADERS, **(headers or {})}
        self._places, self._idle = asyncio.Semaphore(most), list[httpx.AsyncHTTPTransport]()

    def request(self, method: str, url: str, content: bytes = b"") -> httpx.Request:
        """Return a request; `content` is JSON."""
        headers = {**self._headers, "Content-Type": "application/json"} if content else self._headers
        return httpx.Request(method, url, headers=headers, content=content)

    async def send(self, request: httpx.Request, max_bytes: int) -> bytes:
        """Send a request once and return the body of a good answer.

        It is sent again where a reused connection breaks: servers close idle ones at any time.

        Raises:
            HttpFailure: There is no good answer.
        """
        async with self._places:
            reused = bool(self._idle)
            try:
                return await self._send(self._idle.pop() if reused else self._open(), request, max_bytes)
            except HttpFailure as failure:
                if not (reused and failure.fault is Fault.CONNECT):
                    raise
            return await self._send(self._open(), request, max_bytes)

    async def aclose(self) -> None:
        """Close idle connections."""
        while self._idle:
            await self._idle.pop().aclose()

    async def _send(self, transport: httpx.AsyncHTTPTransport, request: httpx.Request, max_bytes: int) -> bytes:
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

    It is unpacked here, with a limit: httpx would unpack a block of any ratio at once.

    Raises:
        HttpFailure: MALFORMED or TOO_LARGE.
    """

    def __init__(self, name: str, encoding: str, most: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            what = f"{name} has the encoding {encoding[:60]!r}, and only gzip was offered"
            raise HttpFailure(Fault.MALFORMED, what)
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding.endswith("gzip") else None
        self._name, self._most, self._sent, self._body = name, most, 0, bytearray()
        self.too_large = HttpFailure(Fault.TOO_LARGE, f"{name} is larger than {most} bytes")

    def add(self, chunk: bytes) -> None:
        """Take more bytes."""
        self._sent += len(chunk)
        try:
            # One byte more than allowed is enough to see; 0 would mean no limit.
            left = self._most + 1 - len(self._body)
            self._body += self._inflate.decompress(chunk, left) if self._inflate else chunk
        except zlib.error:
            raise HttpFailure(Fault.MALFORMED, f"{self._name} has damaged compressed bytes") from None
        if max(self._sent, len(self._body)) > self._most:
            raise self.too_large

    def end(self) -> bytes:
        """Return the body."""
        if self._inflate and not self._inflate.eof:
            raise HttpFailure(Fault.MALFORMED, f"{self._name} has compressed bytes that end too soon")
        return bytes(self._body)


async def retried(attempt: Callable[[], Awaitable[bytes]], limits: Limits) -> bytes:
    """Return what `attempt` returns, trying again after an `HttpFailure` that may pass.

    Raises:
        HttpFailure: The last one, where no try is left; TIMEOUT at the deadline.
    """
    end, tried, last = time.monotonic() + limits.deadline, 0, ""
    try:
        async with asyncio.timeout(limits.deadline):
            while True:
                try:
                    return await attempt()
                except HttpFailure as failure:
                    last = f" (before that: {failure.what})"
                    tried += 1
                    pause = max(BACKOFF * 2 ** (tried - 1), failure.wait or 0.0)
                    if failure.wait is None or tried == limits.tries or time.monotonic() + pause >= end:
                        raise
                await asyncio.sleep(pause)
    except TimeoutError:
        raise HttpFailure(Fault.TIMEOUT, f"no answer within {limits.deadline:g} s{last}") from None


def split_url(url: str) -> tuple[str, str]:
    """Return an address without user, password and last slash, and the value of the `Authorization` that they make.

    Raises:
        ValueError: It is no `http(s)://[user:password@]host[:port][/path]`.
    """
    shown = re.sub(r"//.*@", "//", url)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{shown!r} is no URL: {error}") from None
    good = parsed.scheme in ("http", "https") and parsed.host and (parsed.port or 1) <= 65535
    if not good or parsed.query or parsed.fragment:
        raise ValueError(f"{shown!r} is no address of a server; it looks like http://127.0.0.1:8000/path")
    pair = f"{parsed.username}:{parsed.password}".encode()
    secret = f"Basic {base64.b64encode(pair).decode()}" if parsed.userinfo else ""
    return str(parsed.copy_with(userinfo=b"")).rstrip("/"), secret


async def _exchange(transport: httpx.AsyncBaseTransport, request: httpx.Request, max_bytes: int) -> bytes:
    try:
        response = await transport.handle_async_request(request)
        try:
            if not 200 <= response.status_code < 300:
                raise await _refusal(response)
            body = BoundedBody("its answer", response.headers.get("content-encoding", ""), max_bytes)
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
        raise HttpFailure(Fault.CONNECT, f"{type(cause).__name__}: {cause}"[:EXCERPT], 0.0) from None


async def _refusal(response: httpx.Response) -> HttpFailure:
    status = response.status_code
    if 300 <= status < 400:
        to = response.headers.get("location", "")[:EXCERPT]
        what = f"it answered {status}, a redirect to {to!r}, which is not followed"
        return HttpFailure(Fault.STATUS, what, None, status)
    page = await anext(response.aiter_raw(), b"")
    what = f"it answered {status}: {page.decode('utf-8', 'replace')[:EXCERPT]!r}"
    wait = _retry_after(response.headers.get("retry-after", "")) if status >= 500 or status == 429 else None
    return HttpFailure(Fault.STATUS, what, wait, status)


def _retry_after(value: str) -> float:
    """Return the seconds that a server asks for, as a number or as a date; else 0 (RFC 9110, section 10.2.3)."""
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return 0.0
