"""Whom a server of ours answers: requests that name it as their host, and no page of another site.

A browser sends what a page of any site asks it to. Such a request has an `Origin`; where DNS was made to lead the
page's own name to this machine, it has that name as its `Host`. So both are looked at, by every server of ours.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

_PORT = re.compile(r":[0-9]*$")
_SCHEMES = ("http", "https")


@dataclass(frozen=True)
class Stranger:
    """Why a request is refused, and the HTTP status that says so."""

    status: int
    why: str


class Hosts:
    """The names under which a server may be asked: those of loopback, the address it is reached at, and `names`."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = frozenset(map(_plain, names))

    def refusal(
        self, hosts: Iterable[str], origins: Iterable[str], address: str = ""
    ) -> Stranger | None:
        """Return why a request is refused; None where it is not.

        hosts: the values of its `Host` headers, of which there must be one.
        origins: the values of its `Origin` headers; each must be the server's own.
        address: the one that the connection was made to, where it is known.
        """
        given = list(hosts)
        host = given[0] if len(given) == 1 else ""
        name = _plain(_PORT.sub("", host))
        if not name or not (name in self._names or name == address.lower() or is_loopback(name)):
            shown = ", ".join(given)[:80]
            return Stranger(
                421,
                f"this is not {shown!r}; if it is, start the server with --allow-host {name[:80]!r}",
            )
        for origin in origins:
            scheme, parted, asking = origin.partition("://")
            if not (parted and scheme.lower() in _SCHEMES and asking.lower() == host.lower()):
                return Stranger(403, f"pages of another origin ({origin[:80]!r}) may not ask here")
        return None


def is_loopback(host: str) -> bool:
    """Return whether a name or an address leads to this machine alone."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _plain(name: str) -> str:
    """Return a name in small letters, an address without its brackets."""
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    return bare.rstrip(".").lower()
