"""What a search server makes of bytes: of right and wrong HTTP, of strangers, of clients that are slow or many."""

import socket
from contextlib import ExitStack, suppress

import pytest

from turngym.tools.http import server_limits
from turngym.tools.http.server_limits import GUARANTEED_BYTES, MAX_HEAD_BYTES
from turngym.tools.search import serve as module
from turngym.tools.search.retriever import Passage
from turngym.tools.search.serve import MAX_BODY_BYTES, serve

BYTES = b'{"queries": ["a"]}'
POST = b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n"
SIZED = b"Content-Length: %d" % len(BYTES)
KEPT = POST % SIZED + BYTES
GOOD = POST % (SIZED + b"\r\nConnection: close") + BYTES
FOUND = b'"contents": "\\"Title\\"\\ntext"'


class One:
    name = "one passage"

    def search(self, query, k):
        return [Passage("1", "Title", "text")]

    def close(self):
        pass


@pytest.fixture(scope="module")
def url():
    with serve(One(), port=0, allow_hosts=["Box.example"]) as url:
        yield url


def connect(url):
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 20.0)


def read(connection, end=None):
    """What comes until `end`, or until the server closes the connection."""
    came = b""
    with suppress(ConnectionResetError):  # behind an answer to what was not read to its end
        while not (end and came.endswith(end)) and (data := connection.recv(2**16)):
            came += data
    return came


def raw(url, *sent):
    """All that comes back for some bytes on one connection."""
    with connect(url) as connection:
        with suppress(OSError):
            for part in sent:
                connection.sendall(part)
        return read(connection)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\0\xff\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.0\r\n\r\n", b"421"),
        (POST % b"Content-Length: 1\r\nContent-Length: 2", b"400"),
        (POST % b"Content-Length: -1", b"400"),
        (POST % b"Transfer-Encoding: chunked" + b"zz\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD_BYTES, b"400"),
        (POST % (SIZED + b"\r\nX: " + b"x" * MAX_HEAD_BYTES) + BYTES, b"431"),
        (POST % (SIZED + b"\r\nX: y" * (MAX_HEAD_BYTES // 4)) + BYTES, b"431"),
        (b"GET /health?" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
    ],
)
def test_what_is_no_http_is_refused_and_harms_nobody(url, sent, status):
    assert raw(url, sent).startswith(b"HTTP/1.1 " + status)
    assert raw(url, GOOD).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("order", [1, -1])
def test_a_request_of_two_lengths_is_refused_and_what_follows_is_not_run(url, order):
    both = b"\r\n".join([b"Content-Length: 5", b"Transfer-Encoding: chunked"][::order])
    came = raw(url, POST % both + b"0\r\n\r\n" + GOOD)
    assert came.startswith(b"HTTP/1.1 400 ") and came.count(b"HTTP/1.1") == 1 and FOUND not in came


@pytest.mark.parametrize(
    "host", [b"localhost:8000", b"LOCALHOST.", b"127.0.0.1:1", b"[::1]:8000", b"box.example"]
)
def test_names_of_this_machine_are_its_own(url, host):
    assert FOUND in raw(url, GOOD.replace(b"localhost", host))


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"localhost.evil.example",
        b"127.0.0.1.evil.example",
        b"10.0.0.1",
        b"evil@localhost",
        b"",
    ],
)
def test_another_host_is_refused(url, host):
    assert raw(url, GOOD.replace(b"localhost", host)).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "origin", [b"http://evil.example", b"null", b"http://localhost:3000", b"", b"localhost"]
)
def test_a_page_of_another_origin_is_refused(url, origin):
    came = raw(url, GOOD.replace(b"\r\n\r\n", b"\r\nOrigin: " + origin + b"\r\n\r\n", 1))
    assert came.startswith(b"HTTP/1.1 403 ") and b"access-control" not in came.lower()


def test_clients_may_send_as_they_like(url):
    assert raw(url, KEPT + GOOD).count(FOUND) == 2  # both at once
    assert raw(url, *(GOOD[i : i + 1] for i in range(len(GOOD)))).count(FOUND) == 1
    assert raw(url, KEPT.replace(b"HTTP/1.1", b"HTTP/1.0")).count(FOUND) == 1
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BYTES[:5], BYTES[5:], b""))
    assert (
        raw(url, POST % b"Transfer-Encoding: chunked\r\nConnection: close" + chunks).count(FOUND)
        == 1
    )


