"""Get one page that an agent asks for, connecting only to addresses that `url_guard` has checked.

Every URL is checked, that of a redirect like the first. Time and size are bounded in every phase:
name lookup, connection, TLS, headers, body. No cookies, passwords or proxies are used, and the
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
from .url_guard import Blocked, Guard, PageUrl, parse_url, resolve_redirect

MAX_REDIRECTS = 5  # redirects that are followed
MAX_HEAD_BYTES = 64 * 2**10  # of a response
MAX_HEADER_FIELDS = 256  # of a response
MAX_ADDRESSES = 4  # addresses of a host to which a connection is tried
HTML_MEDIA_TYPES = ("text/html", "application/xhtml+xml")
TEXT_MEDIA_TYPES = (
    *HTML_MEDIA_TYPES,
    "text/plain",
    "application/json",
    "text/xml",
    "application/xml",
)
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_REQUEST_HEADERS = {
    "User-Agent": "turngym",
    "Accept": ", ".join(TEXT_MEDIA_TYPES),
    "Accept-Encoding": "gzip",
    "Connection": "close",
}


class PageUnreadable(RuntimeError):
    """A page that does not exist or cannot be read; the message is for the agent."""


@dataclass(frozen=True)
class Page:
    """A page as the server sent it.

    Args:
        url: Where the page is, after redirects.
        media_type: As `text/html`, in lower case.
        charset: The encoding that the server names; "" if it names none.
        body: The bytes, decompressed.
    """

    url: str
    media_type: str
    charset: str
    body: bytes


class VisitDeadline:
    """The end of a visit, `seconds` after this object is made."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """Return the time until the deadline, more than 0; raises `Overdue` if it has passed."""
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise Overdue("the visit's time is over")
        return remaining


class LimitedStream(httpcore.NetworkStream):
    """A connection with a deadline and a limit of bytes.

    The timeouts that httpcore passes are ignored. Each of them limits only one wait, so a slow
    server could make a visit wait many times. `readable_bytes` is how many more bytes may be read.
    """

    def __init__(self, stream: httpcore.NetworkStream, deadline: VisitDeadline) -> None:
        self._stream = stream
        self._deadline = deadline
        self.readable_bytes = MAX_HEAD_BYTES

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return up to `max_bytes` bytes; raises `PageUnreadable` if no more may be read."""
        if self.readable_bytes <= 0:
            raise PageUnreadable("the answer is too large")
        data = self._stream.read(max_bytes, self._deadline.remaining_seconds())
        self.readable_bytes -= len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.remaining_seconds())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, *_: Any, **__: Any
    ) -> "LimitedStream":
        self._stream = self._stream.start_tls(
            ssl_context, server_hostname, self._deadline.remaining_seconds()
        )
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class PinnedBackend(httpcore.NetworkBackend):
    """A network backend that connects to given addresses, whatever host it is asked for.

    So no name is looked up a second time, which could give other addresses than those that were
    checked. `connection` is the connection, if one has been made.
    """

    connection: LimitedStream | None = None

    def __init__(self, addresses: tuple[str, ...], deadline: VisitDeadline) -> None:
        self._addresses = addresses[:MAX_ADDRESSES]
        self._deadline = deadline

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> LimitedStream:
        """Connect to the first of the given addresses that accepts a connection; ignores `host`.

        Each address gets an equal share of the time that remains when it is tried. If none accepts,
        what httpcore raised for the last one is raised.
        """
        last_error: Exception = httpcore.ConnectError()
        for tried_count, address in enumerate(self._addresses):
            untried_count = len(self._addresses) - tried_count
            timeout = self._deadline.remaining_seconds() / untried_count
            try:
                stream = httpcore.SyncBackend().connect_tcp(address, port, timeout)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last_error = error
                continue
            self.connection = LimitedStream(stream, self._deadline)
            return self.connection
        raise last_error

    def close(self) -> None:
        """Close the connection, if there is one: httpcore leaves it open if TLS could not begin."""
        if self.connection:
            self.connection.close()


def fetch(
    url: str, guard: Guard, timeout: float, max_bytes: int, tls: ssl.SSLContext | None = None
) -> Page:
    """Get one page over HTTP, following redirects.

    No error message names an address that was looked up.

    Args:
        url: The URL as the agent wrote it.
        guard: Decides which URLs may be visited.
        timeout: Seconds for the whole visit, with name lookups and redirects.
        max_bytes: The most bytes of the page, as sent and as decompressed.
        tls: The TLS settings; None trusts the usual certificate authorities.

    Raises:
        Blocked: A URL must not be visited, or there are too many redirects.
        PageUnreadable: There is no page, or it cannot be read.
        Overdue: It took longer than `timeout`.
    """
    deadline = VisitDeadline(timeout)
    page_url = parse_url(url)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            addresses = guard.check(page_url, deadline.remaining_seconds())
        except OSError:
            raise PageUnreadable(f"there is no host {page_url.host}") from None
        backend = PinnedBackend(addresses, deadline)
        page_or_location = _request_page(page_url, backend, deadline, max_bytes=max_bytes, tls=tls)
        if isinstance(page_or_location, Page):
            return page_or_location
        page_url = resolve_redirect(page_url, page_or_location)
    raise Blocked(f"the page redirects more than {MAX_REDIRECTS} times")


