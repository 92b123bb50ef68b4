"""Which URLs an agent may open: only those whose host is on the public internet.

`read_url` reads a URL strictly: if two programs could read it in two ways, it is refused. `Guard`
then looks up its host, whose addresses must all be public by the IANA special-purpose registries
(RFC 6890). Names for private networks are those of RFC 6761, RFC 8375 and ICANN's `.internal`.
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

from ..subprocesses.deadlines import call_within

Resolve = Callable[[str, int], Sequence[str]]  # host and port to the host's addresses
PORTS = {"http": 80, "https": 443}
MAX_URL_CHARS = 2048
_SPECIAL = tomllib.loads(Path(__file__).with_name("special.toml").read_text("utf-8"))
_SPECIAL_IPV4 = tuple(ip_network(network) for network in _SPECIAL["ipv4"].split())
_SPECIAL_IPV6 = tuple(ip_network(network) for network in _SPECIAL["ipv6"].split())
_GLOBAL_IPV6 = ip_network(_SPECIAL["global6"])
# IPv6 networks whose addresses carry an IPv4 address in their last 32 bits.
_EMBEDS_IPV4 = tuple(ip_network(network) for network in _SPECIAL["embedding"].split())
_PRIVATE_NAMES = frozenset(_SPECIAL["names"].split())
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{0,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")  # of a host name, between two dots
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Blocked(ValueError):
    """A page that an agent must not ask for.

    The message is for the agent. It names no address that was looked up, as it may be one of a
    private network.
    """


@dataclass(frozen=True)
class Place:
    """A URL in parts, all of them ASCII.

    Args:
        scheme: `http` or `https`.
        host: A host name without a dot at its end, or an IP address without brackets.
        port: The port.
        target: Path and query, from the first `/` on.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host, an IPv6 address in brackets, and the port if it is not the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL in its normal form."""
        return f"{self.scheme}://{self.authority}{self.target}"


def read_url(text: str) -> Place:
    """Read an absolute URL; raises `Blocked`, whose message says what is wrong with it."""
    text = text.strip(" \t\r\n")
    if len(text) > MAX_URL_CHARS:
        raise Blocked(
            f"the URL is {len(text)} characters long; at most {MAX_URL_CHARS} are allowed"
        )
    if _FORBIDDEN.search(text):
        raise Blocked("the URL holds a control character, a backslash or a lone surrogate")
    scheme, separator, after_scheme = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in PORTS:
        raise Blocked("only a URL that begins with http:// or https:// can be visited")
    authority = re.split("[/?#]", after_scheme, maxsplit=1)[0]
    host, port = _split_authority(authority)
    target, _, _fragment = after_scheme[len(authority) :].partition("#")
    target = quote(target, safe="%/?:@!$&'()*+,;=~[]|")
    if not target.startswith("/"):
        target = f"/{target}"
    return Place(scheme, _read_host(host), port or PORTS[scheme], target)


def follow(place: Place, location: str) -> Place:
    """Return the place that a redirect leads to.

    Args:
        place: The page that redirects.
        location: Its `Location` header.

    Raises:
        Blocked: `location` is no URL, or leads from https down to http.
    """
    try:
        url = urljoin(place.url, location.strip())
    except ValueError:
        raise Blocked("the page redirects to a URL that is none") from None
    goal = read_url(url)
    if place.scheme == "https" and goal.scheme == "http":
        raise Blocked("the page redirects from https to http")
    return goal


def is_public(address: str) -> bool:
    """Return whether an IP address, in its usual spelling, is one of the public internet."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _SPECIAL_IPV4)
    if ip.scope_id is not None:  # the zone of a link-local address, as in "fe80::1%eth0"
        return False
    if any(ip in network for network in _EMBEDS_IPV4):
        embedded = IPv4Address(int(ip) & 0xFFFFFFFF)
        return is_public(str(embedded))
    return ip in _GLOBAL_IPV6 and not any(ip in network for network in _SPECIAL_IPV6)


