"""What strangers send to the real server: refused before a search, in bounded memory, and the next one is answered."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

from turngym.tests.verify.rows import Row, Tally

ASKED = json.dumps({"queries": ["capital"], "topk": 1}).encode()
CROWD = 900  # connections of clients that send half a request of 1 MB
LARGE = b" " * 10**6
GROWTH = 256  # MiB that the server may be larger behind them
PATIENCE = 60.0  # seconds


def stranger_rows(url: str, pid: int) -> Iterator[Row]:
    """Yield the rows of requests that are refused, and of many large ones at once."""
    yield _refused(url)
    yield _crowded(url, pid)


def requests() -> dict[str, tuple[bytes, str]]:
    """Return requests with the statuses that refuse them, by name."""
    found = {
        "two lengths": (_post(ASKED, "Content-Length: 5", "Transfer-Encoding: chunked"), "400"),
        "two lengths, turned": (
            _post(ASKED, "Transfer-Encoding: chunked", "Content-Length: 5"),
            "400",
        ),
        "two other lengths": (_post(ASKED, "Content-Length: 5", "Content-Length: 6"), "400"),
        "two hosts": (_post(ASKED, "Host: localhost"), "400"),
        "a bad chunk": (_post(b"zz\r\n", "Transfer-Encoding: chunked"), "400"),
        "a blank before the colon": (_post(ASKED, "X : y"), "400"),
        "no host": (_post(ASKED, host=None), "400 421"),
        "a head of 100 kB": (_post(ASKED, f"X: {'a' * 100_000}"), "400 431"),
        "a head of 5,000 lines": (_post(ASKED, *["X: y"] * 5000), "400 431"),
        "a path of 100 kB": (_post(ASKED, path=f"/retrieve?{'a' * 100_000}"), "400 414 431"),
        "an endless head": (b"GET /health HTTP/1.1\r\nX: " + LARGE, "400 431"),
        "a large body": (_post(LARGE * 3), "413"),
        "a long query": (_queries(["capital " * 90_000]), "413 422"),
        "many queries": (_queries(["a"] * 100_000), "413 422"),
        "many passages": (_queries(["a"] * 4096, 100), "422"),
        "deep JSON": (_post(b"[" * 100_000), "400"),
        "another path": (_post(ASKED, path="/../../etc/passwd"), "404"),
        "another method": (_post(ASKED).replace(b"POST", b"PUT", 1), "405"),
    }
    for host in (
        "evil.example",
        "localhost.evil.example",
        "evil@localhost",
        "10.0.0.1",
        "169.254.169.254",
    ):
        found[f"host {host}"] = (_post(ASKED, host=host), "400 403 421")
    for origin in ("http://evil.example", "null", "http://localhost:3000", "file://"):
        found[f"origin {origin}"] = (
            _post(ASKED, f"Origin: {origin}", "Content-Type: text/plain"),
            "403",
        )
    found["rebound"] = (
        _post(ASKED, "Origin: http://evil.example", host="evil.example"),
        "400 403 421",
    )
    return found


def _post(
    body: bytes, *lines: str, path: str = "/retrieve", host: str | None = "localhost"
) -> bytes:
    framed = any(line.startswith(("Content-Length", "Transfer-Encoding")) for line in lines)
    lengths = [] if framed else [f"Content-Length: {len(body)}"]
    hosts = [] if host is None else [f"Host: {host}"]
    head = [f"POST {path} HTTP/1.1", *hosts, *lines, *lengths, "Connection: close", "", ""]
    return "\r\n".join(head).encode() + body


def _queries(queries: list[str], topk: int = 1) -> bytes:
    return _post(json.dumps({"queries": queries, "topk": topk}).encode())


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), PATIENCE)


def _ask(url: str, sent: bytes) -> bytes:
    with _connect(url) as connection:
        came = b""
        with suppress(OSError):
            connection.sendall(sent)
        with suppress(OSError):
            while data := connection.recv(2**16):
                came += data
        return came


def _refused(url: str) -> Row:
    """Count the requests that are refused, have no second request run, and leave the server well."""
    tally = Tally("requests that no client of ours sends are refused, and the next one is answered")
    for name, (sent, statuses) in requests().items():
        came = _ask(url, sent + _post(ASKED))
        good = came[:12].decode("latin-1") in {f"HTTP/1.1 {status}" for status in statuses.split()}
        once = came.count(b"HTTP/1.1") == 1 and b'"result"' not in came
        next_ = _ask(url, _post(ASKED)).startswith(b"HTTP/1.1 200 ")
        tally.add(name, "" if good and once and next_ else f"answered {came[:40]!r}")
    return tally.row()


def _crowded(url: str, pid: int) -> Row:
    """Count the clients answered while many others send half of a large request, and how much memory that takes."""
    tally, before = (
        Tally("clients are answered amid slow ones with large requests, in bounded memory"),
        _resident(pid),
    )
    for turn in range(3):
        with ExitStack() as stack:
            for _ in range(CROWD):
                slow = stack.enter_context(_connect(url))
                with suppress(OSError):
                    slow.sendall(_post(b"", "Content-Length: 1040000") + LARGE[: 2**16])
            grown = _resident(pid) - before
            answered = _ask(url, _post(ASKED)).startswith(b"HTTP/1.1 200 ")
        wrong = "" if answered else "not answered"
        tally.add(f"turn {turn + 1}", wrong or (f"{grown} MiB more" if grown > GROWTH else ""))
    return tally.row()


def _resident(pid: int) -> int:
    """Return the resident size of a process in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20
