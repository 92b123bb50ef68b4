"""A server on the loopback that answers as it is told, well or badly, and keeps what it was asked."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from turngym.tools.threads import start

PATIENCE = 10.0  # seconds that a request may take to arrive
RESET = None  # in an answer: the connection is broken off

Said = Iterable[bytes | None]


@dataclass(frozen=True)
class Request:
    """What was asked: all bytes up to the empty line, and those behind it."""

    head: str
    body: bytes

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the header fields, in small letters, as often as they came."""
        return tuple(line.partition(":")[0].lower() for line in self.head.split("\r\n")[1:] if line)

    @property
    def queries(self) -> list[str]:
        """The queries of a request in the form of Search-R1."""
        found: list[str] = json.loads(self.body)["queries"]
        return found


class Loopback:
    """Answers each request on a port of 127.0.0.1 by `answer`, which gets it and its number; one a connection."""

    def __init__(self, answer: Callable[[Request, int], Said]) -> None:
        self.answer, self.requests = answer, list[Request]()
        self._over, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> Loopback:
        """Begin to answer."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listener.settimeout(0.1)  # so that it sees its end
        self._accepting = start(self._accept, "a loopback server")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Answer no more."""
        self._over.set()
        self._accepting.result()
        self._listener.close()

    @property
    def url(self) -> str:
        """Where it is, up to the port."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                start(partial(self._serve, connection), "a loopback server's answer")

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE)
            request = _read(connection)
            if request is None:
                return
            with self._lock:
                self.requests.append(request)
                number = len(self.requests) - 1
            for sent in self.answer(request, number):
                if sent is RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif self._over.is_set():
                    return
                else:
                    connection.sendall(sent)

    def pause(self, seconds: float) -> bytes:
        """Wait, unless the server is at its end; nothing to send."""
        self._over.wait(seconds)
        return b""


def _read(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(2**16)):
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    while length and len(body) < int(length[1]):
        if not (more := connection.recv(2**16)):
            return None
        body += more
    return Request(head.decode("latin-1"), body)


def whole(body: bytes, status: str = "200 OK", *fields: str) -> Iterator[bytes]:
    """Yield an answer that is complete."""
    lines = (f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *fields)
    yield "\r\n".join([*lines, "Connection: close", "\r\n"]).encode() + body


def found(request: Request, document: Mapping[str, Any]) -> bytes:
    """Return the answer of a Search-R1 server that finds one document for each query."""
    return json.dumps({"result": [[{"document": dict(document), "score": 1.0}] for _ in request.queries]}).encode()
