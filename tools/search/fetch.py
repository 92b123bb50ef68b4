"""Get one page that an agent asks for: connections only to addresses that `url_guard` has checked.

Every URL is checked, a redirect's like the first. Time and size are bounded in every phase: name
lookup, connection, TLS, headers, body. No cookies, passwords or proxies are used, and the
connection ends with the page.
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

REDIRECTS = 5  # redirects that are followed
HEAD = 64 * 2**10  # bytes of an answer's head
FIELDS = 256  # header fields of an answer
TRIES = 4  # addresses of a host to which a connection is tried
HTML = ("text/html", "application/xhtml+xml")
MEDIA_TYPES = (*HTML, "text/plain", "application/json", "text/xml", "application/xml")
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_REQUEST_HEADERS = {
    "User-Agent": "turngym",
    "Accept": ", ".join(MEDIA_TYPES),
    "Accept-Encoding": "gzip",
    "Connection": "close",
}


class Unread(RuntimeError):
    """A page that is not there or cannot be read; the message is for the agent."""


@dataclass(frozen=True)
class Page:
    """A page as the server sent it.

    Args:
        url: Where it was, after redirects.
        media_type: As `text/html`, in lower case.
        charset: The encoding that the server names; "" if it names none.
        body: The bytes, decompressed.
    """

    url: str
    media_type: str
    charset: str
    body: bytes


class Clock:
    """The time that is left to a visit of `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Return the remaining seconds, more than 0; raises `Overdue` if there are none."""
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise Overdue("the visit's time is over")
        return remaining


class Wire(httpcore.NetworkStream):
    """A connection that is limited by the visit's clock and by a number of bytes.

    The timeouts that httpcore passes are ignored: each is for a single wait, so a slow server could
    use many. `allowance` is how many more bytes may be read.
    """

    def __init__(self, stream: httpcore.NetworkStream, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self.allowance = HEAD

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return up to `max_bytes`; raises `Unread` if the allowance is used up."""
        if self.allowance <= 0:
            raise Unread("the answer is too large")
        data = self._stream.read(max_bytes, self._clock.remaining())
        self.allowance -= len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._clock.remaining())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, *_: Any, **__: Any
    ) -> "Wire":
        self._stream = self._stream.start_tls(ssl_context, server_hostname, self._clock.remaining())
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Pinned(httpcore.NetworkBackend):
    """A network backend that connects to given addresses, whatever host it is asked for.

    So no name is looked up a second time, when its addresses could be others than those that were
    checked. `wire` is the connection, once there is one.
    """

    wire: Wire | None = None

    def __init__(self, addresses: tuple[str, ...], clock: Clock) -> None:
        self._addresses = addresses[:TRIES]
        self._clock = clock

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> Wire:
        """Return a connection to the first address that accepts one.

        Each address gets an equal share of the time that is left when it is tried. Raises what
        httpcore raised for the last address.
        """
        last_error: Exception = httpcore.ConnectError()
        for number, address in enumerate(self._addresses):
            addresses_left = len(self._addresses) - number
            timeout = self._clock.remaining() / addresses_left
            try:
                stream = httpcore.SyncBackend().connect_tcp(address, port, timeout)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last_error = error
                continue
            self.wire = Wire(stream, self._clock)
            return self.wire
        raise last_error

    def close(self) -> None:
        """Close the connection, if there is one: httpcore leaves it open if TLS could not begin."""
        if self.wire:
            self.wire.close()


def fetch(
    url: str, guard: Guard, timeout: float, max_bytes: int, tls: ssl.SSLContext | None = None
) -> Page:
    """Get one page over HTTP, following redirects.

    Args:
        url: As the agent wrote it.
        guard: Decides which places may be visited.
        timeout: Seconds for all of it, name lookup and redirects included.
        max_bytes: Bytes of the page, as sent and decompressed.
        tls: The TLS settings; None trusts the usual authorities.

    Raises:
        Blocked: A URL must not be visited.
        Unread: There is no page, or it cannot be read.
        Overdue: It took longer than `timeout`.

    No message names an address that was looked up.
    """
    clock = Clock(timeout)
    place = read_url(url)
    for _ in range(REDIRECTS + 1):
        try:
            addresses = guard.check(place, clock.remaining())
        except OSError:
            raise Unread(f"there is no host {place.host}") from None
        backend = Pinned(addresses, clock)
        answer = _get(place, backend, clock, max_bytes=max_bytes, tls=tls)
        if isinstance(answer, Page):
            return answer
        place = follow(place, answer)
    raise Blocked(f"the page redirects more than {REDIRECTS} times")


def _get(
    place: Place, backend: Pinned, clock: Clock, *, max_bytes: int, tls: ssl.SSLContext | None
) -> Page | str:
    """Send one request and return the page, or the `Location` of a redirect; closes the connection.

    Raises `Unread` and `Overdue`.
    """
    url = httpcore.URL(scheme=place.scheme, host=place.host, port=place.port, target=place.target)
    request_headers = {"Host": place.authority, **_REQUEST_HEADERS}
    if tls is None and place.scheme == "https":
        tls = _load_usual_authorities()
    try:
        with (
            httpcore.ConnectionPool(ssl_context=tls, network_backend=backend) as pool,
            pool.stream("GET", url, headers=list(request_headers.items())) as response,
        ):
            headers = _read_headers(response)
            if response.status in _REDIRECT_STATUSES and "location" in headers:
                return headers["location"]
            _check_status(response.status)
            media_type, charset = _read_content_type(headers.get("content-type", ""))
            assert backend.wire is not None
            backend.wire.allowance += max_bytes  # only now: a head must not be that large
            encoding = headers.get("content-encoding", "")
            body = _read_body(response, encoding, clock, max_bytes)
            return Page(place.url, media_type, charset, body)
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


@functools.cache  # as it takes a while
def _load_usual_authorities() -> ssl.SSLContext:
    """Return TLS settings that trust the usual authorities, and no environment variable."""
    return httpx.create_ssl_context(trust_env=False)


def _read_headers(response: httpcore.Response) -> dict[str, str]:
    """Return the header fields of an answer by name in lower case; of equal names, the first.

    Raises `Unread` if there are too many.
    """
    fields = response.headers
    size = sum(len(name) + len(value) for name, value in fields)
    if len(fields) > FIELDS or size > HEAD:
        raise Unread("the answer's head is too large")
    headers: dict[str, str] = {}
    for name, value in fields:
        headers.setdefault(name.decode("latin-1").lower(), value.decode(errors="replace"))
    return headers


def _check_status(status: int) -> None:
    """Raise `Unread` unless the status says that there is a page."""
    if 200 <= status < 300:
        return
    phrase = f" {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else ""
    raise Unread(f"the server answered {status}{phrase}")


def _read_content_type(content_type: str) -> tuple[str, str]:
    """Read the header `Content-Type`, as `text/html; charset=utf-8`.

    Returns:
        The media type in lower case, and the charset, "" without one.

    Raises:
        Unread: The media type is not one of text.
    """
    media_type, *parameters = [part.strip() for part in content_type.split(";")]
    media_type = media_type.lower()
    if media_type not in MEDIA_TYPES and not media_type.endswith(("+json", "+xml")):
        raise Unread(f"the page is no text: its type is {media_type[:60]!r}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return media_type, value.strip("\"' ")
    return media_type, ""


def _read_body(response: httpcore.Response, encoding: str, clock: Clock, max_bytes: int) -> bytes:
    """Return the decompressed body of an answer.

    Raises HttpFailure if it is damaged or too large, and `Overdue`.
    """
    body = BoundedBody("the page", encoding, max_bytes)
    for data in response.iter_stream():
        clock.remaining()  # raises if there is no time left
        body.add(data)
    return body.end()
