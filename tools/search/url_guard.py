"""Which URLs an agent may open: public addresses only, checked as text and behind every name.

A URL is read strictly: what two programs could read in two ways is refused. Every address of its host must be a public
one, by the IANA special-purpose registries (RFC 6890); names are those of RFC 6761, RFC 8375 and ICANN's `.internal`.
"""

import re
import socket
import tomllib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from urllib.parse import quote, urljoin

import httpx

from ..subprocesses.deadlines import within

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
