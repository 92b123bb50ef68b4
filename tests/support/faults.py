"""A server on the loopback that answers byte by byte, rightly or badly: what clients of HTTP must survive.

`Visit` reaches it only where its guard allows that: `Visit(allow=[server.host])`.
"""

import gzip
import itertools
import json
import re
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from turngym.tools.subprocesses.deadlines import start_thread

PAGE = b"<title>A page</title><h1>Paris</h1><p>It is the <b>capital</b> of France.</p>"
BLOCK = 2**20  # bytes of a bomb that follow from nothing before them
BLOCKS = 64  # that are sent at once
PAUSE = 0.02  # seconds between two bytes that drip
RESET = None
Answer = Iterable[
    bytes | float | None
]  # bytes are sent, a number is a pause in seconds, RESET breaks the connection
_MAGIC = {"gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\xff", "deflate": b"\x78\xda"}


class Kept(list[bytes]):
    """An answer, whole, behind which the connection stays open for another request."""


@dataclass(frozen=True)
class Request:
    """What was asked, counted from 0: all bytes up to the empty line, and those behind it."""

    number: int
    head: str
    body: bytes

    @property
    def target(self) -> str:
        """The path and the query."""
        return self.head.split()[1]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the header fields, in small letters, as often as they came."""
        return tuple(line.partition(":")[0].lower() for line in self.head.split("\r\n")[1:] if line)

    @property
    def queries(self) -> list[str]:
        """The queries of a request in the form of Search-R1."""
        found: list[str] = json.loads(self.body)["queries"]
        return found


def head(status: str = "200 OK", *fields: str) -> bytes:
    """Return the head of an answer."""
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "\r\n"]).encode()


def whole(
    body: bytes, status: str = "200 OK", *fields: str, kind: str = "application/json"
) -> list[bytes]:
    """Return a complete answer."""
    return [head(status, f"Content-Type: {kind}", f"Content-Length: {len(body)}", *fields) + body]


def found(request: Request, document: Mapping[str, Any]) -> bytes:
    """Return what a Search-R1 server says that finds one document for each query."""
    return json.dumps(
        {"result": [[{"document": dict(document), "score": 1.0}] for _ in request.queries]}
    ).encode()


def forever(before: bytes, again: bytes) -> Answer:
    """Return an answer without an end."""
    return itertools.chain([before], itertools.repeat(again))


def drip(before: bytes, again: bytes) -> Answer:
    """Return an answer without an end: a byte at a time, with a pause behind each."""
    return itertools.chain(
        [before], (part for byte in itertools.cycle(again) for part in (bytes([byte]), PAUSE))
    )


def bomb(form: str, size: int, *fields: str) -> Iterator[bytes]:
    """Yield an answer of zeros in the form `gzip` or `deflate`: the same compressed block again and again."""
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = deflate.compress(bytes(BLOCK)) + deflate.flush(zlib.Z_FULL_FLUSH)
    yield head("200 OK", *fields, f"Content-Encoding: {form}") + _MAGIC[form]
    yield from itertools.repeat(block * BLOCKS, size // BLOCK // BLOCKS)


def _head(status: str = "200 OK", kind: str = "text/html", *fields: str) -> bytes:
    return head(status, f"Content-Type: {kind}", *fields)


def _whole(body: bytes, kind: str = "text/html", *fields: str) -> Answer:
    return whole(body, "200 OK", *fields, kind=kind)


def _redirect(rest: str) -> Answer:
    return [_head("302 Found", "text/html", f"Location: {unquote(rest)}", "Content-Length: 0")]


def _hops(rest: str) -> Answer:
    return _redirect(f"/hops/{int(rest) - 1}") if int(rest) else _whole(PAGE)


_CHUNKED = _head("200 OK", "text/html", "Transfer-Encoding: chunked")
_GZIP = gzip.compress(PAGE * 100, mtime=0)
FAULTS: dict[str, Callable[[str], Answer]] = {
    "page": lambda _: _whole(PAGE),
    "plain": lambda _: _whole(b"one\r\n  two\x07", "text/plain; charset=ascii"),
    "json": lambda _: _whole(b'{"a": 1}', "application/ld+json"),
    "xml": lambda _: _whole(b"<a>1</a>", "application/xml"),
    "gzip": lambda _: _whole(_GZIP, "text/html", "Content-Encoding: gzip"),
    "gzip-10gb": lambda _: bomb("gzip", 10 * 2**30, "Content-Type: text/html"),
    "gzip-cut": lambda _: _whole(_GZIP[:-20], "text/html", "Content-Encoding: gzip"),
    "gzip-damaged": lambda _: _whole(b"\x1f\x8b" + PAGE, "text/html", "Content-Encoding: gzip"),
    "gzip-twice": lambda _: _whole(
        gzip.compress(_GZIP, mtime=0), "text/html", "Content-Encoding: gzip, gzip"
    ),
    "brotli": lambda _: _whole(PAGE, "text/html", "Content-Encoding: br"),
    "endless-headers": lambda _: forever(b"HTTP/1.1 200 OK\r\n", b"X-More: more\r\n" * 100),
    "endless-header": lambda _: forever(b"HTTP/1.1 200 OK\r\nX-More: ", b"x" * 1000),
    "many-headers": lambda _: _whole(PAGE, "text/html", *["X: 1"] * 100_000),
    "some-headers": lambda _: _whole(PAGE, "text/html", *["X: 1"] * 300),
    "endless-continue": lambda _: forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "drip-headers": lambda _: drip(b"HTTP/1.1 200 OK\r\nX-More: ", b"x"),
    "drip-continue": lambda _: drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drip-body": lambda _: drip(_head(), b"<p>x"),
    "drip-chunks": lambda _: drip(_CHUNKED, b"1\r\nx\r\n"),
    "silent": lambda _: itertools.repeat(60.0),
    "endless-body": lambda _: forever(_head(), b"<p>x" * 10_000),
    "endless-chunks": lambda _: forever(_CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"),
    "tiny-chunks": lambda _: forever(_CHUNKED, b"1\r\nx\r\n" * 1000),
    "endless-extension": lambda _: forever(_CHUNKED + b"1;", b"x" * 1000),
    "endless-trailers": lambda _: forever(_CHUNKED + b"0\r\n", b"X-More: more\r\n" * 100),
    "large-length": lambda _: forever(
        _head("200 OK", "text/html", f"Content-Length: {10**13}"), b"x" * 10_000
    ),
    "two-lengths": lambda _: [
        _head("200 OK", "text/html", "Content-Length: 3", "Content-Length: 4") + b"abcd"
    ],
    "half": lambda _: [_head("200 OK", "text/html", "Content-Length: 1000") + PAGE],
    "half-chunk": lambda _: [_CHUNKED + b"1000\r\nabc"],
    "reset": lambda _: [RESET],
    "garbage": lambda _: [b"\0\xff" * 1000],
    "no-answer": lambda _: [b"+OK ready\r\n\r\n"],
    "image": lambda _: _whole(b"\x89PNG", "image/png"),
    "untyped": lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"],
    "status": lambda rest: [_head(f"{rest} Whatever", "text/html", "Content-Length: 0")],
    "nested": lambda _: _whole(b"<b>" * 500_000 + b"deep"),
    "codec": lambda rest: _whole(b"caf\xe9", f"text/plain; charset={rest}"),
    "echo": lambda rest: _whole(unquote(rest).encode()),
    "cookie": lambda _: _whole(
        PAGE, "text/html", "Set-Cookie: a=b; Path=/", "WWW-Authenticate: Basic"
    ),
    "redirect": _redirect,
    "hops": _hops,
    "loop": lambda _: _redirect("/loop"),
}


def page(request: Request) -> Answer:
    """Answer `/name/rest?query` as `FAULTS` has it under the name."""
    name, _, rest = request.target[1:].partition("?")[0].partition("/")
    return FAULTS[name](rest) if name in FAULTS else FAULTS["status"]("404")


class FaultServer:
    """Answers at `host`, a port of 127.0.0.1, while its context lasts; one request a connection, but behind `Kept`.

    `requests` are all so far.
    """

    def __init__(self, answer: Callable[[Request], Answer] = page) -> None:
        self.answer, self.requests = answer, list[Request]()
        self._over, self._lock = threading.Event(), threading.Lock()

    @property
    def url(self) -> str:
        """Where it is, up to the port."""
        return f"http://{self.host}"

    def __enter__(self) -> "FaultServer":
        """Begin to answer."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = start_thread(self._accept, "a fault server")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Answer no more."""
        self._over.set()
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass  # so that it sees its end
        self._accepting.result()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            connection, _ = self._listener.accept()
            start_thread(partial(self._serve, connection), "a fault server's answer")

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20.0)
            while self._answer(connection):
                pass

    def _answer(self, connection: socket.socket) -> bool:
        """Answer a request; return whether another may come."""
        if (asked := _read(connection)) is None:
            return False
        with self._lock:
            request = Request(len(self.requests), *asked)
            self.requests.append(request)
        answer = self.answer(request)
        for part in answer:
            if self._over.is_set():
                return False
            if isinstance(part, bytes):
                connection.sendall(part)
            elif part is RESET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            else:
                self._over.wait(part)
        return isinstance(answer, Kept)


def _read(connection: socket.socket) -> tuple[str, bytes] | None:
    """Return the head and the body of a request; None where the client leaves before its end."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(2**16)):
            return None
        data += more
    first, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", first)
    while length and len(body) < int(length[1]):
        if not (more := connection.recv(2**16)):
            return None
        body += more
    return first.decode("latin-1"), body
