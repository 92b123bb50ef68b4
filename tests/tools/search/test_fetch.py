import os
import socket
import ssl
import threading
import time

import httpcore
import pytest

from turngym.tests.support.faults import FaultServer
from turngym.tools.search.fetch import (
    MAX_ADDRESSES,
    MAX_HEAD_BYTES,
    MAX_REDIRECTS,
    LimitedStream,
    Page,
    PageUnreadable,
    PinnedBackend,
    VisitDeadline,
    _read_body,
    fetch,
)
from turngym.tools.search.url_guard import Blocked, Guard
from turngym.tools.subprocesses.deadlines import Overdue

PUBLIC = "93.184.215.14"
# Of page.example.com, signed by itself, for a hundred years; known to these tests alone.
CERTIFICATE = (
    "MIIBhjCCASygAwIBAgIBATAKBggqhkjOPQQDAjAbMRkwFwYDVQQDDBBwYWdlLmV4YW1wbGUuY29tMCAXDTIwMDEwMTAwMDAwMFoY"
    "DzIxMjAwMTAxMDAwMDAwWjAbMRkwFwYDVQQDDBBwYWdlLmV4YW1wbGUuY29tMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE97uD"
    "T5rKOHlZSK2mu89d7OZ4RjweGis9pcNfdK766HF5sJfTBdxifkE0QVzE6JOHaa3axPv+PR0Ir5fNRK1egKNfMF0wGwYDVR0RBBQw"
    "EoIQcGFnZS5leGFtcGxlLmNvbTAPBgNVHRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwIChDAdBgNVHQ4EFgQUqU59AG83ADQ1P0pO"
    "VAoKY2c3ZHAwCgYIKoZIzj0EAwIDSAAwRQIgPvYm7fPFiW2e1U5wPo+WgqKCA5DNybkRBuwWzrt1IAICIQC94I79umxHEA1pThg4"
    "74upW/uSXHtQBAMoene0sAMk3A=="
)
KEY = (
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgKzJXXaOlNEhYEwTcPhkEiEuqILLJA23HCGOLHBJvneihRANCAAT3"
    "u4NPmso4eVlIraa7z13s5nhGPB4aKz2lw190rvrocXmwl9MF3GJ+QTRBXMTok4dprdrE+/49HQivl81ErV6A"
)


@pytest.fixture(scope="module")
def server():
    with FaultServer() as server:
        yield server


@pytest.fixture
def get(server):
    """`get(path)` is the page that the fault server has there."""
    guard = Guard([server.host])
    return lambda path, seconds=20.0, size=2**20: fetch(
        f"http://{server.host}{path}", guard, seconds, size
    )


@pytest.fixture
def routed(server, monkeypatch):
    """All connections end at the fault server; their true goals are listed."""
    goals, connect = [], httpcore.SyncBackend.connect_tcp

    def route(backend, host, port, timeout=None, **options):
        goals.append((host, port))
        return connect(backend, "127.0.0.1", int(server.host.rpartition(":")[2]), timeout)

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", route)
    return goals


def answers(*addresses):
    """A resolver that gives another answer each time."""
    left = list(addresses)
    return lambda host, port: left.pop(0)


def test_a_page_comes_with_its_type_and_as_it_was_before_compression(get, server):
    assert get("/plain") == Page(
        f"http://{server.host}/plain", "text/plain", "ascii", b"one\r\n  two\x07"
    )
    assert (
        get("/gzip").body.startswith(b"<title>A page</title>")
        and get("/json").media_type == "application/ld+json"
    )


def test_a_connection_goes_to_the_checked_address_and_the_name_stays_in_the_request(server, routed):
    page = fetch(
        "http://Page.Example.com./page?q#f",
        Guard(resolve=answers([PUBLIC, "1.1.1.1"])),
        20.0,
        2**20,
    )
    assert page.url == "http://page.example.com/page?q" and routed == [(PUBLIC, 80)]
    head = server.requests[-1].head.split("\r\n")
    assert head[:2] == ["GET /page?q HTTP/1.1", "Host: page.example.com"]


def test_a_name_that_changes_its_address_is_checked_again_at_each_redirect(routed):
    for second in ("127.0.0.1", "169.254.169.254", "::1"):
        routed.clear()
        with pytest.raises(Blocked, match=r"page.example.com is not a public host"):
            fetch(
                "http://page.example.com/hops/3",
                Guard(resolve=answers([PUBLIC], [second])),
                20.0,
                2**20,
            )
        assert routed == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:8265/",
        "http://169.254.169.254/latest/meta-data/",
        "//localhost/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://user:pw@example.com/",
        "http://example.com:22/",
        "http://[",
        "\\\\127.0.0.1\\x",
    ],
)
def test_a_redirect_to_what_is_blocked_ends_there(routed, location):
    with pytest.raises(Blocked):
        fetch(
            f"http://example.com/redirect/{location}",
            Guard(resolve=lambda host, port: [PUBLIC]),
            20.0,
            2**20,
        )
    assert routed == [(PUBLIC, 80)] if "\\" not in location else not routed


