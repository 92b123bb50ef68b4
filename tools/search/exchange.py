"""One request over a transport of httpx: tries with growing pauses, a deadline for all of them, a bounded answer."""

import asyncio
import math
import re
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx

from .core import Fault

BACKOFF = 0.1  # seconds before the second try; each further pause is twice as long
EXCERPT = 200  # characters of an error page in a message


class Trouble(Exception):
    """What went wrong in one try; `wait` is None where another try would not help, else the least seconds before it."""

    def __init__(self, fault: Fault, what: str, wait: float | None = None, status: int = 0) -> None:
        super().__init__(what)
        self.fault, self.what, self.wait, self.status = fault, what, wait, status


@dataclass(frozen=True)
class Bounds:
    """What a request may take: seconds in all, tries, and bytes of the answer, as sent and decoded."""

    deadline: float = 10.0
    tries: int = 4
    max_bytes: int = 8 * 2**20

    def __post_init__(self) -> None:
        if not 0 < self.deadline < math.inf:
            raise ValueError(f"deadline is {self.deadline}; give seconds above 0")
        for name in ("tries", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; give at least 1")


async def persist(attempt: Callable[[], Awaitable[bytes]], bounds: Bounds) -> bytes:
    """Try until the answer is there, another try would not help, or time is over."""
    end, tried, last = time.monotonic() + bounds.deadline, 0, ""
    try:
        async with asyncio.timeout(bounds.deadline):
            while True:
                try:
                    return await attempt()
                except Trouble as trouble:
                    last = f" (before that: {trouble.what})"
                    tried += 1
                    pause = max(BACKOFF * 2 ** (tried - 1), trouble.wait or 0.0)
                    if trouble.wait is None or tried == bounds.tries or time.monotonic() + pause >= end:
                        raise
                await asyncio.sleep(pause)
    except TimeoutError:
        raise Trouble(Fault.TIMEOUT, f"no answer within {bounds.deadline:g} s{last}") from None


async def exchange(transport: httpx.AsyncBaseTransport, request: httpx.Request, most: int) -> bytes:
    """One try: the body of a good answer."""
    try:
        response = await transport.handle_async_request(request)
        try:
            if not 200 <= response.status_code < 300:
                raise await _refusal(response)
            return await _body(response, most)
        finally:
            await response.aclose()
    except (httpx.TransportError, OSError, UnicodeError) as error:
        raise Trouble(Fault.CONNECT, _reason(error)[:EXCERPT], 0.0) from None


def _reason(error: BaseException) -> str:
    """What lies at the bottom of it: those on top say that all attempts failed, or nothing."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return f"{type(error).__name__}: {error}"


async def _refusal(response: httpx.Response) -> Trouble:
    status = response.status_code
    if 300 <= status < 400:
        to = response.headers.get("location", "")[:EXCERPT]
        return Trouble(Fault.STATUS, f"it answered {status}, a redirect to {to!r}, which is not followed", None, status)
    page = await anext(response.aiter_raw(), b"")
    what = f"it answered {status}: {page.decode('utf-8', 'replace')[:EXCERPT]!r}"
    wait = _retry_after(response.headers.get("retry-after", "")) if status >= 500 or status == 429 else None
    return Trouble(Fault.STATUS, what, wait, status)


def _retry_after(value: str) -> float:
    """Seconds, which a server gives as such or as a date; 0 where it gives neither (RFC 9110, section 10.2.3)."""
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return 0.0


async def _body(response: httpx.Response, most: int) -> bytes:
    """The decoded body. It is unpacked here with a limit: httpx would unpack a block of any ratio whole."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise Trouble(Fault.MALFORMED, f"the encoding of its answer is {encoding[:60]!r}, and only gzip was offered")
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None
    sent, body = int(response.headers.get("content-length", 0)), bytearray()
    too_large = Trouble(Fault.TOO_LARGE, f"its answer has more than {most} bytes")
    if sent > most:
        raise too_large
    sent = 0
    try:
        async for chunk in response.aiter_raw():
            sent += len(chunk)
            # One byte more than allowed is enough to see; 0 would mean no limit.
            body += inflate.decompress(chunk, most + 1 - len(body)) if inflate else chunk
            if max(sent, len(body)) > most:
                raise too_large
    except zlib.error:
        raise Trouble(Fault.MALFORMED, "its gzip answer is damaged") from None
    if inflate and not inflate.eof:
        raise Trouble(Fault.MALFORMED, "its gzip answer ends too soon")
    return bytes(body)
