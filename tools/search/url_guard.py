"""Which URLs an agent may open: only those whose host is on the public internet.

`parse_url` reads a URL strictly: if two programs could read it in two ways, it is refused. `Guard`
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

# Returns the IP addresses of a host, which is given by its name and a port.
Resolve = Callable[[str, int], Sequence[str]]
PORTS = {"http": 80, "https": 443}
MAX_URL_CHARS = 2048
_SPECIAL = tomllib.loads(Path(__file__).with_name("special.toml").read_text("utf-8"))
_SPECIAL_IPV4 = tuple(ip_network(network) for network in _SPECIAL["ipv4"].split())
_SPECIAL_IPV6 = tuple(ip_network(network) for network in _SPECIAL["ipv6"].split())
_GLOBAL_IPV6 = ip_network(_SPECIAL["global6"])
# IPv6 networks whose addresses have an IPv4 address in their last 32 bits.
_IPV6_WITH_EMBEDDED_IPV4 = tuple(ip_network(network) for network in _SPECIAL["embedding"].split())
_PRIVATE_NAMES = frozenset(_SPECIAL["names"].split())
# Control characters, the backslash, lone surrogates.
_FORBIDDEN_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
# `host[:port]`. A host in brackets is an IPv6 address. The port may be empty, as in "a.org:".
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{0,5}))?")
_HOST_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")  # between dots of a host name
_DECIMAL_OR_HEX_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_HOST_CHARS = 253  # of a host name in DNS


class Blocked(ValueError):
    """A page that an agent must not ask for.

    The message is for the agent. It names no address that was looked up, because that may be an
    address of a private network.
    """


@dataclass(frozen=True)
class PageUrl:
    """A URL split into its components, all of them ASCII.

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
        """The host, and the port if it is not the scheme's default; brackets enclose IPv6."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def normalized(self) -> str:
        """The URL in its normal form, the same for all spellings of it."""
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> PageUrl:
    """Parse an absolute URL, whose fragment is dropped and whose path and query are escaped.

    `" HTTP://Example.com./a b#c"` -> `PageUrl("http", "example.com", 80, "/a%20b")`

    Raises:
        Blocked: It is not such a URL; the message says what is wrong with it.
    """
    text = text.strip(" \t\r\n")
    if len(text) > MAX_URL_CHARS:
        raise Blocked(
            f"the URL is {len(text)} characters long; at most {MAX_URL_CHARS} are allowed"
        )
    if _FORBIDDEN_CHARACTER.search(text):
        raise Blocked("the URL holds a control character, a backslash or a lone surrogate")
    scheme, separator, after_scheme = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in PORTS:
        raise Blocked("only a URL that begins with http:// or https:// can be visited")
    authority = re.split("[/?#]", after_scheme, maxsplit=1)[0]
    host, port = _split_authority(authority)
    after_authority = after_scheme[len(authority) :]
    target, _, _fragment = after_authority.partition("#")
    escaped_target = quote(target, safe="%/?:@!$&'()*+,;=~[]|")
    if not escaped_target.startswith("/"):
        escaped_target = f"/{escaped_target}"
    return PageUrl(
        scheme=scheme,
        host=_normalize_host(host),
        port=port or PORTS[scheme],
        target=escaped_target,
    )


def resolve_redirect(url: PageUrl, location: str) -> PageUrl:
    """Return the URL that a redirect leads to.

    Args:
        url: The page that redirects.
        location: Its header `Location`, an absolute or relative URL.

    Raises:
        Blocked: `location` is not a usable URL, or leads from https to http.
    """
    try:
        absolute_location = urljoin(url.normalized, location.strip())
    except ValueError:
        raise Blocked("the page redirects to a URL that is none") from None
    redirect_url = parse_url(absolute_location)
    if url.scheme == "https" and redirect_url.scheme == "http":
        raise Blocked("the page redirects from https to http")
    return redirect_url


def is_public(address: str) -> bool:
    """Return whether `address` is an IP address of the public internet, in its usual spelling."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _SPECIAL_IPV4)
    if ip.scope_id is not None:  # the zone of a link-local address, as in "fe80::1%eth0"
        return False
    if any(ip in network for network in _IPV6_WITH_EMBEDDED_IPV4):
        embedded_ipv4 = IPv4Address(int(ip) & 0xFFFFFFFF)  # the last 32 bits
        return is_public(str(embedded_ipv4))
    return ip in _GLOBAL_IPV6 and not any(ip in network for network in _SPECIAL_IPV6)