def test_redirects_are_followed_so_many_times(get, server):
    assert get(f"/hops/{MAX_REDIRECTS}").url.endswith("/hops/0")
    before = len(server.requests)
    for path in (f"/hops/{MAX_REDIRECTS + 1}", "/loop", "/redirect/"):
        with pytest.raises(Blocked, match="redirects more than 5 times"):
            get(path)
    assert len(server.requests) - before == 3 * (MAX_REDIRECTS + 1)


def test_nothing_is_sent_that_was_not_asked_for(get, server, monkeypatch):
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.setenv(name, "http://user:secret@127.0.0.1:1")
    environment = dict(os.environ)
    get("/cookie")
    get(f"/redirect/http://{server.host}/cookie")
    names = {"host", "user-agent", "accept", "accept-encoding", "connection"}
    for head in (request.head for request in server.requests[-3:]):
        assert {line.partition(":")[0].lower() for line in head.rstrip().split("\r\n")[1:]} == names
    assert dict(os.environ) == environment


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/gzip-10gb", "larger than 1048576 bytes"),
        ("/endless-body", "larger than 1048576 bytes"),
        ("/endless-chunks", "larger than 1048576 bytes"),
        ("/large-length", "larger than 1048576 bytes"),
        ("/tiny-chunks", "too large"),
        ("/endless-trailers", "too large|broke off"),
        ("/endless-extension", "too large|broke off"),
        ("/endless-headers", "too large|broke off"),
        ("/endless-header", "too large|broke off"),
        ("/endless-continue", "too large"),
        ("/many-headers", "too large|broke off"),
        ("/some-headers", "head is too large"),
        ("/gzip-cut", "compressed bytes that end too soon"),
        ("/gzip-damaged", "damaged compressed bytes"),
        ("/gzip-twice", "encoding 'gzip, gzip'"),
        ("/brotli", "encoding 'br'"),
        ("/half", "broke off"),
        ("/half-chunk", "broke off"),
        ("/reset", "broke off"),
        ("/two-lengths", "broke off"),
        ("/garbage", "broke off"),
        ("/no-answer", "broke off"),
        ("/image", "its type is 'image/png'"),
        ("/untyped", "its type is ''"),
        ("/status/404", "answered 404 Not Found"),
        ("/status/599", "answered 599$"),
        ("/status/300", "answered 300 Multiple Choices"),
    ],
)
def test_what_is_too_large_or_no_page_is_not_read(get, path, problem):
    with pytest.raises(PageUnreadable, match=problem):
        get(path, size=2**16 if "tiny" in path else 2**20)  # a chunk takes as long as a page


def test_a_page_may_be_just_as_large_as_is_allowed(get):
    size = len(get("/gzip").body)
    assert len(get("/gzip", size=size).body) == size
    with pytest.raises(PageUnreadable, match="larger than"):
        get("/gzip", size=size - 1)


@pytest.mark.parametrize(
    "path", ["silent", "drip-headers", "drip-continue", "drip-body", "drip-chunks"]
)
def test_a_server_that_never_ends_is_left(get, path):
    with pytest.raises(Overdue):
        get(f"/{path}", seconds=0.15)


def test_a_slow_lookup_and_a_host_that_is_not_there_end(server):
    with pytest.raises(Overdue):
        fetch("http://example.com/", Guard(resolve=lambda host, port: time.sleep(1.0)), 0.05, 2**20)
    with pytest.raises(PageUnreadable, match=r"there is no host example.com"):
        fetch("http://example.com/", Guard(resolve=lambda host, port: []), 20.0, 2**20)
    with (
        socket.socket() as silent,
        pytest.raises(PageUnreadable, match=r"^127.0.0.1 cannot be reached$"),
    ):
        silent.bind(("127.0.0.1", 0))  # held, so that nobody else listens there
        port = silent.getsockname()[1]
        fetch(f"http://127.0.0.1:{port}/", Guard([f"127.0.0.1:{port}"]), 20.0, 2**20)


