"""A server of Search-R1's protocol (see `retrieve`) over any back end: `POST /retrieve` and `GET /health`.

One event loop reads and writes for all connections, h11 keeps the rules of HTTP, and a few threads search. With 200
clients at once on 2 cores, a thread for each connection had four times the 99th percentile and ten times the memory.
"""

import asyncio
import hmac
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any

import h11

from ..http.payload import Node, ShapeError, parse, serialize
from ..threads import start
from .core import Passage, Retriever, SearchFailure
from .corpus import join_contents
from .wire import Refusal, Wire

QUERIES = 4096  # in one request
TOPK = 100  # passages for a query
DEFAULT_TOPK = 3  # where a request names none, as in Search-R1
CONNECTIONS = 1024
PATIENCE = 60.0  # seconds in which a whole request must come, or an answer be taken
GRACE = 0.5  # seconds that requests under way get when the server stops
SEARCHERS = 8  # threads

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


class _Searchers:
    """Daemon threads that search: unlike those of an executor, a slow one does not delay the end of the process."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        for _ in range(SEARCHERS):
            start(self._work, "turngym-serve-search")

    async def run(self, work: Callable[[], Any]) -> Any:
        future: Future[Any] = Future()
        self._jobs.put((future, work))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        for _ in range(SEARCHERS):
            self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            future, work = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)


class _Server:
    def __init__(self, retriever: Retriever, token: str, listener: socket.socket) -> None:
        self._retriever, self._secret, self._listener = retriever, f"Bearer {token}" if token else "", listener
        self.port: int = listener.getsockname()[1]
        self._loop, self._stopping, self._searchers = asyncio.new_event_loop(), asyncio.Event(), _Searchers()
        self._connections: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        """Serve until `stop`."""
        self._loop.run_until_complete(self._serve())
        self._searchers.close()
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
        wire = Wire(reader, writer)
        try:
            while await self._turn(wire, task):
                pass
        except (OSError, TimeoutError, asyncio.CancelledError, h11.ProtocolError):
            pass  # the client left, sends too slowly or breaks the rules of HTTP, or the server stops
        finally:
            self._connections.discard(task)
            self._busy.discard(task)
            writer.close()

    async def _turn(self, wire: "Wire", task: "asyncio.Task[None]") -> bool:
        """Answer one request; whether the connection can have another."""
        try:
            async with asyncio.timeout(PATIENCE):
                received = await wire.receive()
            if received is None:
                return False
            self._busy.add(task)
            refusal, answer = None, await self._answer(*received)
        except Refusal as refused:
            refusal, answer = refused, serialize({"error": str(refused)})
        last = self._stopping.is_set() or len(self._connections) > CONNECTIONS
        async with asyncio.timeout(PATIENCE):
            again = await wire.send(answer, refusal, last=last)
        self._busy.discard(task)
        return again

    async def _answer(self, request: h11.Request, body: bytes) -> bytes:
        path, method = request.target.decode().partition("?")[0], request.method.decode()
        given = dict(request.headers).get(b"authorization", b"")
        if self._secret and not hmac.compare_digest(given, self._secret.encode()):
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
            found = [self._searchers.run(partial(self._retriever.search, query, topk)) for query in queries]
            results = [[_shown(passage, scores) for passage in passages] for passages in await asyncio.gather(*found)]
            return serialize({"result": results})
        except SearchFailure as failure:
            raise Refusal(502, str(failure)) from None
        except Exception as error:
            _log.exception("the search of %r failed", queries)
            raise Refusal(500, f"the search failed: {type(error).__name__}: {error}") from error


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
