"""What servers of ours have in common, on uvicorn: deadlines for slow clients, refusals, and limits of bytes held.

uvicorn keeps the rules of HTTP. It waits for a request's head, and for a client that takes its answer, as long as these
like; here nobody waits longer than `PATIENCE`, and of too many connections the one that waited longest is closed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .hosts import Hosts
from .json_values import serialize

HEAD = 16 * 2**10  # bytes of a request's head
SMALL = 64 * 2**10  # bytes that a request or an answer may hold although all together hold too much
SWALLOWED = (
    8 * 2**20
)  # bytes that are read of a request that is refused: a client may send all before it reads
PART = 64 * 2**10  # bytes of an answer that are sent at once
CONNECTIONS = 512
PATIENCE = 30.0  # seconds that a client may take for a request, and for taking its answer
GRACE = 1  # seconds that requests under way get when the server stops
# Of uvicorn: nothing that is not needed, and nothing said.
SETTINGS: dict[str, Any] = dict.fromkeys(
    ("access_log", "proxy_headers", "server_header", "date_header"), False
)
SETTINGS |= {"loop": "asyncio", "log_config": None, "log_level": "critical", "backlog": CONNECTIONS}
SETTINGS |= {"h11_max_incomplete_event_size": HEAD}

Scope = Mapping[
    str, Any
]  # ASGI's words for a request, and for how its parts come and an answer's parts go
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Any], Awaitable[None]]


def patient_server(app: Any, **settings: Any) -> Any:
    """Return a server of uvicorn's that leaves clients who let it wait; raises ImportError without uvicorn."""
    try:  # not at the top: an extra
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
    except ImportError as error:
        raise ImportError(
            f'a server needs uvicorn ({error}): pip install "turngym[serve]"'
        ) from error

    class Connection(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.max_size = (
                SMALL  # of one reading: asyncio's 256 KiB for each of many connections are much
            )
            self.since = self.loop.time()
            self.look()
            if (
                len(self.connections) > CONNECTIONS
            ):  # the one that has waited longest gives its place
                others = (
                    other
                    for other in self.connections
                    if isinstance(other, Connection) and other is not self
                )
                idle = [other for other in others if other.waits]
                for oldest in sorted(idle, key=lambda other: other.since)[:1]:
                    self.connections.discard(oldest)
                    oldest.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self.looking.cancel()
            super().connection_lost(exc)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self.looking.cancel()  # from here on the application sees to it
            super().handle_websocket_upgrade(event)

        def on_response_complete(self) -> None:
            self.since = self.loop.time()
            super().on_response_complete()

        @property
        def waits(self) -> bool:
            """Whether it waits for its client: for a request, or that an answer is taken."""
            return self.cycle is None or self.cycle.more_body or self.cycle.response_started

        def look(self) -> None:
            if not self.waits:
                self.since = self.loop.time()
            if self.loop.time() < self.since + PATIENCE:
                self.looking = self.loop.call_later(PATIENCE / 4, self.look)
            else:
                self.transport.abort()

    given = {**SETTINGS, "timeout_graceful_shutdown": GRACE, **settings}
    return uvicorn.Server(uvicorn.Config(app, http=Connection, **given))


class Refusal(Exception):
    """An answer other than 200, behind which the connection is closed."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]


def admit(hosts: Hosts, scope: Scope) -> None:
    """Raise `Refusal` for a request that names another host, or that a page of another site makes."""
    headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
    asked = [value for name, value in headers if name == b"host"]
    origins = [value for name, value in headers if name == b"origin"]
    address = (scope.get("server") or ("", None))[0]
    if (stranger := hosts.refusal(asked, origins, address)) is not None:
        raise Refusal(stranger.status, stranger.why)


async def body_of(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the body of a request as it comes; raises ConnectionError where the client left."""
    more = True
    while more:
        if (message := await receive())["type"] == "http.disconnect":
            raise ConnectionError
        more = message["more_body"]
        yield bytes(message["body"])


async def refuse(refusal: Refusal, body: AsyncIterator[bytes], send: Send) -> None:
    """Say why a request is refused, as JSON; raises ConnectionError where the client left."""
    answer, left = serialize({"error": str(refusal)}), SWALLOWED
    async for part in body:
        left -= len(part)
        if left <= 0:
            break
    headers = [(b"content-type", b"application/json"), (b"connection", b"close"), *refusal.headers]
    headers.append((b"content-length", b"%d" % len(answer)))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


class Share:
    """The bytes that one request holds, counted among those that all hold."""

    def __init__(self, pool: "HeldBytes") -> None:
        self._pool, self.held, self._open = pool, 0, True

    def add(self, count: int, most: int, what: str) -> None:
        """Count bytes; raises `Refusal` where more than `most` are held by all, and more than `SMALL` by this one."""
        if not self._open:  # a search that was under way when its request was refused
            return
        self.held += count
        self._pool.held += count
        if self._pool.held > most and self.held > SMALL:
            raise Refusal(
                503, f"there are {what} of more than {most} bytes at once", retry_after="1"
            )

    def give_back(self, count: int) -> None:
        self.held -= count
        self._pool.held -= count

    def close(self) -> None:
        self.give_back(self.held)
        self._open = False


class HeldBytes:
    """Bytes that requests hold."""

    def __init__(self) -> None:
        self.held = 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yield a share, whose bytes are given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            share.close()
