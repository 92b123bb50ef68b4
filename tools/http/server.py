"""What our servers share, on uvicorn: deadlines for clients, refusals, and memory limits.

uvicorn implements HTTP. `patient_server` makes it close connections whose clients let it wait.
`admit`, `body_of` and `refuse` are steps of an ASGI application, `MemoryUse` counts what all its
requests hold in memory.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import server_limits
from .hosts import Hosts
from .json_values import serialize

# Of uvicorn: no unneeded headers, and no logs.
SETTINGS: dict[str, Any] = {
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "date_header": False,
    "loop": "asyncio",
    "log_config": None,
    "log_level": "critical",
    "backlog": server_limits.CONNECTIONS,
    "h11_max_incomplete_event_size": server_limits.HEAD,
}

# ASGI: the description of a request, the function that returns its next event, and the one that
# sends an answer's.
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Any], Awaitable[None]]


def make_patient_server(app: Any, **settings: Any) -> Any:
    """Return a `uvicorn.Server` that closes connections whose clients let it wait.

    Args:
        app: The ASGI application.
        settings: Of `uvicorn.Config`, in place of `SETTINGS`.

    Raises:
        ImportError: uvicorn is not installed.
    """
    try:
        import uvicorn

        from .patient_connection import PatientConnection
    except ImportError as error:
        raise ImportError(
            f'a server needs uvicorn ({error}): pip install "turngym[serve]"'
        ) from error
    all_settings = {**SETTINGS, "timeout_graceful_shutdown": server_limits.GRACE, **settings}
    return uvicorn.Server(uvicorn.Config(app, http=PatientConnection, **all_settings))


class Refusal(Exception):
    """An answer other than 200, after which the connection is closed.

    Args:
        status: The HTTP status.
        message: Why.
        headers: Further headers, with `_` in their names for `-`.
    """

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]


def check_host_and_origin(hosts: Hosts, scope: Scope) -> None:
    """Raise `Refusal` if a request is for another host, or made by a page of another site."""
    host_headers: list[str] = []
    origin_headers: list[str] = []
    for name, value in scope["headers"]:
        if name == b"host":
            host_headers.append(value.decode("latin-1"))
        elif name == b"origin":
            origin_headers.append(value.decode("latin-1"))
    server_address = scope.get("server") or ("", None)
    stranger = hosts.refusal(host_headers, origin_headers, server_address[0])
    if stranger is not None:
        raise Refusal(stranger.status, stranger.why)


async def iterate_body(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the chunks of a request's body; raises ConnectionError if the client disconnects."""
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        has_more = message["more_body"]
        yield bytes(message["body"])


async def send_refusal(refusal: Refusal, body: AsyncIterator[bytes], send: Send) -> None:
    """Send a refusal as JSON.

    Args:
        refusal: What to send.
        body: The body of the request, of which up to `SWALLOWED` bytes are read before.
        send: Sends an event of the answer.

    Raises:
        ConnectionError: The client disconnected.
    """
    swallowed = 0
    async for chunk in body:
        swallowed += len(chunk)
        if swallowed >= server_limits.SWALLOWED:
            break
    answer = serialize({"error": str(refusal)})
    headers = [
        (b"content-type", b"application/json"),
        (b"connection", b"close"),
        *refusal.headers,
        (b"content-length", b"%d" % len(answer)),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


class MemoryShare:
    """The bytes that one request has in memory, counted in a `MemoryUse`."""

    def __init__(self, pool: "MemoryUse") -> None:
        self._pool = pool
        self.held = 0
        self._is_open = True

    def add(self, count: int, limit: int, what: str) -> None:
        """Count `count` further bytes.

        Args:
            count: How many.
            limit: The most bytes that all requests together may have.
            what: What the bytes are, for the message.

        Raises:
            Refusal: All together have more than `limit`, and this request more than `SMALL`.
        """
        if not self._is_open:  # a search was still under way when its request was refused
            return
        self.held += count
        self._pool.held += count
        if self._pool.held > limit and self.held > server_limits.SMALL:
            raise Refusal(
                503, f"there are {what} of more than {limit} bytes at once", retry_after="1"
            )

    def give_back(self, count: int) -> None:
        """Count `count` bytes less."""
        self.held -= count
        self._pool.held -= count

    def close(self) -> None:
        """Give back all bytes, and count none from now on."""
        self.give_back(self.held)
        self._is_open = False


class MemoryUse:
    """The bytes that all requests together have in memory."""

    def __init__(self) -> None:
        self.held = 0

    @contextmanager
    def share(self) -> Iterator[MemoryShare]:
        """Yield the share of one request, whose bytes are given back at the end of the context."""
        share = MemoryShare(self)
        try:
            yield share
        finally:
            share.close()
