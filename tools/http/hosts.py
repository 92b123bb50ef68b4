"""Which requests our servers answer: those for their own host, and not from other sites' pages.

A browser sends requests for the pages of any site. Such a request has an `Origin` header. If the
site's own name was made to resolve to this machine (DNS rebinding), the request looks as if it came
from a page of this server, but its `Host` is the site's name. So all our servers check both
headers.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

_PORT = re.compile(r":[0-9]*$")
_SCHEMES = ("http", "https")


@dataclass(frozen=True)
class HostRefusal:
    """Why a request is refused.

    Args:
        status: The HTTP status of the answer.
        why: The reason, for the person who sent the request.
    """

    status: int
    why: str


class Hosts:
    """The host names under which a server answers.

    These are `names`, those of loopback, and the address to which a client connected.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = frozenset(_normalize_host(name) for name in names)

    def refusal(
        self, hosts: Iterable[str], origins: Iterable[str], address: str = ""
    ) -> HostRefusal | None:
        """Return why a request is refused; None if it is allowed.

        Args:
            hosts: The values of its `Host` headers, of which there must be exactly one.
            origins: The values of its `Origin` headers; each must be the server's own.
            address: The address to which the client connected; "" if that is not known.
        """
        host_headers = list(hosts)
        host = host_headers[0] if len(host_headers) == 1 else ""
        name = _normalize_host(_PORT.sub("", host))
        is_own_name = name in self._names or name == address.lower() or is_loopback(name)
        if not name or not is_own_name:
            shown_hosts = ", ".join(host_headers)[:80]
            return HostRefusal(
                421,  # "misdirected request"
                f"this is not {shown_hosts!r}; if it is, start the server with "
                f"--allow-host {name[:80]!r}",
            )
        for origin in origins:
            scheme, separator, origin_host = origin.partition("://")
            is_web_origin = bool(separator) and scheme.lower() in _SCHEMES
            if not is_web_origin or origin_host.lower() != host.lower():
                return HostRefusal(
                    403, f"pages of another origin ({origin[:80]!r}) may not ask here"
                )
        return None


def is_loopback(host: str) -> bool:
    """Return whether a name or an address leads to this machine only."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _normalize_host(host: str) -> str:
    """Return a host in lower case, without the dot at the end or the brackets of IPv6.

    `"Example.org."` -> `"example.org"`, `"[::1]"` -> `"::1"`
    """
    is_bracketed = host.startswith("[") and host.endswith("]")
    without_brackets = host[1:-1] if is_bracketed else host
    return without_brackets.rstrip(".").lower()
