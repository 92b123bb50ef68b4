"""A server of Search-R1's protocol over any retriever: `POST /retrieve` and `GET /health`.

`http.server` has what our servers share, `http.hosts` who may ask. This module has the protocol,
its limits, and the searches, each on a thread. All requests together, and all answers, may use so
much memory and no more, so that many clients cannot fill it: an answer counts from when it is found
until its client has taken it.
"""

import asyncio
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..http.failures import ShapeError
from ..http.hosts import Hosts, is_loopback
from ..http.json_values import Node, parse, serialize
from ..http.server import (
    MemoryShare,
    MemoryUse,
    Receive,
    Refusal,
    Scope,
    Send,
    check_host_and_origin,
    iterate_body,
    make_server_with_timeouts,
    send_refusal,
)
from ..http.server_limits import CONNECTIONS, HEAD, PART
from ..subprocesses.deadlines import start_thread
from .retriever import Passage, Retriever, SearchFailure, join_contents

QUERIES = 4096  # queries in one request
QUERY = 4096  # characters of a query
TOPK = 100  # passages for a query
PASSAGES = 2**15  # passages for all queries of a request
DEFAULT_TOPK = 3  # if a request names none, as in Search-R1
BODY = 2**20  # bytes of a request
# Bytes of all requests at a time, and of all answers that are not sent yet. Beyond that, each may
# still have `GUARANTEED_BYTES`.
BODIES = 32 * 2**20
ANSWERS = 128 * 2**20
SEARCHERS = 8  # searches at once, each on a thread
_METHODS = {"/retrieve": "POST", "/health": "GET"}  # by path

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
    """Serve a retriever while the context lasts; the context's value is the server's URL.

    At the end of the context, also by KeyboardInterrupt, requests under way get `GRACE` seconds.
    The retriever is not closed.

    Args:
        retriever: What is searched.
        host: The name or address to listen on.
        port: The port to listen on; 0 is any that is free.
        token: What each request must have in `Authorization: Bearer TOKEN`; "" asks for none. A
            host that other machines can reach needs one.
        allow_hosts: Host names that requests may use, besides `host`, the address they connect to,
            and loopback.

    Raises:
        ValueError: Other machines can reach the host and there is no token, no header can carry the
            token, or the port is out of range.
        OSError: The address cannot be listened on.
        ImportError: uvicorn is not installed.
    """
    app = _App(retriever, token, names={host, *allow_hosts})
    server = make_server_with_timeouts(app, ws="none", lifespan="off")
    app.connections = server.server_state.connections
    listener = _listen(host, port, token)

    async def run() -> None:
        await server.serve([listener])
        for connection in list(app.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # lets the event loop close them

    server_end = start_thread(lambda: asyncio.run(run()), "turngym-serve")
    url_host = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{url_host}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        server_end.result()


def _listen(host: str, port: int, token: str) -> socket.socket:
    """Check the arguments of `serve` and return a listening socket; raises as `serve`."""
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
        # Connections inherit this. With Nagle's algorithm, the body of an answer would wait 40 ms
        # until the client confirms the head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise OSError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; "
            "give another host or port (0 is any)"
        ) from None


@dataclass(frozen=True)
class _RetrieveRequest:
    """The body of `POST /retrieve`."""

    queries: list[str]
    topk: int  # passages for each query
    with_scores: bool


