"""What our servers share, on uvicorn: timeouts for clients, refusals, and memory limits.

uvicorn implements HTTP. `make_server_with_timeouts` makes it close connections to slow clients.
`check_host_and_origin`, `iterate_body` and `send_refusal` are steps of an ASGI application.
`MemoryUse` counts the bytes that all its requests have in memory.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from . import server_limits
from .hosts import Hosts
from .json_values import serialize

# Settings of uvicorn: no unneeded headers, and no logs.
UVICORN_SETTINGS: dict[str, Any] = {
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "date_header": False,
    "loop": "asyncio",
    "log_config": None,
    "log_level": "critical",
    "backlog": server_limits.CONNECTIONS,
    "h11_max_incomplete_event_size": server_limits.MAX_HEAD_BYTES,
}

# The three arguments of an ASGI application.
Scope = Mapping[str, Any]  # describes the request
Receive = Callable[[], Awaitable[Mapping[str, Any]]]  # returns the next event of the request
Send = Callable[[Any], Awaitable[None]]  # sends an event of the answer


def make_server_with_timeouts(app: Any, **settings: Any) -> Any:
    """Return a `uvicorn.Server` that closes connections to slow clients.

    Args:
        app: The ASGI application.
        settings: Settings of `uvicorn.Config`, which override `UVICORN_SETTINGS`.

    Raises:
        ImportError: uvicorn is not installed.
    """
    try:
        import uvicorn

        from .connection_with_timeouts import ConnectionWithTimeouts
    except ImportError as error:
        raise ImportError(
            f'a server needs uvicorn ({error}): pip install "turngym[serve]"'
        ) from error
    all_settings = {
        **UVICORN_SETTINGS,
        "timeout_graceful_shutdown": server_limits.GRACE,
        **settings,
    }
    config = uvicorn.Config(app, http=ConnectionWithTimeouts, **all_settings)
    return uvicorn.Server(config)


class Refusal(Exception):
    """An answer other than 200, after which the connection is closed.

    Args:
        status: The HTTP status.
        message: The reason, for the client.
        headers: Further headers; `_` in their names stands for `-`, as in `retry_after="1"`.
    """

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ]


def check_host_and_origin(hosts: Hosts, scope: Scope) -> None:
    """Raise `Refusal` if a request is for another host, or comes from a page of another site."""
    host_headers: list[str] = []
    origin_headers: list[str] = []
    for name, value in scope["headers"]:
        if name == b"host":
            host_headers.append(value.decode("latin-1"))
        elif name == b"origin":
            origin_headers.append(value.decode("latin-1"))
    server_address = scope.get("server") or ("", None)  # host and port
    refusal = hosts.refusal(host_headers, origin_headers, server_address[0])
    if refusal is not None:
        raise Refusal(refusal.status, refusal.why)


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
        refusal: The refusal.
        body: The body of the request. Up to `MAX_DISCARDED_BYTES` are read before the answer is
            sent, since many clients do not read it earlier.
        send: Sends an event of the answer.

    Raises:
        ConnectionError: The client disconnected.
    """
    discarded_bytes = 0
    async for chunk in body:
        discarded_bytes += len(chunk)
        if discarded_bytes >= server_limits.MAX_DISCARDED_BYTES:
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
    """The bytes that one request has in memory, which also count in a `MemoryUse`."""

    def __init__(self, total: "MemoryUse") -> None:
        self._total = total
        self.held = 0
        self._is_open = True

    def add(self, count: int, limit: int, what: str) -> None:
        """Count further bytes of this request.

        Args:
            count: The number of bytes.
            limit: The most bytes that all requests together may have.
            what: What the bytes are, for the message, such as "requests".

        Raises:
            Refusal: All requests together have more than `limit`, and this one more than
                `GUARANTEED_BYTES`.
        """
        if not self._is_open:  # a search was still running when its request was refused
            return
        self.held += count
        self._total.held += count
        if self._total.held > limit and self.held > server_limits.GUARANTEED_BYTES:
            raise Refusal(
                503, f"there are {what} of more than {limit} bytes at once", retry_after="1"
            )

    def give_back(self, count: int) -> None:
        """Count `count` bytes less."""
        self.held -= count
        self._total.held -= count

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
