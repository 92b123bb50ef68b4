"""One page over HTTP, of those that an agent may ask for: connections only to addresses that were checked.

A URL is read strictly: what two programs could read in two ways is refused. Every address of its host must be a public
one, by the IANA special-purpose registries (RFC 6890); names are those of RFC 6761, RFC 8375 and ICANN's `.internal`.
Redirects are checked like the first URL. Time and size are bounded in every phase: name lookup, connection, TLS,
headers, body. No cookie, password, proxy or earlier page takes part, and the connection ends with the page.
"""

import functools
import re
import socket
import ssl
import time
import tomllib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

import httpcore
import httpx

from ..core import Overdue, within
from ..http import HttpFailure
from ..http.client import BoundedBody

Resolve = Callable[[str, int], Sequence[str]]
PORTS = {"http": 80, "https": 443}
LONGEST = 2048  # characters of a URL
_SPECIAL = tomllib.loads(Path(__file__).with_name("special.toml").read_text("utf-8"))
_SPECIAL4, _SPECIAL6, _GLOBAL6, _EMBEDDING = (
    tuple(map(ip_network, _SPECIAL[name].split()))
    for name in ("ipv4", "ipv6", "global6", "embedding")
)
_PRIVATE_NAMES = frozenset(_SPECIAL["names"].split())
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{0,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
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


class Blocked(ValueError):
    """A page that an agent must not ask for; the text is for the agent and names no address but what it wrote."""


@dataclass(frozen=True)
class Place:
    """Where a page is: a URL in parts, all ASCII; `host` is a name without its last dot, or an address."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host, in brackets where IPv6, and the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL in the one spelling that is used from here on."""
        return f"{self.scheme}://{self.authority}{self.target}"


def read_url(text: str) -> Place:
    """Read an absolute URL; raises `Blocked` that says what is wrong with it."""
    if len(text := text.strip(" \t\r\n")) > LONGEST:
        raise Blocked(f"the URL is {len(text)} characters long; at most {LONGEST} are allowed")
    if _FORBIDDEN.search(text):
        raise Blocked("the URL holds a control character, a backslash or a lone surrogate")
    scheme, mark, rest = text.partition("://")
    if not mark or (scheme := scheme.lower()) not in PORTS:
        raise Blocked("only a URL that begins with http:// or https:// can be visited")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    host, port = _split(authority)
    target = quote(rest[len(authority) :].partition("#")[0], safe="%/?:@!$&'()*+,;=~[]|")
    return Place(
        scheme,
        _read_host(host),
        port or PORTS[scheme],
        target if target.startswith("/") else f"/{target}",
    )


def follow(place: Place, location: str) -> Place:
    """Return where a redirect leads; raises `Blocked` for a URL that is none and for a step from https down to http."""
    try:
        url = urljoin(place.url, location.strip())
    except ValueError:
        raise Blocked("the page redirects to a URL that is none") from None
    if (place.scheme, (goal := read_url(url)).scheme) == ("https", "http"):
        raise Blocked("the page redirects from https to http")
    return goal


def is_public(address: str) -> bool:
    """Return whether an IPv4 or IPv6 address, in its usual spelling, is one of the public internet."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _SPECIAL4)
    if ip.scope_id is not None:
        return False
    if any(ip in network for network in _EMBEDDING):
        return is_public(str(IPv4Address(int(ip) & 0xFFFFFFFF)))
    return ip in _GLOBAL6[0] and not any(ip in network for network in _SPECIAL6)


def look_up(host: str, port: int) -> list[str]:
    """Return all addresses of a host name; raises OSError where there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Guard:
    """Says for a place to which addresses a connection may be made.

    allow: What is open although it would be blocked: `host` and `host:port` for whatever addresses that host has,
        `:port` for that port of all public hosts.
    resolve: Gives the addresses of a name, as `look_up` does.

    Raises ValueError where an entry of `allow` is none.
    """

    def __init__(self, allow: Collection[str] = (), resolve: Resolve = look_up) -> None:
        self._allow = frozenset(map(_read_entry, (allow,) if isinstance(allow, str) else allow))
        self._resolve = resolve

    def check(self, place: Place, seconds: float) -> tuple[str, ...]:
        """Return the addresses of a place, resolved once and all checked; a connection must be made to one of these.

        Raises `Blocked`, OSError where the host has no address, and `Overdue` after `seconds`.
        """
        host, port = place.host, place.port
        usual = port in PORTS.values()
        opened = (host, port) in self._allow or (usual and (host, None) in self._allow)
        if not opened and not usual and ("", port) not in self._allow:
            raise Blocked(
                f"port {port} cannot be visited; {' and '.join(map(str, PORTS.values()))} can"
            )
        literal = ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None
        if (
            not opened
            and not literal
            and ("." not in host or host.rpartition(".")[2] in _PRIVATE_NAMES)
        ):
            raise Blocked(f"{host} is not a public host")
        addresses = (
            [host]
            if literal
            else within(seconds, lambda: self._resolve(host, port), "a host name's lookup")
        )
        if not addresses:
            raise OSError(f"{host} has no address")
        if not opened and not all(map(is_public, addresses)):
            raise Blocked(f"{host} is not a public host")
        return tuple(addresses)


def _split(authority: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise Blocked("the URL holds a user name or a password")
    if (parts := _AUTHORITY.fullmatch(authority)) is None:
        raise Blocked("the URL's host or port cannot be read")
    port = int(parts[2]) if parts[2] else None
    if port is not None and not 0 < port < 2**16:
        raise Blocked(f"there is no port {port}")
    return parts[1], port


def _read_host(text: str) -> str:
    problem = Blocked("the URL's host is neither a host name nor an address in its usual spelling")
    try:
        if text.startswith("["):
            if "%" in text:  # the zone of a link-local address
                raise problem
            return str(IPv6Address(text[1:-1]))
        if not (host := text.lower()).isascii():
            host = httpx.URL(scheme="http", host=host).raw_host.decode("ascii")  # by IDNA 2008
        host = host.removesuffix(".")
        labels = host.split(".")
        if _NUMBER.fullmatch(
            labels[-1]
        ):  # else inet_aton would read 2130706433, 0x7f.1 and 0177.0.0.1 as addresses
            return str(IPv4Address(host))
    except (ValueError, httpx.InvalidURL):
        raise problem from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise problem
    return host


def _read_entry(entry: str) -> tuple[str, int | None]:
    try:
        host, port = _split(entry)
        return _read_host(host) if host or port is None else "", port
    except Blocked as problem:
        raise ValueError(
            f"allow holds {entry!r}: {problem}; write host, host:port or :port"
        ) from None


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
