"""A server of Search-R1's protocol over any retriever: `POST /retrieve` and `GET /health`.

`http.server` has what our servers share, and `http.hosts` decides who may ask. This module has the
protocol, its limits, and the searches, each on a thread. The memory of all requests together is
limited, and so is that of all answers, so that many clients cannot fill it. An answer counts from
the search until its client has received it.
"""

import asyncio
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
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
from ..http.server_limits import BYTES_PER_SEND, CONNECTIONS, MAX_HEAD_BYTES
from ..subprocesses.deadlines import start_thread
from .retriever import Passage, Retriever, SearchFailure, join_contents

MAX_QUERIES = 4096  # in one request
MAX_QUERY_CHARS = 4096
MAX_TOPK = 100  # passages for a query
MAX_PASSAGES = 2**15  # for all queries of a request
DEFAULT_TOPK = 3  # if a request names none, as in Search-R1
MAX_BODY_BYTES = 2**20  # of a request
# Of all requests at a time, and of all answers that are not sent yet. If there are more, a request
# or an answer of up to `server_limits.GUARANTEED_BYTES` bytes is still accepted.
MAX_BYTES_OF_ALL_BODIES = 32 * 2**20
MAX_BYTES_OF_ALL_ANSWERS = 128 * 2**20
MAX_PARALLEL_SEARCHES = 8  # each on a thread
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
    """Serve a retriever on a thread while the context lasts.

    When the context ends, also by KeyboardInterrupt, requests that are being answered get a second
    to finish. The retriever is not closed.

    Args:
        retriever: The back end that is searched.
        host: The name or address to listen on.
        port: The port to listen on; 0 is any that is free.
        token: What each request must have in `Authorization: Bearer TOKEN`; "" asks for none. A
            host that other machines can reach needs one.
        allow_hosts: Host names that requests may use, besides `host`, the address they connect to,
            and loopback.

    Yields:
        The server's URL.

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

    async def serve_until_exit() -> None:
        await server.serve([listener])
        # Close the connections whose requests did not end in time.
        for connection in list(app.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # lets the event loop close them

    server_future = start_thread(lambda: asyncio.run(serve_until_exit()), "turngym-serve")
    url_host = f"[{host}]" if ":" in host else host
    actual_port = listener.getsockname()[1]
    try:
        yield f"http://{url_host}:{actual_port}"
    finally:
        server.should_exit = True
        server_future.result()


def _listen(host: str, port: int, token: str) -> socket.socket:
    """Check these arguments of `serve` and return a socket that listens.

    Raises:
        ValueError: The host needs a token, no header can carry the token, or the port is out of
            range.
        OSError: The address cannot be listened on.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"port is {port}; give one from 1 to 65535, or 0 for any that is free")
    can_be_in_header = token.isascii() and token.isprintable() and " " not in token
    if not can_be_in_header:
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
        self._search_slots = asyncio.Semaphore(MAX_PARALLEL_SEARCHES)
        self._request_memory = MemoryUse()
        self._answer_memory = MemoryUse()
        self.connections: Collection[Any] = ()  # of the server, all that are open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, by the protocol ASGI."""
        body = iterate_body(receive)
        with self._answer_memory.share() as answer_share:
            try:
                answer_parts = await self._answer(scope, body, answer_share)
            except Refusal as refusal:
                answer_share.close()  # before sending, which may take the client long
                with suppress(ConnectionError):  # the client is gone
                    await send_refusal(refusal, body, send)
                return
            except ConnectionError:
                return
            await _send_answer(answer_parts, answer_share, send)

    async def _answer(
        self, scope: Scope, body: AsyncIterator[bytes], answer_share: MemoryShare
    ) -> list[bytes]:
        """Return the JSON that answers a request, in parts that are to be joined.

        Args:
            scope: The request's head, as ASGI describes it.
            body: The chunks of the request's body.
            answer_share: Counts the bytes of the passages in the answer.

        Raises:
            Refusal: The request gets an error as its answer.
            ConnectionError: The client is gone.
        """
        self._check_head(scope)
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

    def _check_head(self, scope: Scope) -> None:
        """Raise Refusal if a request's head is too large or has a wrong host, origin or token.

        Also if the server has too many connections.
        """
        fields = scope["headers"]
        head_bytes = len(scope["raw_path"]) + len(scope["query_string"])
        for name, value in fields:
            head_bytes += len(name) + len(b": \r\n") + len(value)
        if head_bytes > MAX_HEAD_BYTES:
            raise Refusal(431, f"the head has more than {MAX_HEAD_BYTES} bytes")
        headers = dict(fields)
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy in front of the server could see the body end elsewhere (request smuggling).
            raise Refusal(400, "it has both Content-Length and Transfer-Encoding; send one of them")
        check_host_and_origin(self._hosts, scope)
        if self._authorization:
            given_authorization = headers.get(b"authorization", b"")
            # Compared in constant time, so that a client cannot guess the token byte by byte.
            if not hmac.compare_digest(given_authorization, self._authorization):
                raise Refusal(
                    401, "give the token: Authorization: Bearer TOKEN", www_authenticate="Bearer"
                )
        if len(self.connections) > CONNECTIONS:
            raise Refusal(503, f"there are more than {CONNECTIONS} connections", retry_after="1")

    async def _retrieve(self, body: AsyncIterator[bytes], answer_share: MemoryShare) -> list[bytes]:
        """Answer `POST /retrieve`.

        Args:
            body: The chunks of the request's body.
            answer_share: Counts the bytes of the passages in the answer.

        Returns:
            The JSON of the answer, in parts that are to be joined.
        """
        received = bytearray()
        with self._request_memory.share() as request_share:
            async for chunk in body:
                received += chunk
                request_share.add(len(chunk), MAX_BYTES_OF_ALL_BODIES, "large requests")
                if len(received) > MAX_BODY_BYTES:
                    raise Refusal(
                        413,
                        f"the body has more than {MAX_BODY_BYTES} bytes; "
                        "send fewer queries at once",
                    )
            request = _parse_request(bytes(received))
            return await self._search_all(request, answer_share)

    async def _search_all(
        self, request: _RetrieveRequest, answer_share: MemoryShare
    ) -> list[bytes]:
        """Search all queries of a request.

        Returns:
            The JSON `{"result": [...]}` with a list of passages per query, in parts that are to
            be joined. The lists are counted in `answer_share`.

        Raises:
            Refusal: A search failed, or the answer is too large.
        """
        results: list[bytes] = []
        try:
            # A request of many queries searches them in batches, so that the queries of another
            # request do not have to wait until all of them are searched.
            for batch_start in range(0, len(request.queries), MAX_PARALLEL_SEARCHES):
                batch = request.queries[batch_start : batch_start + MAX_PARALLEL_SEARCHES]
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
        """Search one query of a request, on a thread.

        Returns:
            The JSON list of its passages, counted in `answer_share`.

        Raises:
            Refusal: The answer, or all answers of the server together, are too large.
        """

        def search_and_serialize() -> bytes:
            passages = self._retriever.search(query, request.topk)
            return _serialize_passages(passages, with_scores=request.with_scores)

        async with self._search_slots:
            search_future = start_thread(search_and_serialize, "turngym-serve-search")
            result = await asyncio.wrap_future(search_future)
        if answer_share.held + len(result) > MAX_BYTES_OF_ALL_ANSWERS:
            raise Refusal(
                422,
                f"the answer has more than {MAX_BYTES_OF_ALL_ANSWERS} bytes; "
                "ask for fewer passages",
            )
        answer_share.add(len(result), MAX_BYTES_OF_ALL_ANSWERS, "answers that nobody took yet")
        return result


