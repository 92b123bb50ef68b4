"""The server on the loopback: what it sends, keeps and survives."""

import json
import socket
import urllib.request
from urllib.parse import urlsplit

import pytest

from turngym.tests.verify.search.loopback import RESET, Loopback, Request, found, whole


def send(url, data):
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), 5) as connection:
        connection.sendall(data)
        received = b""
        while more := connection.recv(2**16):
            received += more
        return received


def test_requests_are_answered_and_kept():
    with Loopback(lambda request, number: whole(b"%d %s" % (number, request.body))) as server:
        for number, body in enumerate((b"x" * 100_000, b"\xc3\xa9")):
            with urllib.request.urlopen(urllib.request.Request(server.url, body), timeout=5) as answer:
                assert answer.read() == b"%d %s" % (number, body)
    assert [len(request.body) for request in server.requests] == [100_000, 2]
    assert {"host", "content-length", "user-agent"} <= set(server.requests[0].fields)


def test_a_body_that_comes_late_is_waited_for():
    with Loopback(lambda request, number: whole(request.body)) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), 5) as connection:
            for part in (b"POST / HTTP/1.1\r\nContent-", b"Length: 4\r\n\r\n", b"ab", b"cd"):
                connection.sendall(part)
            assert connection.recv(1000).endswith(b"abcd")


def test_a_connection_can_be_broken_off():
    with Loopback(lambda request, number: [b"HTTP/1.1 ", RESET]) as server, pytest.raises(ConnectionResetError):
        for _ in range(3):  # what was sent may arrive before the end does
            send(server.url, b"GET / HTTP/1.1\r\n\r\n")


def test_a_client_that_leaves_is_no_matter():
    with Loopback(lambda request, number: whole(b"ok")) as server:
        address = urlsplit(server.url)
        socket.create_connection((address.hostname, address.port), 5).close()
        assert send(server.url, b"GET / HTTP/1.1\r\n\r\n").endswith(b"ok")
    assert len(server.requests) == 1
    with pytest.raises(OSError):
        send(server.url, b"")


def test_an_answer_of_search_r1_holds_a_document_for_each_query():
    request = Request("POST / HTTP/1.1\r\nA: b\r\nA: c", json.dumps({"queries": ["x", "y"]}).encode())
    assert request.fields == ("a", "a") and request.queries == ["x", "y"]
    assert json.loads(found(request, {"id": "1"})) == {"result": [[{"document": {"id": "1"}, "score": 1.0}]] * 2}
