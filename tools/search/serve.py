"""A server of Search-R1's protocol (see `servers`) over any back end: `POST /retrieve` and `GET /health`.

uvicorn keeps the rules of HTTP. Here are the limits, who may ask, and the searches, each on a thread. What a page in a
browser sends is refused: it has an `Origin`, or, where DNS was made to name this machine, a foreign `Host`.
"""

import asyncio
import hmac
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from ..core import start
from ..http import Node, ShapeError, parse, serialize
from . import Passage, Retriever, SearchFailure, join_contents

QUERIES = 4096  # in one request
QUERY = 4096  # characters of a query
TOPK = 100  # passages for a query
PASSAGES = 2**15  # for all queries of a request
DEFAULT_TOPK = 3  # where a request names none, as in Search-R1
HEAD = 16 * 2**10  # bytes of a request's head
BODY = 2**20  # bytes of a request
HELD = 32 * 2**20  # bytes of all requests at a time; those of up to SMALL bytes are taken beyond it
SMALL = 64 * 2**10
SWALLOWED = 8 * 2**20  # bytes that are read of a request that is refused: a client may send all before it reads
CONNECTIONS = 512
PATIENCE = 30.0  # seconds that a client may take for a request, and for taking its answer
GRACE = 1  # seconds that requests under way get when the server stops
SEARCHERS = 8  # searches at once, each on a thread
# Of uvicorn: nothing that is not needed, and nothing said.
SETTINGS: dict[str, Any] = dict.fromkeys(("access_log", "proxy_headers", "server_header", "date_header"), False)
SETTINGS |= {"loop": "asyncio", "ws": "none", "lifespan": "off", "log_config": None, "log_level": "critical"}

_log = logging.getLogger(__name__)


