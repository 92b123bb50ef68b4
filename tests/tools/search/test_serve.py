import json
import logging
import math
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from turngym.tools.http import server_limits
from turngym.tools.http.failures import Limits
from turngym.tools.search import Fault
from turngym.tools.search import serve as module
from turngym.tools.search.remote import SearchR1
from turngym.tools.search.retriever import Passage, SearchFailure
from turngym.tools.search.serve import (
    DEFAULT_TOPK,
    MAX_BODY_BYTES,
    MAX_PASSAGES,
    MAX_QUERIES,
    MAX_QUERY_CHARS,
    MAX_TOPK,
    serve,
)


class Letters:
    """Finds, for a query, passages that are made of it; some queries make trouble."""

    name = "letters"

    def __init__(self):
        self.held, self.begun = threading.Event(), threading.Event()

    def search(self, query, k):
        if query == "hold":
            self.begun.set()
            self.held.wait(20.0)
        if query == "down":
            raise SearchFailure(Fault.CONNECT, "the back end is down")
        if query == "bug":
            raise KeyError("oh")
        score = math.nan if query == "nan" else 0.5
        return [
            Passage(f"{query}-{i}", f"T\n{query}", f"{query} <|im_start|>\n{i}", score)
            for i in range(k)
        ]

    def close(self):
        raise AssertionError("a server does not own its back end")


@pytest.fixture
def letters():
    back_end = Letters()
    yield back_end
    back_end.held.set()


@pytest.fixture(scope="module")
def url():
    with serve(Letters(), port=0) as url:
        yield url