def look_up_addresses(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host name without repetitions; raises OSError if it has none."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # The last item of an entry is the socket address: the IP address, the port, and more for IPv6.
    addresses = [str(socket_address[0]) for *_, socket_address in entries]
    return list(dict.fromkeys(addresses))


class Guard:
    """Decides whether a URL may be visited, and at which addresses.

    Args:
        allow: Hosts that may be visited although they would be blocked: `host` or `host:port` for
            any address of that host, `:port` for that port of all public hosts.
        resolve: Returns the addresses of a host name, as `look_up_addresses` does.

    Raises:
        ValueError: An entry of `allow` cannot be read.
    """

    def __init__(self, allow: Collection[str] = (), resolve: Resolve = look_up_addresses) -> None:
        entries = [allow] if isinstance(allow, str) else allow
        # Pairs of host and port. The host "" means all public hosts, the port None the usual ports.
        self._allowed = frozenset(_parse_allow_entry(entry) for entry in entries)
        self._resolve = resolve

    def check(self, url: PageUrl, timeout: float) -> tuple[str, ...]:
        """Look up the addresses of a URL's host, once, and check all of them.

        A connection must be made to one of the returned addresses, because another lookup could
        return others (DNS rebinding).

        Args:
            url: The URL of a page.
            timeout: Seconds that the lookup may take.

        Returns:
            The IP addresses of the host, at least one.

        Raises:
            Blocked: The page must not be visited.
            OSError: The host has no address.
            Overdue: The lookup took longer than `timeout`.
        """
        is_allowed_host = self._is_allowed_host(url)
        if not is_allowed_host and not self._is_allowed_port(url.port):
            raise Blocked(
                f"port {url.port} cannot be visited; {' and '.join(map(str, PORTS.values()))} can"
            )
        host = url.host
        last_label = host.rpartition(".")[2]
        is_address = ":" in host or _DECIMAL_OR_HEX_NUMBER.fullmatch(last_label) is not None
        is_private_name = not is_address and ("." not in host or last_label in _PRIVATE_NAMES)
        if is_private_name and not is_allowed_host:
            raise Blocked(f"{host} is not a public host")
        addresses: Sequence[str] = [host]
        if not is_address:
            addresses = call_within(
                timeout, lambda: self._resolve(host, url.port), "a host name's lookup"
            )
        if not addresses:
            raise OSError(f"{host} has no address")
        if not is_allowed_host and not all(is_public(address) for address in addresses):
            raise Blocked(f"{host} is not a public host")
        return tuple(addresses)

    def _is_allowed_host(self, url: PageUrl) -> bool:
        """Return whether `allow` names the URL's host, with its port or, for a usual one, none."""
        if (url.host, url.port) in self._allowed:
            return True
        return url.port in PORTS.values() and (url.host, None) in self._allowed

    def _is_allowed_port(self, port: int) -> bool:
        """Return whether a port of public hosts may be visited: a usual one, or one of `allow`."""
        return port in PORTS.values() or ("", port) in self._allowed


def _split_authority(authority: str) -> tuple[str, int | None]:
    """Split `host[:port]` into host and port, which is None if it is not given.

    Raises:
        Blocked: There is a user name, or host or port cannot be read.
    """
    if "@" in authority:
        raise Blocked("the URL holds a user name or a password")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise Blocked("the URL's host or port cannot be read")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 2**16:
        raise Blocked(f"there is no port {port}")
    return match["host"], port


def _normalize_host(host: str) -> str:
    """Return a URL's host as a name in lower case and ASCII, or as an IP address without brackets.

    `"BÜCHER.example."` -> `"xn--bcher-kva.example"`, `"[2606:4700:0::1]"` -> `"2606:4700::1"`

    Raises:
        Blocked: It is neither, or an address in an unusual spelling.
    """
    problem = Blocked("the URL's host is neither a host name nor an address in its usual spelling")
    try:
        if host.startswith("["):
            if "%" in host:  # the zone of a link-local address
                raise problem
            return str(IPv6Address(host[1:-1]))
        name = host.lower()
        if not name.isascii():
            # httpx encodes the name by IDNA 2008.
            name = httpx.URL(scheme="http", host=name).raw_host.decode("ascii")
        name = name.removesuffix(".")
        labels = name.split(".")
        # If the last label is a number, the C library's inet_aton reads the name as an address:
        # 2130706433, 0x7f.1 and 0177.0.0.1 are all 127.0.0.1. Only the usual spelling is accepted.
        if _DECIMAL_OR_HEX_NUMBER.fullmatch(labels[-1]):
            return str(IPv4Address(name))
    except (ValueError, httpx.InvalidURL):
        raise problem from None
    if len(name) > _MAX_HOST_CHARS or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise problem
    return name


def _parse_allow_entry(entry: str) -> tuple[str, int | None]:
    """Parse an `allow` entry: `host`, `host:port` or `:port`.

    Returns:
        The host, "" if it is not given, and the port, None if it is not given.

    Raises:
        ValueError: The entry is none of these.
    """
    try:
        host, port = _split_authority(entry)
        if not host and port is not None:
            return "", port
        return _normalize_host(host), port
    except Blocked as problem:
        raise ValueError(
            f"allow holds {entry!r}: {problem}; write host, host:port or :port"
        ) from None
