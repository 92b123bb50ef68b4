"""Answers of a search server, byte by byte: what a client must survive, and the failure that each is to be."""

import gzip
import itertools
import json

from turngym.tests.support.faults import BLOCK, RESET, bomb, drip, forever, head
from turngym.tools.search import Fault

GOOD = {"result": [[{"document": {"id": "7", "contents": '"Paris"\nA city.'}, "score": 1.5}]]}


def answer(body=b"", status="200 OK", *fields, length=None):
    """The bytes of an answer; `body` is JSON unless it is bytes."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (
        head(status, f"Content-Length: {len(body) if length is None else length}", *fields) + body
    )


PACKED = gzip.compress(json.dumps(GOOD).encode(), mtime=0)
CHUNKED = head("200 OK", "Transfer-Encoding: chunked")
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
    "redirect elsewhere": (
        STATUS,
        lambda: [answer(b"", "307 Temporary Redirect", "Location: http://192.0.2.1/")],
    ),
    "slow head": (TIMEOUT, lambda: drip(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x")),
    "slow continue": (TIMEOUT, lambda: drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "slow body": (TIMEOUT, lambda: drip(head("200 OK", "Content-Length: 1000000"), b" ")),
    "slow chunks": (TIMEOUT, lambda: drip(CHUNKED, b"1\r\n \r\n")),
    "slow error": (STATUS, lambda: drip(head("500 Oh", "Content-Length: 9999"), b"x")),
    "silent": (TIMEOUT, lambda: [60.0]),
    "silent body": (TIMEOUT, lambda: [head("200 OK", "Content-Length: 10"), 60.0]),
    "huge": (TOO_LARGE, lambda: itertools.chain([head()], itertools.repeat(b" " * BLOCK, 1000))),
    "huge chunks": (TOO_LARGE, lambda: forever(CHUNKED, b"10000\r\n%b\r\n" % bytes(2**16))),
    "huge length": (TOO_LARGE, lambda: [head("200 OK", "Content-Length: 10000000000000"), b"x"]),
    "gzip bomb": (TOO_LARGE, lambda: bomb("gzip", 2**30)),
    "deflate bomb": (MALFORMED, lambda: bomb("deflate", 2**30)),
    "gzip twice": (
        MALFORMED,
        lambda: [answer(gzip.compress(PACKED), "200 OK", "Content-Encoding: gzip, gzip")],
    ),
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
    "header flood": (CONNECT, lambda: forever(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 99)),
    "endless header": (CONNECT, lambda: forever(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 999)),
    "two lengths": (
        CONNECT,
        lambda: [head("200 OK", "Content-Length: 3", "Content-Length: 4") + b"1234"],
    ),
    "empty": (MALFORMED, lambda: [answer()]),
    "no content": (MALFORMED, lambda: [head("204 No Content")]),
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
