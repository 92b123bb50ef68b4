import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from turngym.tests.support.faults import RESET, FaultServer, Kept
from turngym.tests.tools.search.faults import GOOD, answer
from turngym.tools.http import client as module
from turngym.tools.http.client import JsonClient, normalize_address
from turngym.tools.http.failures import Fault, HttpFailure, Limits

FREE = "http://127.0.0.1:1"  # nobody listens there


@pytest.fixture
def open_client():
    """`open_client(url, …)` is a client that the end of the test closes."""
    made = []

    def open_client(url, path="/x", **settings):
        made.append(JsonClient(url, path, **settings))
        return made[-1]

    yield open_client
    for client in made:
        client.close()


def test_a_request_carries_json_and_nothing_of_the_environment(open_client, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, FREE)
    cookie = answer(GOOD, "200 OK", "Set-Cookie: a=b; Path=/")
    with FaultServer(lambda request: [cookie]) as server:
        client = open_client(f"{server.url}/", "/retrieve")
        for _ in range(2):
            assert client.post({"queries": ["é\ud800"]}).value == GOOD
    for request in server.requests:
        assert request.head.startswith("POST /retrieve HTTP/1.1\r\n")
        assert (
            "cookie" not in request.head.lower()
            and "content-type: application/json" in request.head.lower()
        )
        assert request.body == '{"queries": ["é?"]}'.encode()


def test_where_nobody_listens_is_said(open_client):
    client = open_client(FREE, limits=Limits(10.0, 1))
    for call in (client.check, lambda: client.post({})):
        with pytest.raises(HttpFailure, match="ConnectionRefusedError: ") as failed:
            call()
        assert failed.value.fault is Fault.CONNECT


@pytest.mark.parametrize(
    "status", ["200 OK", "400 Bad", "405 Method Not Allowed", "415 Type", "422 Field", "429 Wait"]
)
def test_a_probe_is_content_with_a_server_that_takes_requests(open_client, status):
    with FaultServer(lambda request: [answer(b"whatever", status)]) as server:
        open_client(server.url).check("?size=0")
    assert (
        server.requests[0].head.startswith("GET /x?size=0 HTTP/1.1\r\n")
        and len(server.requests) == 1
    )


@pytest.mark.parametrize(
    "status", ["401 Who", "403 No", "404 None", "407 Proxy", "500 Oh", "503 Busy", "302 Found"]
)
def test_a_probe_refuses_other_servers(open_client, status):
    with (
        FaultServer(lambda request: [answer(b"", status)]) as server,
        pytest.raises(HttpFailure) as failed,
    ):
        open_client(server.url).check()
    assert failed.value.fault is Fault.STATUS and status[:3] in str(failed.value)
    assert len(server.requests) == 1


def test_a_probe_of_a_silent_server_ends(open_client, monkeypatch):
    assert module.PROBE_TIMEOUT < 2.0
    monkeypatch.setattr(module, "PROBE_TIMEOUT", 0.2)
    with (
        FaultServer(lambda request: [60.0]) as server,
        pytest.raises(HttpFailure, match=r"within 0\.2 s"),
    ):
        open_client(server.url).check()


def test_a_secret_is_sent_and_never_shown(open_client):
    echo = [answer(b"you sent Bearer s3cret", "401 Unauthorized")]
    with FaultServer(lambda request: echo) as server:
        client = open_client(server.url, authorization="Bearer s3cret")
        with pytest.raises(HttpFailure) as failed:
            client.post({})
    assert "authorization: Bearer s3cret" in server.requests[0].head.replace(
        "Authorization", "authorization"
    )
    for text in (str(failed.value), repr(client), client.url):
        assert "cret" not in text


@pytest.mark.parametrize("secret", ["a\nb", "é", "a\0"])
def test_a_secret_that_no_header_can_carry_is_refused_unseen(secret):
    with pytest.raises(ValueError, match="no header can carry") as refused:
        JsonClient(FREE, "", authorization=f"Bearer {secret}")
    assert secret not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://host",
        "http://",
        "http:///x",
        "http://h/?q=1",
        "http://h/#a",
        "http://h:99999",
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError):
        JsonClient(url, "")