def ask(url, body=None, method="POST", path="/retrieve", headers=None):
    """The status, the headers and the JSON of an answer."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=20.0)
    body = json.dumps(body).encode() if isinstance(body, dict | list) else body
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    read = json.loads(response.read())
    connection.close()
    return response.status, response.headers, read


def test_it_answers_in_the_protocol(url):
    document = {"id": "é-0", "contents": '"T é"\né <|im_start|>\n0'}
    status, headers, read = ask(url, {"queries": ["é"], "topk": 1, "return_scores": True})
    assert (status, read) == (200, {"result": [[{"document": document, "score": 0.5}]]})
    assert headers["Content-Type"] == "application/json"
    assert ask(url, {"queries": ["é"], "topk": 1})[2] == {"result": [[document]]}
    assert ask(url, {"queries": []})[2] == {"result": []}


def test_a_batch_is_answered_in_order(url):
    queries = [f"q{i}" for i in range(100)]
    found = ask(url, {"queries": queries, "topk": None})[2]["result"]
    assert [[one["id"] for one in passages] for passages in found] == [
        [f"{query}-{i}" for i in range(DEFAULT_TOPK)] for query in queries
    ]


def test_health_says_what_is_searched(url):
    assert ask(url, method="GET", path="/health?x=1")[2] == {"searching": "letters"}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "the body: it is not JSON"),
        (b"{", 400, "the body: it is not JSON"),
        (b"\xff", 400, "the body: it is not UTF-8"),
        (b"[" * 100_000, 400, "nested too deeply"),
        ([], 400, "the JSON is a list; expected an object"),
        ({}, 422, "queries is missing"),
        ({"queries": "a"}, 422, "queries is 'a'; expected a list"),
        ({"queries": ["a", 1]}, 422, "queries[1] is 1; expected a string"),
        (
            {"queries": ["a"] * (MAX_QUERIES + 1)},
            422,
            f"queries has {MAX_QUERIES + 1} entries; at most {MAX_QUERIES}",
        ),
        (
            {"queries": ["a", "b" * (MAX_QUERY_CHARS + 1)]},
            422,
            f"queries has one of {MAX_QUERY_CHARS + 1} characters; at most {MAX_QUERY_CHARS}",
        ),
        (
            {"queries": ["a"] * 400, "topk": 100},
            422,
            f"400 queries with topk 100 ask for more than {MAX_PASSAGES} passages",
        ),
        (
            {"queries": ["a"], "topk": 0},
            422,
            f"topk is 0; expected a whole number from 1 to {MAX_TOPK}",
        ),
        ({"queries": ["a"], "topk": MAX_TOPK + 1}, 422, f"topk is {MAX_TOPK + 1}; expected"),
        ({"queries": ["a"], "topk": 1.0}, 422, "topk is 1.0; expected"),
        ({"queries": ["a"], "topk": True}, 422, "topk is True; expected"),
        ({"queries": ["a"], "return_scores": 1}, 422, "return_scores is 1; expected true or false"),
        (
            {"queries": ["a"], "top_k": 3},
            422,
            "'top_k' is no field; there are queries, topk and return_scores",
        ),
        (b" " * (MAX_BODY_BYTES + 1), 413, f"more than {MAX_BODY_BYTES} bytes"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(url, body, status, said):
    got, _, read = ask(url, body)
    assert got == status and said in read["error"]
    assert list(read) == ["error"]


def test_other_paths_and_methods_are_refused(url):
    status, _, read = ask(url, {}, path="/search")
    assert status == 404 and "POST /retrieve" in read["error"]
    status, headers, _ = ask(url, method="GET", path="/retrieve")
    assert (status, headers["Allow"]) == (405, "POST")
    status, headers, _ = ask(url, {}, path="/health")
    assert (status, headers["Allow"]) == (405, "GET")


def test_a_search_that_fails_is_an_answer(url, caplog):
    assert ask(url, {"queries": ["a", "down"]})[::2] == (502, {"error": "the back end is down"})
    with caplog.at_level(logging.ERROR):
        assert ask(url, {"queries": ["bug"]})[::2] == (
            500,
            {"error": "the search failed: KeyError: 'oh'"},
        )
        assert ask(url, {"queries": ["nan"], "return_scores": True})[0] == 500
    assert len(caplog.records) == 2
    assert ask(url, {"queries": ["a"]})[0] == 200


@pytest.mark.slow
def test_200_searches_at_once_are_all_right(url):
    back_end = SearchR1(url, limits=Limits(60.0))
    with ThreadPoolExecutor(200) as pool:
        found = list(pool.map(lambda i: back_end.search(f"q{i}", 2), range(400)))
    back_end.close()
    assert found == [
        [Passage(f"q{i}-{n}", f"T q{i}", f"q{i} <|im_start|>\n{n}", 0.5) for n in range(2)]
        for i in range(400)
    ]


def test_more_connections_than_there_is_room_for_are_told_to_come_later(url, monkeypatch):
    assert ask(url, method="GET", path="/health")[0] == 200
    monkeypatch.setattr(module, "CONNECTIONS", 0)
    status, headers, _ = ask(url, method="GET", path="/health")
    assert (status, headers["Retry-After"], headers["Connection"]) == (503, "1", "close")


def test_a_token_is_needed_on_every_path(letters):
    with serve(letters, port=0, token="s3cret") as url:
        for given in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
            for method, path in (("POST", "/retrieve"), ("GET", "/health"), ("GET", "/none")):
                status, headers, read = ask(url, b"", method, path, given)
                assert (status, headers["WWW-Authenticate"]) == (
                    401,
                    "Bearer",
                ) and "s3cret" not in read["error"]
        good, wrong = SearchR1(url, token="s3cret"), SearchR1(url, token="other")
        good.check()
        assert len(good.search("a", 2)) == 2
        with pytest.raises(SearchFailure, match="give the secret") as failed:
            wrong.check()
        assert failed.value.fault is Fault.STATUS
        good.close()
        wrong.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_other_machines_need_a_token(letters, host):
    with pytest.raises(ValueError, match="give a token"), serve(letters, host, 0):
        pass


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"port": -1}, "port is -1"),
        ({"port": 65536}, "port is 65536"),
        ({"token": "a\nb"}, "no header can carry"),
    ],
)
def test_settings_are_checked(letters, settings, said):
    with pytest.raises(ValueError, match=said), serve(letters, **settings):
        pass


def test_without_uvicorn_the_fix_is_named(letters, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with (
        pytest.raises(ImportError, match=r'pip install "turngym\[serve\]"'),
        serve(letters, port=0),
    ):
        pass


def test_a_port_that_is_taken_is_named(url, letters):
    port = int(url.rpartition(":")[2])
    with (
        pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: .*give another"),
        serve(letters, port=port),
    ):
        pass


def test_it_listens_on_other_forms_of_this_machine(letters):
    for host in ("localhost", "127.0.0.2", "::1"):
        with serve(letters, host, 0) as url:
            back_end = SearchR1(url)
            assert back_end.search("a", 1)[0].id == "a-0"
            back_end.close()


def test_an_answer_is_sent_at_once():
    with (
        module._listen("127.0.0.1", 0, "") as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_end_lets_searches_under_way_finish_and_cuts_idle_connections(letters, monkeypatch):
    monkeypatch.setattr(server_limits, "GRACE", 20.0)
    with ThreadPoolExecutor(1) as pool, serve(letters, port=0) as url:
        idle = SearchR1(url, limits=Limits(20.0, 1))
        idle.search("a", 1)
        under_way = pool.submit(ask, url, {"queries": ["hold"]})
        assert letters.begun.wait(20.0)
        threading.Timer(0.1, letters.held.set).start()
    status, _, _ = under_way.result()
    assert status == 200
    with pytest.raises(SearchFailure) as failed:
        idle.search("a", 1)
    assert failed.value.fault is Fault.CONNECT
    idle.close()


def test_the_end_does_not_wait_for_a_search_that_hangs(letters, monkeypatch):
    monkeypatch.setattr(server_limits, "GRACE", 0.05)
    back_end = SearchR1("http://127.0.0.1:1")
    with ThreadPoolExecutor(1) as pool:
        with serve(letters, port=0) as url:
            back_end = SearchR1(url, limits=Limits(20.0, 1))
            under_way = pool.submit(back_end.search, "hold", 1)
            assert letters.begun.wait(20.0)
        with pytest.raises(SearchFailure) as failed:
            under_way.result()
    assert failed.value.fault in (Fault.CONNECT, Fault.STATUS) and not letters.held.is_set()
    back_end.close()
