"""A server of Search-R1's protocol (see `servers`) over any back end: `POST /retrieve` and `GET /health`.

One event loop reads and writes for all connections, h11 keeps the rules of HTTP, and a few threads search. With 200
clients at once on 2 cores, a thread for each connection had four times the 99th percentile and ten times the memory.
"""

import asyncio
import hmac
import ipaddress
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import h11

from ..http.core import Node, ShapeError, parse, serialize
from ..threads import start
from .core import Passage, Retriever, SearchFailure, join_contents

QUERIES = 4096  # in one request
BODY = 4 * 2**20  # bytes of a request
HEAD = 64 * 2**10  # bytes of its head
TOPK = 100  # passages for a query
DEFAULT_TOPK = 3  # where a request names none, as in Search-R1
CONNECTIONS = 1024
PATIENCE = 60.0  # seconds in which a whole request must come, or an answer be taken
GRACE = 0.5  # seconds that requests under way get when the server stops
SEARCHERS = 8  # searches at once, each on a thread

_log = logging.getLogger(__name__)


@contextmanager
def serve(retriever: Retriever, host: str = "127.0.0.1", port: int = 8000, *, token: str = "") -> Iterator[str]:
    """Serve while the context lasts; its value is the URL. Port 0 is any that is free.

    token: what each request must bring in `Authorization: Bearer TOKEN`; a host beyond this machine needs one

    The end of the context, a KeyboardInterrupt included, gives requests under way `GRACE` seconds. The back end is left
    open. Raises ValueError for a host without its token or a port out of range, OSError where it cannot listen there.
    """
    server = _Server(retriever, token, _listen(host, port, token))
    running = start(server.run, "turngym-serve")
    try:
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{server.port}"
    finally:
        server.stop()
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
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"cannot listen on {host}:{port}: {why}; give another host or port (0 is any)") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Connection:
    """The server's end of a connection: whole requests of bounded size, and JSON answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD)

    async def receive(self) -> tuple[h11.Request, bytes] | None:
        """Return the next request with its body, None where there is none; raises `Refusal`."""
        request, body = None, bytearray()
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._reader.read(2**16))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY:
                    raise Refusal(413, f"the body has more than {BODY} bytes; send fewer queries at once")
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return request, bytes(body)
            else:
                return None

    async def send(self, body: bytes, refusal: Refusal | None, *, last: bool) -> bool:
        """Send JSON, with the status of a refusal or 200; whether the connection can go on."""
        status, headers = (refusal.status, refusal.headers) if refusal else (200, ())
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers]
        fields += [("Connection", "close")] if last else []
        response = h11.Response(status_code=status, headers=fields)
        await self._write(response, h11.Data(data=body), h11.EndOfMessage())
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def _next(self) -> Any:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise Refusal(error.error_status_hint, f"this is not HTTP: {error}") from None

    async def _write(self, *events: Any) -> None:
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self._writer.drain()


class _Server:
    def __init__(self, retriever: Retriever, token: str, listener: socket.socket) -> None:
        self._retriever, self._secret, self._listener = retriever, f"Bearer {token}" if token else "", listener
        self.port: int = listener.getsockname()[1]
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self._places = asyncio.Semaphore(SEARCHERS)
        self._connections: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Serve until `stop`."""
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def stop(self) -> None:
        """Ask `run` to end, from any thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, sock=self._listener, backlog=CONNECTIONS)
        await self._stopping.wait()
        server.close()
        for idle in self._connections - self._busy:
            idle.cancel()
        if self._busy:
            await asyncio.wait(self._busy, timeout=GRACE)
        for late in self._connections:
            late.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = Connection(reader, writer)
        try:
            while await self._exchange(connection, task):
                pass
        except (OSError, TimeoutError, asyncio.CancelledError, h11.ProtocolError):
            pass  # the client left, sends too slowly or breaks the rules of HTTP, or the server stops
        finally:
            self._connections.discard(task)
            self._busy.discard(task)
            writer.close()

    async def _exchange(self, connection: Connection, task: asyncio.Task[None]) -> bool:
        """Answer one request; whether the connection can have another."""
        try:
            async with asyncio.timeout(PATIENCE):
                received = await connection.receive()
            if received is None:
                return False
            self._busy.add(task)
            refusal, answer = None, await self._answer(*received)
        except Refusal as refused:
            refusal, answer = refused, serialize({"error": str(refused)})
        last = self._stopping.is_set() or len(self._connections) > CONNECTIONS
        async with asyncio.timeout(PATIENCE):
            again = await connection.send(answer, refusal, last=last)
        self._busy.discard(task)
        return again

    async def _answer(self, request: h11.Request, body: bytes) -> bytes:
        path, method = request.target.decode().partition("?")[0], request.method.decode()
        sent = dict(request.headers).get(b"authorization", b"")
        if self._secret and not hmac.compare_digest(sent, self._secret.encode()):
            raise Refusal(401, "give the token: Authorization: Bearer TOKEN", ("WWW-Authenticate", "Bearer"))
        if len(self._connections) > CONNECTIONS:
            raise Refusal(503, f"there are more than {CONNECTIONS} connections", ("Retry-After", "1"))
        allowed = {"/retrieve": "POST", "/health": "GET"}.get(path)
        if allowed is None:
            raise Refusal(404, f"there is no {path[:80]!r} here; there are POST /retrieve and GET /health")
        if method != allowed:
            raise Refusal(405, f"{path} takes {allowed}", ("Allow", allowed))
        return await self._retrieve(body) if method == "POST" else serialize({"searching": self._retriever.name})

    async def _retrieve(self, body: bytes) -> bytes:
        queries, topk, scores = _read(body)
        try:
            found = [self._search(query, topk) for query in queries]
            results = [[_shown(passage, scores) for passage in passages] for passages in await asyncio.gather(*found)]
            return serialize({"result": results})
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
    """Queries, how many passages for each, and whether with scores."""
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
        if len(queries) > QUERIES:
            raise ShapeError(f"queries has {len(queries)} entries; at most {QUERIES} are answered at once")
        topk = DEFAULT_TOPK if fields.get("topk") is None else request["topk"].integer(1, TOPK)
        return queries, topk, "return_scores" in request and request["return_scores"].boolean()
    except ShapeError as error:
        raise Refusal(422, str(error)) from None


def _shown(passage: Passage, scores: bool) -> dict[str, Any]:
    # A title of several lines would end before the text begins.
    document = {"id": passage.id, "contents": join_contents(" ".join(passage.title.split()), passage.text)}
    return {"document": document, "score": passage.score} if scores else document