@pytest.mark.parametrize(
    "url",
    [
        "http://me:pass@host",
        "ftp://me:pass@host",
        "http://me:pass@:8000/@x",
        "http://me:pass@h:x",
        "http://me:pass@[::",
    ],
)
def test_an_address_that_is_refused_keeps_its_secret(url):
    with pytest.raises(ValueError, match=r"(ftp|http)://") as refused:
        JsonClient(url, "")
    assert "pass" not in str(refused.value)


def test_an_address_loses_its_last_slash():
    assert (
        normalize_address("http://h:1/a/") == "http://h:1/a"
        and normalize_address("https://[::1]:9") == "https://[::1]:9"
    )


def test_a_host_that_no_name_can_be_is_a_failure(open_client):
    client = open_client(f"http://{'a' * 70}.invalid", limits=Limits(10.0, 1))
    with pytest.raises(HttpFailure) as failed:
        client.post({})
    assert failed.value.fault is Fault.CONNECT


@pytest.mark.slow
def test_many_threads_share_a_client_and_its_connections(open_client):
    with FaultServer(lambda request: [0.05, answer(GOOD)]) as server:
        client = open_client(server.url)
        with ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(lambda n: client.post({"n": n}).value, range(400)))
    assert answers == [GOOD] * 400 and len(server.requests) == 400


def test_a_request_is_sent_again_where_a_reused_connection_breaks(open_client):
    answers = [Kept([answer(GOOD)]), [RESET], [answer(GOOD)]]
    with FaultServer(lambda request: answers[request.number]) as server:
        client = open_client(server.url, limits=Limits(20.0, 1))
        assert [client.post({}).value for _ in range(2)] == [GOOD] * 2
    assert len(server.requests) == 3


def test_close_breaks_off_what_is_under_way(open_client):
    with FaultServer(lambda request: [60.0]) as server, ThreadPoolExecutor(3) as pool:
        client = open_client(server.url, limits=Limits(60.0))
        failures = [pool.submit(client.post, {}) for _ in range(3)]
        while len(server.requests) < 3:
            pass
        client.close()
        client.close()
        for failure in failures:
            with pytest.raises(HttpFailure, match="closed meanwhile"):
                failure.result()
    with pytest.raises(HttpFailure, match="the client is closed") as failed:
        client.post({})
    assert failed.value.fault is Fault.CONNECT


def test_a_client_that_nobody_closes_leaves_no_thread():
    with FaultServer(lambda request: [answer(GOOD)]) as server:
        client = JsonClient(server.url, "")
        client.post({})
    thread, gone = client._loop_thread.thread, weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    thread.join(20.0)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own(open_client):
    with FaultServer(lambda request: [answer({"n": request.number})]) as server:
        client = open_client(server.url)
        assert client.post({}).value == {"n": 0}
        if not (child := os.fork()):
            status = 1
            try:
                status = 0 if client.post({}).value == {"n": 1} else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.post({}).value == {"n": 2}


def test_what_is_at_a_url_can_be_read(open_client):
    with FaultServer(lambda request: [answer(GOOD)]) as server:
        assert open_client(server.url).get().value == GOOD
    assert server.requests[0].head.startswith("GET /x HTTP/1.1\r\n")


def test_an_answer_whose_reading_takes_longer_than_the_deadline_is_none(open_client, monkeypatch):
    late = [0.0]
    monotonic = module.time.monotonic
    monkeypatch.setattr(module.time, "monotonic", lambda: monotonic() + late[0])
    monkeypatch.setattr(module, "parse", lambda data: late.__setitem__(0, 1000.0))
    with FaultServer(lambda request: [answer(GOOD)]) as server:
        with pytest.raises(
            HttpFailure, match="no answer within 20 s, its reading included"
        ) as failed:
            open_client(server.url, limits=Limits(20.0, 1)).post({})
        assert failed.value.fault is Fault.TIMEOUT