@contextmanager
def serve(
    retriever: Retriever,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    token: str = "",
    allow_hosts: Collection[str] = (),
) -> Iterator[str]:
    """Serve while the context lasts; its value is the URL. Port 0 is any that is free.

    token: what each request must bring in `Authorization: Bearer TOKEN`; a host beyond this machine needs one.
    allow_hosts: names under which the server is asked, besides the address that is connected to and those of loopback.

    The end of the context, a KeyboardInterrupt included, gives requests under way `GRACE` seconds. The back end is left
    open. Raises ValueError for a host beyond this machine without a token, a token that no header can carry, a port out
    of range; OSError where it cannot listen there; ImportError where uvicorn is not installed.
    """
    app = _App(retriever, token, {host, *allow_hosts})
    server, listener = _server(app), _listen(host, port, token)
    app.connections = server.server_state.connections
    port = listener.getsockname()[1]

    async def run() -> None:
        await server.serve([listener])
        for connection in list(app.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # in which they close

    running = start(lambda: asyncio.run(run()), "turngym-serve")
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        server.should_exit = True
        running.result()


def _listen(host: str, port: int, token: str) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ValueError(f"port is {port}; give one from 1 to 65535, or 0 for any that is free")
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("the token holds characters that no header can carry")
    if not token and not _is_loopback(host):
        raise ValueError(f"host {host!r} can be reached from other machines; give a token, or the host 127.0.0.1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
        # Its connections inherit it. Without, the body of an answer waits 40 ms for the client to confirm the head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"cannot listen on {host}:{port}: {why}; give another host or port (0 is any)") from None


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _server(app: "_App") -> Any:
    """Return a server of uvicorn's that leaves clients who let it wait."""
    try:  # not at the top: an extra
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
    except ImportError as error:
        raise ImportError(f'a search server needs uvicorn ({error}): pip install "turngym[serve]"') from error

    class Connection(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.max_size = SMALL  # of one reading: asyncio's 256 KiB for each of many connections are much
            self.since = self.loop.time()
            self.look()
            if len(self.connections) > CONNECTIONS:  # the one that has waited longest gives its place
                idle = [other for other in self.connections if other.waits and other is not self]
                for oldest in sorted(idle, key=lambda other: other.since)[:1]:
                    self.connections.discard(oldest)
                    oldest.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self.looking.cancel()
            super().connection_lost(exc)

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

    limits: dict[str, Any] = {"timeout_graceful_shutdown": GRACE, "h11_max_incomplete_event_size": HEAD}
    return uvicorn.Server(uvicorn.Config(app, http=Connection, backlog=CONNECTIONS, **limits, **SETTINGS))


class Refusal(Exception):
    """An answer other than 200, behind which the connection is closed."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]


async def _body(receive: Callable[[], Awaitable[Mapping[str, Any]]]) -> AsyncIterator[bytes]:
    """Yield the body of a request as it comes; raises ConnectionError where the client left."""
    more = True
    while more:
        if (message := await receive())["type"] == "http.disconnect":
            raise ConnectionError
        more = message["more_body"]
        yield bytes(message["body"])


class _App:
    def __init__(self, retriever: Retriever, token: str, names: Collection[str]) -> None:
        self._retriever, self._secret = retriever, f"Bearer {token}".encode() if token else b""
        self._names = {name.lower() for name in names}
        self._places, self._held = asyncio.Semaphore(SEARCHERS), 0
        self.connections: Collection[Any] = ()

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        headers, body, left = [(b"content-type", b"application/json")], _body(receive), SWALLOWED
        try:
            try:
                status, answer = 200, await self._answer(scope, body)
            except Refusal as refusal:
                status, answer = refusal.status, serialize({"error": str(refusal)})
                headers += [(b"connection", b"close"), *refusal.headers]
                async for part in body:
                    left -= len(part)
                    if left <= 0:
                        break
        except ConnectionError:
            return
        headers.append((b"content-length", b"%d" % len(answer)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, scope: Mapping[str, Any], body: AsyncIterator[bytes]) -> bytes:
        self._admit(scope)
        path, method = scope["path"], scope["method"]
        if (allowed := {"/retrieve": "POST", "/health": "GET"}.get(path)) is None:
            raise Refusal(404, f"there is no {path[:80]!r} here; there are POST /retrieve and GET /health")
        if method != allowed:
            raise Refusal(405, f"{path} takes {allowed}", allow=allowed)
        return await self._retrieve(body) if method == "POST" else serialize({"searching": self._retriever.name})

    def _admit(self, scope: Mapping[str, Any]) -> None:
        head, sent = dict(scope["headers"]), scope["headers"]
        lines = [scope["raw_path"], scope["query_string"], *(name + b": \r\n" + value for name, value in sent)]
        if sum(map(len, lines)) > HEAD:
            raise Refusal(431, f"the head has more than {HEAD} bytes")
        if b"content-length" in head and b"transfer-encoding" in head:
            raise Refusal(400, "it has both Content-Length and Transfer-Encoding; send one of them")
        host = head.get(b"host", b"").decode("latin-1")
        name = re.sub(r":\d*$", "", host).strip("[]").rstrip(".").lower()
        if not name or not (name in self._names or name == scope["server"][0] or _is_loopback(name)):
            raise Refusal(421, f"this is not {host[:80]!r}; if it is, start the server with --allow-host {name[:80]!r}")
        if any(name == b"origin" and value.partition(b"://")[2] != head[b"host"] for name, value in sent):
            raise Refusal(403, "pages of another origin may not search here")
        if self._secret and not hmac.compare_digest(head.get(b"authorization", b""), self._secret):
            raise Refusal(401, "give the token: Authorization: Bearer TOKEN", www_authenticate="Bearer")
        if len(self.connections) > CONNECTIONS:
            raise Refusal(503, f"there are more than {CONNECTIONS} connections", retry_after="1")

    async def _retrieve(self, body: AsyncIterator[bytes]) -> bytes:
        taken = bytearray()
        try:
            async for part in body:
                taken += part
                self._held += len(part)
                if len(taken) > BODY:
                    raise Refusal(413, f"the body has more than {BODY} bytes; send fewer queries at once")
                if self._held > HELD and len(taken) > SMALL:
                    raise Refusal(503, f"there are large requests of more than {HELD} bytes at once", retry_after="1")
            return await self._results(*_read(bytes(taken)))
        finally:
            self._held -= len(taken)

    async def _results(self, queries: list[str], topk: int, scores: bool) -> bytes:
        try:
            found = list[list[Passage]]()
            for at in range(0, len(queries), SEARCHERS):  # so that many queries leave places to other requests
                found += await asyncio.gather(*(self._search(query, topk) for query in queries[at : at + SEARCHERS]))
            return await asyncio.wrap_future(start(partial(_shown, found, scores), "turngym-serve-answer"))
        except SearchFailure as failure:
            raise Refusal(502, str(failure)) from None
        except Exception as error:
            _log.exception("the search of %r failed", queries)
            raise Refusal(500, f"the search failed: {type(error).__name__}: {error}") from error

    async def _search(self, query: str, topk: int) -> list[Passage]:
        async with self._places:
            search = partial(self._retriever.search, query, topk)
            return await asyncio.wrap_future(start(search, "turngym-serve-search"))


def _read(body: bytes) -> tuple[list[str], int, bool]:
    try:
        request = Node(parse(body))
        fields = request.object()
    except ShapeError as error:
        raise Refusal(400, f"the body: {error}") from None
    try:
        for name in fields:
            if name not in ("queries", "topk", "return_scores"):
                raise ShapeError(f"{name[:80]!r} is no field; there are queries, topk and return_scores")
        queries = [query.string() for query in request["queries"].array()]
        if (count := len(queries)) > QUERIES:
            raise ShapeError(f"queries has {count} entries; at most {QUERIES} are answered at once")
        if (longest := max(map(len, queries), default=0)) > QUERY:
            raise ShapeError(f"queries has one of {longest} characters; at most {QUERY} are searched")
        topk = DEFAULT_TOPK if fields.get("topk") is None else request["topk"].integer(1, TOPK)
        if topk * count > PASSAGES:
            raise ShapeError(f"{count} queries with topk {topk} ask for more than {PASSAGES} passages; ask for fewer")
        return queries, topk, "return_scores" in request and request["return_scores"].boolean()
    except ShapeError as error:
        raise Refusal(422, str(error)) from None


def _shown(found: list[list[Passage]], scores: bool) -> bytes:
    def document(passage: Passage) -> dict[str, Any]:
        # A title of several lines would end before the text begins.
        shown = {"id": passage.id, "contents": join_contents(" ".join(passage.title.split()), passage.text)}
        return {"document": shown, "score": passage.score} if scores else shown

    return serialize({"result": [[document(passage) for passage in passages] for passages in found]})