def test_a_client_may_wait_for_leave_to_send_its_body(url):
    with connect(url) as connection:
        connection.sendall(POST % (SIZED + b"\r\nExpect: 100-continue"))
        assert read(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        connection.sendall(BYTES)
        assert FOUND in read(connection, b"]]}")


def test_a_refusal_waits_for_the_body_that_is_refused(url):
    body = b" " * 4 * MAX_BODY_BYTES
    with connect(url) as connection:
        connection.sendall(POST % (b"Connection: close\r\nContent-Length: %d" % len(body)) + body)
        assert read(connection).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("length", [b"Content-Length: 99999999999", b"Transfer-Encoding: chunked"])
def test_a_body_without_end_is_refused_and_the_refusal_arrives(url, length):
    refused = raw(url, POST % length, *[b"10000\r\n%b\r\n" % (b" " * 2**16)] * 200)
    assert refused.startswith(b"HTTP/1.1 413 ") and b"send fewer queries" in refused


def test_a_connection_serves_one_request_after_another(url):
    with connect(url) as connection:
        for _ in range(3):
            connection.sendall(KEPT)
            assert FOUND in read(connection, b"]]}")


@pytest.mark.parametrize("sent", [b"", b"POST /retr", POST % SIZED, KEPT + b"GET"])
def test_a_client_that_lets_the_server_wait_is_left(url, sent, monkeypatch):
    monkeypatch.setattr(server_limits, "CLIENT_TIMEOUT", 0.1)
    with connect(url) as connection:
        connection.sendall(sent)
        read(connection)  # it ends


def test_slow_clients_make_room_for_others(url, monkeypatch):
    monkeypatch.setattr(server_limits, "CONNECTIONS", 3)
    monkeypatch.setattr(module, "CONNECTIONS", 3)
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(url)) for _ in range(12)]
        for connection in slow:
            with suppress(OSError):
                connection.sendall(POST % SIZED)
        assert FOUND in raw(url, GOOD)
        assert read(slow[0]) == b""


def test_large_requests_at_once_have_a_bound_and_small_ones_go_on(url, monkeypatch):
    large = POST % (b"Content-Length: %d" % (2 * GUARANTEED_BYTES)) + b" " * 2 * GUARANTEED_BYTES
    monkeypatch.setattr(module, "MAX_BYTES_OF_ALL_BODIES", 2 * GUARANTEED_BYTES - 1)
    assert raw(url, large).startswith(b"HTTP/1.1 503 ") and FOUND in raw(url, GOOD)
    monkeypatch.setattr(module, "MAX_BYTES_OF_ALL_BODIES", 2 * GUARANTEED_BYTES)
    assert raw(url, large).startswith(
        b"HTTP/1.1 400 "
    )  # nothing is held any more, and it is no JSON


class Many:
    """Finds passages of 200,000 bytes each."""

    name = "many passages"

    def search(self, query, k):
        return [Passage(str(i), "", "x" * 200_000) for i in range(k)]

    def close(self):
        pass


ASKED = b'{"queries": ["a", "b"], "topk": 50}'  # 20 million bytes, more than sockets hold
WIDE = POST % (b"Connection: close\r\nContent-Length: %d" % len(ASKED)) + ASKED


def slow_reader(url):
    """A client that asks for much and reads nothing; the server has begun to answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = url.removeprefix("http://").split(":")
    connection.settimeout(20.0)
    connection.connect((host, int(port)))
    connection.sendall(WIDE)
    assert connection.recv(15) == b"HTTP/1.1 200 OK"
    return connection


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES_OF_ALL_ANSWERS", 30_000_000)
    with serve(Many(), port=0) as url:
        yield url


@pytest.mark.slow
def test_answers_that_nobody_takes_have_a_bound_and_small_ones_go_on(wide):
    assert raw(wide, WIDE).startswith(b"HTTP/1.1 200 ")
    with slow_reader(wide) as slow:
        refused = raw(wide, WIDE)
        assert refused.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in refused
        assert b"answers that nobody took yet of more than 30000000 bytes" in refused
        assert raw(wide, GOOD).startswith(b"HTTP/1.1 200 ")
        while slow.recv(2**16):
            pass
    assert raw(wide, WIDE).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_take_its_answer_is_left_and_gives_back_what_it_held(
    wide, monkeypatch
):
    monkeypatch.setattr(server_limits, "CLIENT_TIMEOUT", 0.1)
    with slow_reader(wide) as slow:
        came = read(slow)
        assert len(came) < 20_000_000
        assert raw(wide, WIDE).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_a_client_that_leaves_gives_back_what_it_held(wide):
    for _ in range(5):
        slow_reader(wide).close()
    for _ in range(100):  # until the server has seen it
        if raw(wide, WIDE).startswith(b"HTTP/1.1 200 "):
            return
    raise AssertionError("the answers of clients that left are still counted")


def test_an_answer_that_could_never_be_held_says_what_to_do(wide, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES_OF_ALL_ANSWERS", 15_000_000)
    refused = raw(wide, WIDE)
    assert (
        refused.startswith(b"HTTP/1.1 422 ")
        and b"more than 15000000 bytes; ask for fewer passages" in refused
    )


def test_an_answer_in_parts_is_the_one_in_one_piece(wide):
    came = raw(wide, WIDE)
    passages = ", ".join(
        f'{{"id": "{i}", "contents": "\\"\\"\\n{"x" * 200_000}"}}' for i in range(50)
    )
    body = f'{{"result": [[{passages}], [{passages}]]}}'.encode()
    assert came.partition(b"\r\n\r\n")[2] == body and b"content-length: %d\r\n" % len(body) in came