class _App:
    """The ASGI application.

    Args:
        retriever: What is searched.
        token: What requests must have; "" asks for none.
        names: Host names that requests may use, besides loopback and the address they connect to.
    """

    def __init__(self, retriever: Retriever, token: str, names: Collection[str]) -> None:
        self._retriever = retriever
        self._authorization = f"Bearer {token}".encode() if token else b""
        self._hosts = Hosts(names)
        self._free_searchers = asyncio.Semaphore(SEARCHERS)
        self._request_bytes = MemoryUse()
        self._answer_bytes = MemoryUse()
        self.connections: Collection[Any] = ()  # of the server, all that are open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        body = iterate_body(receive)
        with self._answer_bytes.share() as answer_share:
            try:
                answer_parts = await self._answer(scope, body, answer_share)
            except Refusal as refusal:
                answer_share.close()
                with suppress(ConnectionError):  # the client is gone
                    await send_refusal(refusal, body, send)
                return
            except ConnectionError:
                return
            await _send_answer(answer_parts, answer_share, send)

    async def _answer(
        self, scope: Scope, body: AsyncIterator[bytes], answer_share: MemoryShare
    ) -> list[bytes]:
        """Return the JSON that answers a request, in parts.

        Raises Refusal if there is no answer, ConnectionError if the client is gone.
        """
        self._admit(scope)
        path = scope["path"]
        method = _METHODS.get(path)
        if method is None:
            raise Refusal(
                404, f"there is no {path[:80]!r} here; there are POST /retrieve and GET /health"
            )
        if scope["method"] != method:
            raise Refusal(405, f"{path} takes {method}", allow=method)
        if path == "/health":
            return [serialize({"searching": self._retriever.name})]
        return await self._retrieve(body, answer_share)

    def _admit(self, scope: Scope) -> None:
        """Raise Refusal if a request's head is too large or has a wrong host, origin or token."""
        fields = scope["headers"]
        head_bytes = len(scope["raw_path"]) + len(scope["query_string"])
        for name, value in fields:
            head_bytes += len(name) + len(b": \r\n") + len(value)
        if head_bytes > HEAD:
            raise Refusal(431, f"the head has more than {HEAD} bytes")
        headers = dict(fields)
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy in front could read the body's end elsewhere (request smuggling).
            raise Refusal(400, "it has both Content-Length and Transfer-Encoding; send one of them")
        check_host_and_origin(self._hosts, scope)
        if self._authorization:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._authorization):
                raise Refusal(
                    401, "give the token: Authorization: Bearer TOKEN", www_authenticate="Bearer"
                )
        if len(self.connections) > CONNECTIONS:
            raise Refusal(503, f"there are more than {CONNECTIONS} connections", retry_after="1")

    async def _retrieve(self, body: AsyncIterator[bytes], answer_share: MemoryShare) -> list[bytes]:
        """Read the body of `POST /retrieve` and return its answer in parts."""
        received = bytearray()
        with self._request_bytes.share() as request_share:
            async for chunk in body:
                received += chunk
                request_share.add(len(chunk), BODIES, "large requests")
                if len(received) > BODY:
                    raise Refusal(
                        413, f"the body has more than {BODY} bytes; send fewer queries at once"
                    )
            request = _parse_request(bytes(received))
            return await self._search_all(request, answer_share)

    async def _search_all(
        self, request: _RetrieveRequest, answer_share: MemoryShare
    ) -> list[bytes]:
        """Return the answer in parts: a frame around one part per query."""
        results: list[bytes] = []
        try:
            # In batches: a request of many queries must not queue them all in front of another
            # request.
            for batch_start in range(0, len(request.queries), SEARCHERS):
                batch = request.queries[batch_start : batch_start + SEARCHERS]
                searches = [self._search(query, request, answer_share) for query in batch]
                results += await asyncio.gather(*searches)
        except Refusal:
            raise
        except SearchFailure as failure:
            raise Refusal(502, str(failure)) from None
        except Exception as error:
            _log.exception("the search of %r failed", request.queries)
            raise Refusal(500, f"the search failed: {type(error).__name__}: {error}") from error
        answer_parts = [b'{"result": [']
        for number, result in enumerate(results):
            answer_parts.append(result if number == 0 else b", " + result)
        answer_parts.append(b"]}")
        return answer_parts

    async def _search(
        self, query: str, request: _RetrieveRequest, answer_share: MemoryShare
    ) -> bytes:
        """Return the passages for one query as JSON, counted in `answer_share`."""

        def search_and_serialize() -> bytes:
            passages = self._retriever.search(query, request.topk)
            return _serialize_passages(passages, with_scores=request.with_scores)

        async with self._free_searchers:
            search = start_thread(search_and_serialize, "turngym-serve-search")
            result = await asyncio.wrap_future(search)
        if answer_share.held + len(result) > ANSWERS:
            raise Refusal(422, f"the answer has more than {ANSWERS} bytes; ask for fewer passages")
        answer_share.add(len(result), ANSWERS, "answers that nobody took yet")
        return result


async def _send_answer(answer_parts: list[bytes], answer_share: MemoryShare, send: Send) -> None:
    """Send an answer in pieces of `PART` bytes, and empty `answer_parts`.

    `send` waits until the client takes a piece. Until then the answer is here, where it is counted
    in `answer_share`.
    """
    length = sum(len(part) for part in answer_parts)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % length),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    answer_parts.reverse()  # so that `pop` frees the parts in their order
    unsent = bytearray()
    while answer_parts:
        unsent += answer_parts.pop()
        while len(unsent) >= PART:
            piece = bytes(unsent[:PART])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            del unsent[:PART]
            # The brackets around the results are sent, too, but were not counted.
            answer_share.give_back(min(PART, answer_share.held))
    await send({"type": "http.response.body", "body": bytes(unsent)})


def _parse_request(body: bytes) -> _RetrieveRequest:
    """Read the body of `POST /retrieve`.

    Raises Refusal: 400 if it is not a JSON object, 422 if a field is not as it should be.
    """
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
        if len(queries) > QUERIES:
            raise ShapeError(
                f"queries has {len(queries)} entries; at most {QUERIES} are answered at once"
            )
        longest = max((len(query) for query in queries), default=0)
        if longest > QUERY:
            raise ShapeError(
                f"queries has one of {longest} characters; at most {QUERY} are searched"
            )
        topk = DEFAULT_TOPK
        if fields.get("topk") is not None:
            topk = request["topk"].integer(1, TOPK)
        if topk * len(queries) > PASSAGES:
            raise ShapeError(
                f"{len(queries)} queries with topk {topk} ask for more than {PASSAGES} passages; "
                "ask for fewer"
            )
        with_scores = "return_scores" in fields and request["return_scores"].boolean()
    except ShapeError as error:
        raise Refusal(422, str(error)) from None
    return _RetrieveRequest(queries, topk, with_scores)


def _serialize_passages(passages: list[Passage], *, with_scores: bool) -> bytes:
    """Return the passages for a query as the JSON of Search-R1's protocol."""
    documents: list[dict[str, Any]] = []
    for passage in passages:
        # A title of several lines would end before the text begins.
        title = " ".join(passage.title.split())
        document = {"id": passage.id, "contents": join_contents(title, passage.text)}
        documents.append(
            {"document": document, "score": passage.score} if with_scores else document
        )
    return serialize(documents)
