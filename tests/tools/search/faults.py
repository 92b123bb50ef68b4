"""A server on the loopback that answers in a way that a test gives, byte by byte: what a search client must survive.

An answer is an iterable of what is done: bytes are sent, a number is a pause in seconds, `RESET` breaks the connection.
Then the connection is closed.
"""

import gzip
import itertools
import json
import socket
import struct
import threading
import zlib
from contextlib import suppress

from turngym.tools.search import Fault
from turngym.tools.threads import start

RESET = object()
DRIP = 0.02  # seconds between two bytes
BLOCK = 2**20
GOOD = {"result": [[{"document": {"id": "7", "contents": '"Paris"\nA city.'}, "score": 1.5}]]}


def answer(body=b"", status="200 OK", *fields, length=None):
    """The bytes of an answer; `body` is JSON unless it is bytes."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *fields, "\r\n"]
    return "\r\n".join(lines).encode() + body


def head(*fields, status="200 OK"):
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "\r\n"]).encode()


def drip(text):
    """Endless: the text again and again, a byte at a time."""
    for byte in itertools.cycle(text):
        yield bytes([byte])
        yield DRIP


def bomb(form):
    """A gibibyte of zeros, compressed: the same blocks again and again, none of which needs what came before it."""
    packer = zlib.compressobj(9, wbits=31 if form == "gzip" else 15)
    first, block = (packer.compress(bytes(BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return [head(f"Content-Encoding: {form}"), first, *[block * 64] * 16]


PACKED = gzip.compress(json.dumps(GOOD).encode(), mtime=0)
CHUNKED = head("Transfer-Encoding: chunked")
SCORE = '{"result": [[{"document": {"contents": "a"}, "score": %s}]]}'
MALFORMED, CONNECT, STATUS, TOO_LARGE, TIMEOUT = (
    Fault.MALFORMED,
    Fault.CONNECT,
    Fault.STATUS,
    Fault.TOO_LARGE,
    Fault.TIMEOUT,
)
FAULTS = {
    "storm": (STATUS, lambda: [answer(b"overloaded", "503 Service Unavailable")]),
    "internal": (STATUS, lambda: [answer(b"", "500 Internal Server Error")]),
    "too many": (STATUS, lambda: [answer(b"", "429 Too Many Requests")]),
    "later": (STATUS, lambda: [answer(b"", "503 Service Unavailable", "Retry-After: 3600")]),
    "not found": (STATUS, lambda: [answer(b"<html>nothing here", "404 Not Found")]),
    "unprocessable": (STATUS, lambda: [answer({"detail": "topk"}, "422 Unprocessable Entity")]),
    "redirect loop": (STATUS, lambda: [answer(b"", "302 Found", "Location: /retrieve")]),
    "redirect elsewhere": (STATUS, lambda: [answer(b"", "307 Temporary Redirect", "Location: http://192.0.2.1/")]),
    "slow head": (TIMEOUT, lambda: itertools.chain([b"HTTP/1.1 200 OK\r\nX-Slow: "], drip(b"x"))),
    "slow continue": (TIMEOUT, lambda: drip(b"HTTP/1.1 100 Continue\r\n\r\n")),
    "slow body": (TIMEOUT, lambda: itertools.chain([head("Content-Length: 1000000")], drip(b" "))),
    "slow chunks": (TIMEOUT, lambda: itertools.chain([CHUNKED], drip(b"1\r\n \r\n"))),
    "slow error": (STATUS, lambda: itertools.chain([head("Content-Length: 9999", status="500 Oh")], drip(b"x"))),
    "silent": (TIMEOUT, lambda: [60.0]),
    "silent body": (TIMEOUT, lambda: [head("Content-Length: 10"), 60.0]),
    "huge": (TOO_LARGE, lambda: itertools.chain([head()], itertools.repeat(b" " * BLOCK, 1000))),
    "huge chunks": (TOO_LARGE, lambda: itertools.chain([CHUNKED], itertools.repeat(b"10000\r\n%b\r\n" % bytes(2**16)))),
    "huge length": (TOO_LARGE, lambda: [head("Content-Length: 10000000000000"), b"x"]),
    "gzip bomb": (TOO_LARGE, lambda: bomb("gzip")),
    "deflate bomb": (MALFORMED, lambda: bomb("deflate")),
    "gzip twice": (MALFORMED, lambda: [answer(gzip.compress(PACKED), "200 OK", "Content-Encoding: gzip, gzip")]),
    "brotli": (MALFORMED, lambda: [answer(GOOD, "200 OK", "Content-Encoding: br")]),
    "gzip cut": (MALFORMED, lambda: [answer(PACKED[:-9], "200 OK", "Content-Encoding: gzip")]),
    "gzip damaged": (MALFORMED, lambda: [answer(GOOD, "200 OK", "Content-Encoding: gzip")]),
    "short": (CONNECT, lambda: [answer(GOOD, length=1000)]),
    "long": (MALFORMED, lambda: [answer(GOOD, length=20)]),
    "reset": (CONNECT, lambda: [RESET]),
    "reset in head": (CONNECT, lambda: [b"HTTP/1.1 200 OK\r\nContent-", RESET]),
    "reset in body": (CONNECT, lambda: [answer(GOOD, length=1000), RESET]),
    "closed": (CONNECT, list),
    "garbage": (CONNECT, lambda: [b"\0\xff" * 1000]),
    "other protocol": (CONNECT, lambda: [b"-ERR unknown command\r\n"]),
    "chunk garbage": (CONNECT, lambda: [CHUNKED + b"zz\r\nabc\r\n"]),
    "chunk cut": (CONNECT, lambda: [CHUNKED + b"ff\r\nabc"]),
    "header flood": (CONNECT, lambda: itertools.chain([b"HTTP/1.1 200 OK\r\n"], itertools.repeat(b"X-A: b\r\n" * 99))),
    "endless header": (CONNECT, lambda: itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], itertools.repeat(b"x" * 999))),
    "two lengths": (CONNECT, lambda: [head("Content-Length: 3", "Content-Length: 4") + b"1234"]),
    "empty": (MALFORMED, lambda: [answer()]),
    "no content": (MALFORMED, lambda: [head(status="204 No Content")]),
    "html": (MALFORMED, lambda: [answer(b"<html>welcome</html>")]),
    "half": (MALFORMED, lambda: [answer(b'{"result": [[')]),
    "latin-1": (MALFORMED, lambda: [answer('{"result": "é"}'.encode("latin-1"))]),
    "utf-16": (MALFORMED, lambda: [answer(json.dumps(GOOD).encode("utf-16"))]),
    "deep": (MALFORMED, lambda: [answer(b"[" * 100_000)]),
    "NaN": (MALFORMED, lambda: [answer((SCORE % "NaN").encode())]),
    "infinity": (MALFORMED, lambda: [answer((SCORE % "-Infinity").encode())]),
    "overflow": (MALFORMED, lambda: [answer((SCORE % "1e999").encode())]),
    "long number": (MALFORMED, lambda: [answer((SCORE % ("9" * 5000)).encode())]),
}


class FaultServer:
    """Serves while its context lasts; `answers(n)` is the answer to its nth request, counted from 0.

    `requests` are the heads and bodies of all so far.
    """

    def __init__(self, answers):
        self._answers, self.requests, self._over = answers, [], threading.Event()
        self._lock = threading.Lock()

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = start(self._accept, "faults")
        return self

    def __exit__(self, *error):
        self._over.set()
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass  # so that it sees its end
        self._accepting.result()
        self._listener.close()

    def _accept(self):
        while not self._over.is_set():
            connection, _ = self._listener.accept()
            start(lambda connection=connection: self._serve(connection), "faults")

    def _serve(self, connection):
        with connection, suppress(OSError):
            connection.settimeout(20.0)
            request, body = b"", b""
            while b"\r\n\r\n" not in request:
                if not (data := connection.recv(2**16)):
                    return
                request += data
            request, _, body = request.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in request.split(b"\r\n")[1:])
            while len(body) < int(fields.get(b"content-length", 0)):
                body += connection.recv(2**16)
            with self._lock:
                number = len(self.requests)
                self.requests.append((request.decode(), body))
            for part in self._answers(number):
                if self._over.is_set() or part is RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if isinstance(part, float):
                    self._over.wait(part)
                else:
                    connection.sendall(part)
