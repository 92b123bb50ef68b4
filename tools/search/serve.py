"""A server of Search-R1's protocol (see `servers`) over any back end: `POST /retrieve` and `GET /health`.

`http.server` has what it shares with other servers, `http.hosts` who may ask. Here are the
protocol, its limits, and the searches, each on a thread. Requests and answers have a limit
together, so that many clients cannot fill the memory: an answer is counted from when it is found
until its client has taken it.
"""

import asyncio
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from ..http.failures import ShapeError
from ..http.hosts import Hosts, is_loopback
from ..http.json_values import Node, parse, serialize
from ..http.server import (
    CONNECTIONS,
    HEAD,
    PART,
    HeldBytes,
    Receive,
    Refusal,
    Scope,
    Send,
    Share,
    admit,
    body_of,
    patient_server,
    refuse,
)
from ..subprocesses.deadlines import start
from .retriever import Passage, Retriever, SearchFailure, join_contents

QUERIES = 4096  # in one request
QUERY = 4096  # characters of a query
TOPK = 100  # passages for a query
PASSAGES = 2**15  # for all queries of a request
DEFAULT_TOPK = 3  # where a request names none, as in Search-R1
BODY = 2**20  # bytes of a request
BODIES = (
    32 * 2**20
)  # bytes of all requests at a time; those of up to `SMALL` bytes are taken beyond it
ANSWERS = 128 * 2**20  # bytes of all answers at a time that are not taken yet, likewise
SEARCHERS = 8  # searches at once, each on a thread

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

    token: what each request must bring in `Authorization: Bearer TOKEN`; a host beyond this machine
        needs one.
    allow_hosts: names under which the server is asked, besides the address that is connected to and
        those of loopback.

    The end of the context, a KeyboardInterrupt included, gives requests under way `GRACE` seconds.
    The back end is left open. Raises ValueError for a host beyond this machine without a token, a
    token that no header can carry, a port out of range; OSError where it cannot listen there;
    ImportError where uvicorn is not installed.
    """
    app = _App(retriever, token, {host, *allow_hosts})
    server, listener = patient_server(app, ws="none", lifespan="off"), _listen(host, port, token)
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
    if not token and not is_loopback(host):
        raise ValueError(
            f"host {host!r} can be reached from other machines; give a token, or the host 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
        # Its connections inherit it. Without, the body of an answer waits 40 ms for the client to
        # confirm the head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        why = error.strerror or error
        raise OSError(
            f"cannot listen on {host}:{port}: {why}; give another host or port (0 is any)"
        ) from None


class _App:
    def __init__(self, retriever: Retriever, token: str, names: Collection[str]) -> None:
        self._retriever, self._secret = retriever, f"Bearer {token}".encode() if token else b""
        self._hosts = Hosts(names)
        self._places, self._bodies, self._answers = (
            asyncio.Semaphore(SEARCHERS),
            HeldBytes(),
            HeldBytes(),
        )
        self.connections: Collection[Any] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = body_of(receive)
        with self._answers.share() as share:
            try:
                try:
                    parts = await self._answer(scope, body, share)
                except Refusal as refusal:
                    share.close()
                    await refuse(refusal, body, send)
                    return
            except ConnectionError:
                return
            await _send(parts, share, send)

    async def _answer(self, scope: Scope, body: AsyncIterator[bytes], share: Share) -> list[bytes]:
        self._admit(scope)
        path, method = scope["path"], scope["method"]
        if (allowed := {"/retrieve": "POST", "/health": "GET"}.get(path)) is None:
            raise Refusal(
                404, f"there is no {path[:80]!r} here; there are POST /retrieve and GET /health"
            )
        if method != allowed:
            raise Refusal(405, f"{path} takes {allowed}", allow=allowed)
        if method == "GET":
            return [serialize({"searching": self._retriever.name})]
        return await self._retrieve(body, share)

    def _admit(self, scope: Scope) -> None:
        head, sent = dict(scope["headers"]), scope["headers"]
        lines = [
            scope["raw_path"],
            scope["query_string"],
            *(name + b": \r\n" + value for name, value in sent),
        ]
        if sum(map(len, lines)) > HEAD:
            raise Refusal(431, f"the head has more than {HEAD} bytes")
        if b"content-length" in head and b"transfer-encoding" in head:
            raise Refusal(400, "it has both Content-Length and Transfer-Encoding; send one of them")
        admit(self._hosts, scope)
        if self._secret and not hmac.compare_digest(head.get(b"authorization", b""), self._secret):
            raise Refusal(
                401, "give the token: Authorization: Bearer TOKEN", www_authenticate="Bearer"
            )
        if len(self.connections) > CONNECTIONS:
            raise Refusal(503, f"there are more than {CONNECTIONS} connections", retry_after="1")

    async def _retrieve(self, body: AsyncIterator[bytes], share: Share) -> list[bytes]:
        taken = bytearray()
        with self._bodies.share() as held:
            async for part in body:
                taken += part
                held.add(len(part), BODIES, "large requests")
                if len(taken) > BODY:
                    raise Refusal(
                        413, f"the body has more than {BODY} bytes; send fewer queries at once"
                    )
            return await self._results(*_read(bytes(taken)), share)

    async def _results(
        self, queries: list[str], topk: int, scores: bool, share: Share
    ) -> list[bytes]:
        """Return the answer in parts, of which each but the first and the last has the passages of a query."""
        try:
            found = list[bytes]()
            for at in range(
                0, len(queries), SEARCHERS
            ):  # so that many queries leave places to other requests
                batch = queries[at : at + SEARCHERS]
                found += await asyncio.gather(
                    *(self._search(query, topk, scores, share) for query in batch)
                )
        except Refusal:
            raise
        except SearchFailure as failure:
            raise Refusal(502, str(failure)) from None
        except Exception as error:
            _log.exception("the search of %r failed", queries)
            raise Refusal(500, f"the search failed: {type(error).__name__}: {error}") from error
        return [
            b'{"result": [',
            *(b", " * (place > 0) + part for place, part in enumerate(found)),
            b"]}",
        ]

    async def _search(self, query: str, topk: int, scores: bool, share: Share) -> bytes:
        def search() -> bytes:
            return _shown(self._retriever.search(query, topk), scores)

        async with self._places:
            found = await asyncio.wrap_future(start(search, "turngym-serve-search"))
        if share.held + len(found) > ANSWERS:
            raise Refusal(422, f"the answer has more than {ANSWERS} bytes; ask for fewer passages")
        share.add(len(found), ANSWERS, "answers that nobody took yet")
        return found


async def _send(parts: list[bytes], share: Share, send: Send) -> None:
    """Send an answer bit by bit, so that what a slow client has not taken is here and counted."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % sum(map(len, parts))),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    parts.reverse()
    waiting = bytearray()
    while parts:
        waiting += parts.pop()
        for _ in range(len(waiting) // PART):
            await send(
                {"type": "http.response.body", "body": bytes(waiting[:PART]), "more_body": True}
            )
            del waiting[:PART]
            share.give_back(min(PART, share.held))
    await send({"type": "http.response.body", "body": bytes(waiting)})


def _read(body: bytes) -> tuple[list[str], int, bool]:
    try:
        request = Node(parse(body))
        fields = request.object()
    except ShapeError as error:
        raise Refusal(400, f"the body: {error}") from None
    try:
        for name in fields:
            if name not in ("queries", "topk", "return_scores"):
                raise ShapeError(
                    f"{name[:80]!r} is no field; there are queries, topk and return_scores"
                )
        queries = [query.string() for query in request["queries"].array()]
        if (count := len(queries)) > QUERIES:
            raise ShapeError(f"queries has {count} entries; at most {QUERIES} are answered at once")
        if (longest := max(map(len, queries), default=0)) > QUERY:
            raise ShapeError(
                f"queries has one of {longest} characters; at most {QUERY} are searched"
            )
        topk = DEFAULT_TOPK if fields.get("topk") is None else request["topk"].integer(1, TOPK)
        if topk * count > PASSAGES:
            raise ShapeError(
                f"{count} queries with topk {topk} ask for more than {PASSAGES} passages; ask for fewer"
            )
        return queries, topk, "return_scores" in request and request["return_scores"].boolean()
    except ShapeError as error:
        raise Refusal(422, str(error)) from None


def _shown(passages: list[Passage], scores: bool) -> bytes:
    """Return the passages that a query found, as JSON."""

    def document(passage: Passage) -> dict[str, Any]:
        # A title of several lines would end before the text begins.
        shown = {
            "id": passage.id,
            "contents": join_contents(" ".join(passage.title.split()), passage.text),
        }
        return {"document": shown, "score": passage.score} if scores else shown

    return serialize([document(passage) for passage in passages])
