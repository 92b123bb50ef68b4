"""A server on the loopback that answers badly, each path in its own way: what a visit must survive.

It can be reached only where a guard allows it: `Visit(allow=[server.host])`.
"""

import gzip
import itertools
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from urllib.parse import unquote

from ..threads import start

PAGE = b"<title>A page</title><h1>Paris</h1><p>It is the <b>capital</b> of France.</p>"
BLOCK = 2**20  # bytes of a bomb that follow from nothing before them
BLOCKS = 64  # that are sent at once
Answer = Iterator[bytes]


def _head(status: str = "200 OK", kind: str = "text/html", *fields: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {kind}", *fields, "\r\n"]).encode()


def _whole(body: bytes, kind: str = "text/html", *fields: str) -> Answer:
    yield _head("200 OK", kind, f"Content-Length: {len(body)}", *fields) + body


def _forever(before: bytes, again: bytes) -> Answer:
    return itertools.chain([before], itertools.repeat(again))


def _drip(before: bytes, again: bytes) -> Answer:
    """A byte at a time, with a pause behind each."""
    return itertools.chain([before], (bytes([byte]) for byte in itertools.cycle(again)))


def _bomb(size: int) -> Answer:
    """Zeros in gzip's form: the same compressed block again and again."""
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = deflate.compress(bytes(BLOCK)) + deflate.flush(zlib.Z_FULL_FLUSH)
    yield _head("200 OK", "text/html", "Content-Encoding: gzip") + b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    yield from itertools.repeat(block * BLOCKS, size // BLOCK // BLOCKS)


def _redirect(rest: str) -> Answer:
    yield _head("302 Found", "text/html", f"Location: {unquote(rest)}", "Content-Length: 0")


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
    "gzip-10gb": lambda _: _bomb(10 * 2**30),
    "gzip-cut": lambda _: _whole(_GZIP[:-20], "text/html", "Content-Encoding: gzip"),
    "gzip-damaged": lambda _: _whole(b"\x1f\x8b" + PAGE, "text/html", "Content-Encoding: gzip"),
    "gzip-twice": lambda _: _whole(gzip.compress(_GZIP, mtime=0), "text/html", "Content-Encoding: gzip, gzip"),
    "brotli": lambda _: _whole(PAGE, "text/html", "Content-Encoding: br"),
    "endless-headers": lambda _: _forever(b"HTTP/1.1 200 OK\r\n", b"X-More: more\r\n" * 100),
    "endless-header": lambda _: _forever(b"HTTP/1.1 200 OK\r\nX-More: ", b"x" * 1000),
    "many-headers": lambda _: _whole(PAGE, "text/html", *["X: 1"] * 100_000),
    "some-headers": lambda _: _whole(PAGE, "text/html", *["X: 1"] * 300),
    "endless-continue": lambda _: _forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "drip-headers": lambda _: _drip(b"HTTP/1.1 200 OK\r\nX-More: ", b"x"),
    "drip-continue": lambda _: _drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drip-body": lambda _: _drip(_head(), b"<p>x"),
    "drip-chunks": lambda _: _drip(_CHUNKED, b"1\r\nx\r\n"),
    "silent": lambda _: itertools.repeat(b""),
    "endless-body": lambda _: _forever(_head(), b"<p>x" * 10_000),
    "endless-chunks": lambda _: _forever(_CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"),
    "tiny-chunks": lambda _: _forever(_CHUNKED, b"1\r\nx\r\n" * 1000),
    "endless-extension": lambda _: _forever(_CHUNKED + b"1;", b"x" * 1000),
    "endless-trailers": lambda _: _forever(_CHUNKED + b"0\r\n", b"X-More: more\r\n" * 100),
    "large-length": lambda _: _forever(_head("200 OK", "text/html", f"Content-Length: {10**13}"), b"x" * 10_000),
    "two-lengths": lambda _: iter([_head("200 OK", "text/html", "Content-Length: 3", "Content-Length: 4") + b"abcd"]),
    "half": lambda _: iter([_head("200 OK", "text/html", "Content-Length: 1000") + PAGE]),
    "half-chunk": lambda _: iter([_CHUNKED + b"1000\r\nabc"]),
    "reset": lambda _: iter(()),
    "garbage": lambda _: iter([b"\0\xff" * 1000]),
    "no-answer": lambda _: iter([b"+OK ready\r\n\r\n"]),
    "image": lambda _: _whole(b"\x89PNG", "image/png"),
    "untyped": lambda _: iter([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]),
    "status": lambda rest: iter([_head(f"{rest} Whatever", "text/html", "Content-Length: 0")]),
    "nested": lambda _: _whole(b"<b>" * 500_000 + b"deep"),
    "codec": lambda rest: _whole(b"caf\xe9", f"text/plain; charset={rest}"),
    "echo": lambda rest: _whole(unquote(rest).encode()),
    "cookie": lambda _: _whole(PAGE, "text/html", "Set-Cookie: a=b; Path=/", "WWW-Authenticate: Basic"),
    "redirect": _redirect,
    "hops": _hops,
    "loop": lambda _: _redirect("/loop"),
}


class FaultServer:
    """Serves `FAULTS` on a port of 127.0.0.1 while its context lasts; `/name/rest?query` is answered by `name`.

    `requests` are the heads of all requests so far.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._over = threading.Event()

    @property
    def host(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "FaultServer":
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)  # so that it sees its end
        self._accepting = start(self._accept, "a fault server")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._accepting.result()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                start(partial(self._serve, connection), "a fault server's answer")

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(10.0)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (data := connection.recv(2**16)):
                    return
                head += data
            self.requests.append(head.decode())
            self._answer(connection, head.split()[1].decode())

    def _answer(self, connection: socket.socket, target: str) -> None:
        name, _, rest = target[1:].partition("?")[0].partition("/")
        answer = FAULTS[name](rest) if name in FAULTS else FAULTS["status"]("404")
        for sent in answer:
            if self._over.is_set():
                return
            connection.sendall(sent)
            if len(sent) < 2:
                self._over.wait(0.02)
        if name == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