def test_other_addresses_are_tried_where_the_first_take_no_connection(server, monkeypatch):
    tried, connect = [], httpcore.SyncBackend.connect_tcp

    def some(backend, host, port, timeout=None, **options):
        tried.append((host, timeout))
        if len(tried) < 3:
            raise (httpcore.ConnectError, httpcore.ConnectTimeout)[len(tried) - 1]
        return connect(backend, host, port, timeout)

    port = int(server.host.rpartition(":")[2])
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", some)
    stream = PinnedBackend(("1.1.1.1", "1.1.1.2", "127.0.0.1"), VisitDeadline(30.0)).connect_tcp(
        "elsewhere", port
    )
    stream.close()
    assert [host for host, _ in tried] == ["1.1.1.1", "1.1.1.2", "127.0.0.1"]
    assert all(
        timeout <= 30.0 / share for (_, timeout), share in zip(tried, (3, 2, 1), strict=True)
    )
    tried[:] = []
    monkeypatch.setattr(
        httpcore.SyncBackend, "connect_tcp", lambda *address: tried.append(address) or refuse()
    )
    with pytest.raises(httpcore.ConnectError):
        PinnedBackend(("1.1.1.1",) * 9, VisitDeadline(30.0)).connect_tcp("elsewhere", port)
    assert len(tried) == MAX_ADDRESSES


def refuse():
    raise httpcore.ConnectError


def test_a_wire_takes_its_waits_from_the_clock_and_counts_what_comes():
    near, far = socket.socketpair()
    with near, far:
        wire = LimitedStream(httpcore._backends.sync.SyncStream(near), VisitDeadline(30.0))
        far.sendall(b"x" * MAX_HEAD_BYTES)
        while wire.readable_bytes:
            wire.read(2**16, timeout=None)
            assert 0 < near.gettimeout() <= 30.0
        with pytest.raises(PageUnreadable, match="too large"):
            wire.read(1)
        assert wire.get_extra_info("socket") is near
        wire.write(b"y", timeout=1000.0)
        assert far.recv(9) == b"y" and near.gettimeout() <= 30.0
        ended = LimitedStream(httpcore._backends.sync.SyncStream(near), VisitDeadline(0.0))
        for use in (
            lambda: ended.read(1),
            lambda: ended.write(b"x"),
            lambda: ended.start_tls(ssl.create_default_context()),
        ):
            with pytest.raises(Overdue):
                use()
        wire.close()
        assert near.fileno() < 0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    kinds = {"CERTIFICATE": CERTIFICATE, "PRIVATE KEY": KEY}
    path.write_text(
        "".join(
            f"-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n"
            for kind, text in kinds.items()
        )
    )
    return path


@pytest.fixture
def secure(certificate):
    """A server under TLS that redirects all to http; what clients asked it for: server names, and heads of requests."""
    asked, context = [], ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda connection, name, context: asked.append(name)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) as connection:
                    asked.append(connection.recv(2**16).decode())
                    body = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"
                    down = b"HTTP/1.1 302 Found\r\nLocation: http://page.example.com/\r\nContent-Length: 0\r\n\r\n"
                    connection.sendall(down if "/down" in asked[-1] else body)
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield asked, listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_tls_checks_the_name_in_the_url_though_the_address_is_pinned(secure, certificate):
    asked, port = secure
    tls = ssl.create_default_context(cafile=certificate)
    guard = Guard(
        [f"{name}.example.com:{port}" for name in ("page", "other")],
        lambda host, port: ["127.0.0.1"],
    )
    page = fetch(f"https://page.example.com:{port}/x", guard, 20.0, 2**20, tls)
    assert page.body == b"hi" and page.url == f"https://page.example.com:{port}/x"
    assert asked[0] == "page.example.com" and f"\r\nHost: page.example.com:{port}\r\n" in asked[1]
    for name, trust in (
        ("other", tls),
        ("page", None),
    ):  # a certificate of another host, and one by nobody
        with pytest.raises(PageUnreadable, match=f"^{name}.example.com cannot be reached$"):
            fetch(f"https://{name}.example.com:{port}/x", guard, 20.0, 2**20, trust)
    with pytest.raises(Blocked, match="from https to http"):
        fetch(f"https://page.example.com:{port}/down", guard, 20.0, 2**20, tls)


def test_a_connection_ends_with_its_page_even_where_tls_never_began(server, monkeypatch):
    def late(wire, *arguments, **options):
        opened.append(wire.get_extra_info("socket"))
        raise Overdue

    opened = []
    monkeypatch.setattr(LimitedStream, "start_tls", late)
    with pytest.raises(Overdue):
        fetch(f"https://{server.host}/page", Guard([server.host]), 20.0, 2**20)
    assert [connection.fileno() for connection in opened] == [-1]


def test_time_is_up_between_two_pieces_of_what_came_at_once():
    assert (
        _read_body(httpcore.Response(200, content=iter([b"a", b"b"])), "", VisitDeadline(30.0), 2)
        == b"ab"
    )
    with pytest.raises(Overdue):
        _read_body(httpcore.Response(200, content=iter([b"a", b"b"])), "", VisitDeadline(0.0), 2)


def test_a_handshake_that_never_ends_is_left(server):
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Overdue):
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        fetch(f"https://{host}/", Guard([host]), 0.15, 2**20)
