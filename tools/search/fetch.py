"""One page over HTTP, of those that an agent may ask for: connections only to addresses that were checked.

`url_guard` checks each URL, a redirect's like the first. Time and size are bounded in every phase: name lookup, connection, TLS,
headers, body. No cookie, password, proxy or earlier page takes part, and the connection ends with the page.
"""

import functools
import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpcore
import httpx

from ..http.client import BoundedBody
from ..http.failures import HttpFailure
from ..subprocesses.deadlines import Overdue
from .url_guard import Blocked, Guard, Place, follow, read_url

REDIRECTS = 5
HEAD = 64 * 2**10  # bytes of an answer's head
FIELDS = 256  # header fields of an answer
TRIES = 4  # addresses of a host to which a connection is tried
HTML = ("text/html", "application/xhtml+xml")
KINDS = (*HTML, "text/plain", "application/json", "text/xml", "application/xml")
_FIELDS = {
    "User-Agent": "turngym",
    "Accept": ", ".join(KINDS),
    "Accept-Encoding": "gzip",
    "Connection": "close",
}


class Unread(RuntimeError):
    """A page that is not there or cannot be read; the text is for the agent."""


@dataclass(frozen=True)
class Page:
    """What came: `kind` is the media type, `charset` what the server says, if anything, `body` is decoded."""

    url: str
    kind: str
    charset: str
    body: bytes


class Clock:
    """The time that is left to a visit, in seconds."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return more than 0; raises `Overdue` when nothing is left."""
        if (left := self._end - time.monotonic()) <= 0:
            raise Overdue("the visit's time is over")
        return left


class Wire(httpcore.NetworkStream):
    """A connection on which no wait outlasts the visit and no more than `allowance` bytes are asked for."""

    def __init__(self, stream: httpcore.NetworkStream, clock: Clock) -> None:
        self._stream, self._clock = stream, clock
        self.allowance = HEAD

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return up to `max_bytes`; raises `Unread` where the allowance is used up."""
        if self.allowance <= 0:
            raise Unread("the answer is too large")
        data = self._stream.read(max_bytes, self._clock.left())
        self.allowance -= len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._clock.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, *_: Any, **__: Any
    ) -> "Wire":
        self._stream = self._stream.start_tls(ssl_context, server_hostname, self._clock.left())
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Pinned(httpcore.NetworkBackend):
    """Connects to given addresses, whatever host it is told: no name is looked up a second time."""

    wire: Wire | None = None

    def __init__(self, addresses: tuple[str, ...], clock: Clock) -> None:
        self._addresses, self._clock = addresses[:TRIES], clock

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> Wire:
        """Return a connection to the first address that takes one, each having its share of the time that is left."""
        problem: Exception = httpcore.ConnectError()
        for tried, address in enumerate(self._addresses):
            share = self._clock.left() / (len(self._addresses) - tried)
            try:
                stream = httpcore.SyncBackend().connect_tcp(address, port, share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
                continue
            self.wire = Wire(stream, self._clock)
            return self.wire
        raise problem

    def close(self) -> None:
        """End the connection, if there is one; httpcore leaves it open where TLS could not begin."""
        if self.wire:
            self.wire.close()


def fetch(
    url: str, guard: Guard, seconds: float, size: int, tls: ssl.SSLContext | None = None
) -> Page:
    """Get one page of up to `size` bytes, as sent and decoded, in `seconds`; `tls` None trusts the usual authorities.

    Raises `Blocked`, `Unread` and `Overdue`; none of their texts names an address that was looked up.
    """
    clock, place = Clock(seconds), read_url(url)
    for _ in range(REDIRECTS + 1):
        try:
            addresses = guard.check(place, clock.left())
        except OSError:
            raise Unread(f"there is no host {place.host}") from None
        if isinstance(found := _get(place, Pinned(addresses, clock), clock, size, tls), Page):
            return found
        place = follow(place, found)
    raise Blocked(f"the page redirects more than {REDIRECTS} times")


def _get(
    place: Place, backend: Pinned, clock: Clock, size: int, tls: ssl.SSLContext | None
) -> Page | str:
    url = httpcore.URL(scheme=place.scheme, host=place.host, port=place.port, target=place.target)
    fields = {"Host": place.authority, **_FIELDS}
    if tls is None and place.scheme == "https":
        tls = _authorities()
    try:
        with (
            httpcore.ConnectionPool(ssl_context=tls, network_backend=backend) as pool,
            pool.stream("GET", url, headers=list(fields.items())) as response,
        ):
            if (
                len(sent := response.headers) > FIELDS
                or sum(len(name) + len(value) for name, value in sent) > HEAD
            ):
                raise Unread("the answer's head is too large")
            head = {
                name.decode("latin-1").lower(): value.decode(errors="replace")
                for name, value in sent[::-1]
            }
            if response.status in (301, 302, 303, 307, 308) and "location" in head:
                return head["location"]
            kind, charset = _check_head(response.status, head)
            assert backend.wire is not None
            backend.wire.allowance += size
            body = _read_body(response, head.get("content-encoding", ""), clock, size)
            return Page(place.url, kind, charset, body)
    except HttpFailure as failure:
        raise Unread(failure.what) from None
    except httpcore.TimeoutException:
        raise Overdue("the visit's time is over") from None
    except httpcore.ConnectError:
        raise Unread(f"{place.host} cannot be reached") from None
    except (httpcore.NetworkError, httpcore.ProtocolError):
        raise Unread(f"{place.host} broke off or does not speak HTTP") from None
    finally:
        backend.close()


_authorities = functools.cache(
    functools.partial(httpx.create_ssl_context, trust_env=False)
)  # it takes a while to make


def _check_head(status: int, head: dict[str, str]) -> tuple[str, str]:
    """Return the media type and the charset of a page; raises `Unread` for what is no page."""
    if not 200 <= status < 300:
        phrase = f" {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else ""
        raise Unread(f"the server answered {status}{phrase}")
    kind, *parameters = (part.strip() for part in head.get("content-type", "").split(";"))
    if (kind := kind.lower()) not in KINDS and not kind.endswith(("+json", "+xml")):
        raise Unread(f"the page is no text: its type is {kind[:60]!r}")
    named = (part.partition("=") for part in parameters)
    return kind, next(
        (value.strip("\"' ") for name, _, value in named if name.strip().lower() == "charset"), ""
    )


def _read_body(response: httpcore.Response, encoding: str, clock: Clock, size: int) -> bytes:
    body = BoundedBody("the page", encoding, size)
    for data in response.iter_stream():
        clock.left()
        body.add(data)
    return body.end()