async def _send_answer(answer_parts: list[bytes], answer_share: MemoryShare, send: Send) -> None:
    """Send an answer in pieces, freeing the memory of each piece that the client has received.

    Args:
        answer_parts: The JSON of the answer, in parts that are to be joined. The list is emptied.
        answer_share: Counts the bytes of the answer that are in memory.
        send: ASGI's function that sends an event. It waits until the client receives a piece.
    """
    length = sum(len(part) for part in answer_parts)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % length),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    answer_parts.reverse()  # so that `pop` takes the parts from first to last, and frees them
    unsent = bytearray()
    while answer_parts:
        unsent += answer_parts.pop()
        while len(unsent) >= BYTES_PER_SEND:
            piece = bytes(unsent[:BYTES_PER_SEND])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            del unsent[:BYTES_PER_SEND]
            # The brackets and commas around the passages are sent, too, but were not counted, so a
            # piece can be larger than the share.
            answer_share.give_back(min(BYTES_PER_SEND, answer_share.held))
    await send({"type": "http.response.body", "body": bytes(unsent)})


def _parse_request(body: bytes) -> _RetrieveRequest:
    """Parse the body of `POST /retrieve`.

    Raises:
        Refusal: The body is not a JSON object (status 400), or a field is wrong (422).
    """
    try:
        request = Node(parse(body))
        fields = request.object()
    except ShapeError as error:
        raise Refusal(400, f"the body: {error}") from None
    try:
        return _parse_fields(request, fields)
    except ShapeError as error:
        raise Refusal(422, str(error)) from None


def _parse_fields(request: Node, fields: Mapping[str, Any]) -> _RetrieveRequest:
    """Parse the fields of the JSON object `request`; raises ShapeError if one is wrong."""
    for name in fields:
        if name not in ("queries", "topk", "return_scores"):
            raise ShapeError(
                f"{name[:80]!r} is no field; there are queries, topk and return_scores"
            )
    queries = [query.string() for query in request["queries"].array()]
    if len(queries) > MAX_QUERIES:
        raise ShapeError(
            f"queries has {len(queries)} entries; at most {MAX_QUERIES} are answered at once"
        )
    longest_query = max((len(query) for query in queries), default=0)
    if longest_query > MAX_QUERY_CHARS:
        raise ShapeError(
            f"queries has one of {longest_query} characters; at most {MAX_QUERY_CHARS} are searched"
        )
    topk = DEFAULT_TOPK
    if fields.get("topk") is not None:
        topk = request["topk"].integer(1, MAX_TOPK)
    if topk * len(queries) > MAX_PASSAGES:
        raise ShapeError(
            f"{len(queries)} queries with topk {topk} ask for more than {MAX_PASSAGES} passages; "
            "ask for fewer"
        )
    with_scores = "return_scores" in fields and request["return_scores"].boolean()
    return _RetrieveRequest(queries, topk, with_scores)


def _serialize_passages(passages: list[Passage], *, with_scores: bool) -> bytes:
    """Return the passages for a query as a JSON list, by Search-R1's protocol.

    Its items are `{"document": {"id", "contents"}, "score"}`, or only the documents.
    """
    items: list[dict[str, Any]] = []
    for passage in passages:
        # In `contents` the title is the first line, so it must not have line breaks itself.
        title = " ".join(passage.title.split())
        document = {"id": passage.id, "contents": join_contents(title, passage.text)}
        if with_scores:
            items.append({"document": document, "score": passage.score})
        else:
            items.append(document)
    return serialize(items)
