import socket
from contextlib import suppress

import pytest

from turngym.tools.search import Passage
from turngym.tools.search.serve import BODY, HEAD, serve

BYTES = b'{"queries": ["a"]}'
POST = b"POST /retrieve HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n"
SIZED = b"Content-Length: %d" % len(BYTES)
GOOD = POST % SIZED + BYTES
FOUND = b'"contents": "\\"Title\\"\\ntext"'


class One:
    name = "one passage"

    def search(self, query, k):
        return [Passage("1", "Title", "text")]

    def close(self):
        pass


@pytest.fixture
def url():
    with serve(One(), port=0) as url:
        yield url


def connect(url):
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 20.0)


def raw(url, *sent):
    """All that comes back for some bytes on one connection."""
    with connect(url) as connection:
        with suppress(OSError):
            for part in sent:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        came = b""
        with suppress(ConnectionResetError):  # behind an answer to what was not read to its end
            while data := connection.recv(2**16):
                came += data
        return came


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\0\xff\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"POST /retrieve HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"POST /retrieve HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"POST /retrieve HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HEAD, b"431"),
    ],
)
def test_what_is_no_http_is_refused_and_harms_nobody(url, sent, status):
    assert raw(url, sent).startswith(b"HTTP/1.1 " + status)
    assert raw(url, GOOD).startswith(b"HTTP/1.1 200 ")


def test_clients_may_send_as_they_like(url):
    assert raw(url, GOOD + GOOD).count(FOUND) == 2  # both at once
    assert raw(url, *(GOOD[i : i + 1] for i in range(len(GOOD)))).count(FOUND) == 1
    assert raw(url, GOOD.replace(b"HTTP/1.1", b"HTTP/1.0")).count(FOUND) == 1
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BYTES[:5], BYTES[5:], b""))
    assert raw(url, POST % b"Transfer-Encoding: chunked" + chunks).count(FOUND) == 1
    assert raw(url) == b""


def test_a_client_may_wait_for_leave_to_send_its_body(url):
    with connect(url) as connection:
        connection.sendall(POST % (SIZED + b"\r\nExpect: 100-continue"))
        assert connection.recv(2**16).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BYTES)
        assert FOUND in connection.recv(2**16)


def test_a_body_without_end_is_refused_and_the_refusal_arrives(url):
    refused = raw(url, POST % b"Content-Length: 99999999999", *[b" " * BODY] * 4)
    assert refused.startswith(b"HTTP/1.1 413 ") and b"send fewer queries" in refused


def test_a_connection_serves_one_request_after_another(url):
    with connect(url) as connection:
        for _ in range(3):
            connection.sendall(GOOD)
            assert FOUND in connection.recv(2**16)
