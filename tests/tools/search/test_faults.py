import gzip
import itertools
import socket
import threading
import zlib

import pytest

from turngym.tests.support.faults import (
    BLOCK,
    BLOCKS,
    FAULTS,
    PAGE,
    PAUSE,
    RESET,
    FaultServer,
    bomb,
    drip,
)


@pytest.fixture(scope="module")
def server():
    with FaultServer() as server:
        yield server


def ask(server, path, most=2**16):
    """The first bytes of an answer."""
    host, port = server.host.split(":")
    with socket.create_connection((host, int(port)), timeout=10.0) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b""
        while len(answer) < most and (data := connection.recv(2**16)):
            answer += data
    return answer


def test_each_path_has_its_answer_and_requests_are_kept(server):
    head, _, body = ask(server, "/page?query").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and body == PAGE
    request = server.requests[-1]
    assert (request.head, request.body) == ("GET /page?query HTTP/1.1\r\nHost: x", b"")
    assert request.target == "/page?query" and request.number == len(server.requests) - 1
    assert gzip.decompress(ask(server, "/gzip").partition(b"\r\n\r\n")[2]) == PAGE * 100
    assert ask(server, "/nowhere").startswith(b"HTTP/1.1 404 ")
    assert b"\r\nLocation: http://a/b?c\r\n" in ask(server, "/redirect/http://a/b%3fc")
    assert b"\r\nLocation: /hops/1\r\n" in ask(server, "/hops/2") and PAGE in ask(server, "/hops/0")
    with pytest.raises(ConnectionResetError):
        ask(server, "/reset")


@pytest.mark.parametrize("name", FAULTS)
def test_every_answer_is_the_same_each_time(name):
    rest = {"hops": "2", "codec": "utf-8", "status": "500"}.get(name, "a%20b")
    first, second = ([*itertools.islice(FAULTS[name](rest), 20)] for _ in range(2))
    assert first == second and (name == "reset") == (first == [RESET])
    if name not in ("silent", "garbage", "no-answer", "reset", "endless-continue", "drip-continue"):
        assert first[0].startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("/status/503/x", b"HTTP/1.1 503/x Whatever\r\n"),
        ("/codec/latin-1", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=latin-1\r\n"),
        ("/image", b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"),
        (
            "/cookie",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 77\r\nSet-Cookie: a=b; Path=/\r\n",
        ),
        (
            "/two-lengths",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
        ),
        ("/untyped", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"),
        (
            "/many-headers",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 77\r\nX: 1\r\nX: 1\r\n",
        ),
        ("/garbage", b"\0\xff\0\xff"),
        ("/endless-continue", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_heads_are_what_the_paths_say(server, path, head):
    assert ask(server, path, len(head)).startswith(head)


def test_what_breaks_off_is_shorter_than_it_says(server):
    head, _, body = ask(server, "/half").partition(b"\r\n\r\n")
    assert b"Content-Length: 1000" in head and body == PAGE
    with pytest.raises(EOFError):
        gzip.decompress(ask(server, "/gzip-cut").partition(b"\r\n\r\n")[2])


def test_a_client_that_leaves_is_no_trouble(server):
    host, port = server.host.split(":")
    for request in (b"", b"GET /page", b"GET /endless-body HTTP/1.1\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10.0) as connection:
            connection.sendall(request)
    assert PAGE in ask(server, "/page")


def test_answers_without_an_end_have_none(server):
    for path in (
        "endless-body",
        "endless-headers",
        "endless-header",
        "endless-chunks",
        "tiny-chunks",
        "gzip-10gb",
    ):
        assert len(ask(server, f"/{path}", 10**6)) >= 10**6
    assert 1 <= len(ask(server, "/drip-headers", 1)) <= 100


@pytest.mark.parametrize(("form", "wbits"), [("gzip", 31), ("deflate", 15)])
def test_a_bomb_is_zeros_in_a_valid_form(form, wbits):
    head, block = itertools.islice(bomb(form, 10 * 2**30), 2)
    data = head.partition(b"\r\n\r\n")[2] + block
    assert len(data) < 2**17 and zlib.decompressobj(wbits).decompress(data) == bytes(BLOCKS * BLOCK)
    assert sum(1 for _ in bomb(form, 10 * 2**30)) == 1 + 10 * 2**30 // (BLOCKS * BLOCK)


def test_what_drips_pauses_behind_each_byte():
    assert [*itertools.islice(drip(b"HTTP", b"xy"), 7)] == [
        b"HTTP",
        b"x",
        PAUSE,
        b"y",
        PAUSE,
        b"x",
        PAUSE,
    ]


def test_answers_are_what_a_test_says_of_each_request():
    def answer(request):
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        yield 0.001
        yield b"%d %s %s" % (request.number, request.target.encode(), request.body)
        yield from [RESET] * (request.number == 2)

    with FaultServer(answer) as server:
        host, port = server.host.split(":")
        for number, parts in enumerate([(b"ab", b"cd"), (b"abcd",)]):
            with socket.create_connection((host, int(port)), timeout=10.0) as connection:
                for part in (b"POST /x HTTP/1.1\r\nContent-", b"length:4\r\n\r\n", *parts):
                    connection.sendall(part)
                said = b"".join(iter(lambda connection=connection: connection.recv(2**16), b""))
            assert said.endswith(b"\r\n\r\n%d /x abcd" % number)
        with pytest.raises(ConnectionResetError):
            ask(server, "/")


def test_it_is_on_the_loopback_alone_and_ends_with_its_context():
    asked = threading.Event()

    def silence(request):
        asked.set()
        return [60.0]

    with FaultServer(silence) as server:
        assert server.host.startswith("127.0.0.1:")
        port = int(server.host.split(":")[1])
        silent = socket.create_connection(("127.0.0.1", port), timeout=10.0)
        silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert asked.wait(10)
    with silent:
        assert silent.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=10.0)