def look_up(host: str, port: int) -> list[str]:
    """Return all addresses of a host name, each once; raises OSError if there are none."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(socket_address[0]) for *_, socket_address in entries]
    return list(dict.fromkeys(addresses))


class Guard:
    """Decides whether a place may be visited, and at which addresses.

    Args:
        allow: Hosts that may be visited although they would be blocked: `host` or `host:port` for
            any address of that host, `:port` for that port of all public hosts.
        resolve: Returns the addresses of a host name, as `look_up` does.

    Raises:
        ValueError: An entry of `allow` cannot be read.
    """

    def __init__(self, allow: Collection[str] = (), resolve: Resolve = look_up) -> None:
        entries = [allow] if isinstance(allow, str) else allow
        # Host and port; a host of "" stands for all public hosts, a port of None for the usual
        # ones.
        self._allowed = frozenset(_read_allow_entry(entry) for entry in entries)
        self._resolve = resolve

    def check(self, place: Place, timeout: float) -> tuple[str, ...]:
        """Look up the addresses of a place, once, and check all of them.

        A connection must be made to one of these addresses: a second lookup could give others.

        Args:
            place: The place.
            timeout: Seconds that the lookup may take.

        Raises:
            Blocked: The place must not be visited.
            OSError: The host has no address.
            Overdue: The lookup took longer than `timeout`.
        """
        host, port = place.host, place.port
        is_usual_port = port in PORTS.values()
        is_allowed = (host, port) in self._allowed
        if is_usual_port and (host, None) in self._allowed:
            is_allowed = True
        is_allowed_port = is_usual_port or ("", port) in self._allowed
        if not is_allowed and not is_allowed_port:
            raise Blocked(
                f"port {port} cannot be visited; {' and '.join(map(str, PORTS.values()))} can"
            )
        last_label = host.rpartition(".")[2]
        is_address = ":" in host or _NUMBER.fullmatch(last_label) is not None
        is_private_name = "." not in host or last_label in _PRIVATE_NAMES
        if is_private_name and not is_address and not is_allowed:
            raise Blocked(f"{host} is not a public host")
        addresses: Sequence[str] = [host]
        if not is_address:
            addresses = call_within(
                timeout, lambda: self._resolve(host, port), "a host name's lookup"
            )
        if not addresses:
            raise OSError(f"{host} has no address")
        if not is_allowed and not all(is_public(address) for address in addresses):
            raise Blocked(f"{host} is not a public host")
        return tuple(addresses)


def _split_authority(authority: str) -> tuple[str, int | None]:
    """Return host and port of `host[:port]`, the port None if there is none; raises `Blocked`."""
    if "@" in authority:
        raise Blocked("the URL holds a user name or a password")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise Blocked("the URL's host or port cannot be read")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 2**16:
        raise Blocked(f"there is no port {port}")
    return match["host"], port


def _read_host(text: str) -> str:
    """Return a URL's host in its normal form: a name in lower case and ASCII, or an IP address.

    Raises `Blocked` for anything else, as an address in an unusual spelling.
    """
    problem = Blocked("the URL's host is neither a host name nor an address in its usual spelling")
    try:
        if text.startswith("["):
            if "%" in text:  # the zone of a link-local address
                raise problem
            return str(IPv6Address(text[1:-1]))
        host = text.lower()
        if not host.isascii():
            host = httpx.URL(scheme="http", host=host).raw_host.decode("ascii")  # by IDNA 2008
        host = host.removesuffix(".")
        labels = host.split(".")
        # If the last label is a number, the C library's inet_aton would read an address, as from
        # 2130706433, 0x7f.1 and 0177.0.0.1. Here only the usual spelling is one.
        if _NUMBER.fullmatch(labels[-1]):
            return str(IPv4Address(host))
    except (ValueError, httpx.InvalidURL):
        raise problem from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise problem
    return host


def _read_allow_entry(entry: str) -> tuple[str, int | None]:
    """Return host and port of an `allow` entry, as `host`, `host:port` or `:port`.

    Raises ValueError.
    """
    try:
        host, port = _split_authority(entry)
        is_port_only = not host and port is not None
        return ("" if is_port_only else _read_host(host)), port
    except Blocked as problem:
        raise ValueError(
            f"allow holds {entry!r}: {problem}; write host, host:port or :port"
        ) from None