def _request_page(
    url: PageUrl,
    backend: PinnedBackend,
    deadline: VisitDeadline,
    *,
    max_bytes: int,
    tls: ssl.SSLContext | None,
) -> Page | str:
    """Send one GET request, and close the connection.

    Args:
        url: The page.
        backend: Makes the connection, to the checked addresses of the page's host.
        deadline: When the visit ends.
        max_bytes: The most bytes of the page, as sent and as decompressed.
        tls: The TLS settings; None trusts the usual certificate authorities.

    Returns:
        The page, or the header `Location` if the server redirects to another URL.

    Raises:
        PageUnreadable: There is no page, or it cannot be read.
        Overdue: The deadline has passed.
    """
    httpcore_url = httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target)
    request_headers = {"Host": url.authority, **_REQUEST_HEADERS}
    if tls is None and url.scheme == "https":
        tls = _load_usual_authorities()
    try:
        with (
            httpcore.ConnectionPool(ssl_context=tls, network_backend=backend) as pool,
            pool.stream("GET", httpcore_url, headers=list(request_headers.items())) as response,
        ):
            headers = _read_headers(response)
            if response.status in _REDIRECT_STATUSES and "location" in headers:
                return headers["location"]
            _check_status(response.status)
            media_type, charset = _read_content_type(headers.get("content-type", ""))
            # Only now may so many bytes be read, because headers must not be as large as a page.
            assert backend.connection is not None
            backend.connection.readable_bytes += max_bytes
            content_encoding = headers.get("content-encoding", "")
            body = _read_body(response, content_encoding, deadline, max_bytes)
            return Page(url.normalized, media_type, charset, body)
    except HttpFailure as failure:
        raise PageUnreadable(failure.what) from None
    except httpcore.TimeoutException:
        raise Overdue("the visit's time is over") from None
    except httpcore.ConnectError:
        raise PageUnreadable(f"{url.host} cannot be reached") from None
    except (httpcore.NetworkError, httpcore.ProtocolError):
        raise PageUnreadable(f"{url.host} broke off or does not speak HTTP") from None
    finally:
        backend.close()


@functools.cache  # because loading takes a while
def _load_usual_authorities() -> ssl.SSLContext:
    """Return TLS settings that trust the usual certificate authorities.

    Environment variables such as `SSL_CERT_FILE` are ignored.
    """
    return httpx.create_ssl_context(trust_env=False)


def _read_headers(response: httpcore.Response) -> dict[str, str]:
    """Return the headers of a response by their names in lower case.

    If a name comes several times, its first value counts. Raises `PageUnreadable` if the headers
    are too many or too large.
    """
    fields = response.headers
    head_bytes = sum(len(name) + len(value) for name, value in fields)
    if len(fields) > MAX_HEADER_FIELDS or head_bytes > MAX_HEAD_BYTES:
        raise PageUnreadable("the answer's head is too large")
    headers: dict[str, str] = {}
    for name, value in fields:
        headers.setdefault(name.decode("latin-1").lower(), value.decode(errors="replace"))
    return headers


def _check_status(status: int) -> None:
    """Raise `PageUnreadable` unless the HTTP status is one of success (2xx)."""
    if 200 <= status < 300:
        return
    phrase = f" {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else ""
    raise PageUnreadable(f"the server answered {status}{phrase}")


def _read_content_type(content_type: str) -> tuple[str, str]:
    """Split the header `Content-Type`: "text/HTML; charset=utf-8" -> ("text/html", "utf-8").

    Returns:
        The media type in lower case, and the charset, "" if none is given.

    Raises:
        PageUnreadable: The media type is not one of text.
    """
    media_type, *parameters = [part.strip() for part in content_type.split(";")]
    media_type = media_type.lower()
    is_text = media_type in TEXT_MEDIA_TYPES or media_type.endswith(("+json", "+xml"))
    if not is_text:
        raise PageUnreadable(f"the page is no text: its type is {media_type[:60]!r}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return media_type, value.strip("\"' ")
    return media_type, ""


def _read_body(
    response: httpcore.Response, content_encoding: str, deadline: VisitDeadline, max_bytes: int
) -> bytes:
    """Return the decompressed body of a response.

    Args:
        response: Its body has not been read yet.
        content_encoding: The header of that name; "" if there is none.
        deadline: When the visit ends.
        max_bytes: The most bytes, as sent and as decompressed.

    Raises:
        HttpFailure: The body is damaged or too large.
        Overdue: The deadline has passed.
    """
    body = BoundedBody("the page", content_encoding, max_bytes)
    for chunk in response.iter_stream():
        deadline.remaining_seconds()  # raises if the deadline has passed
        body.add(chunk)
    return body.end()
