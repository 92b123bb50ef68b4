"""The page of a run that goes on: what is new is sent once, and nothing to strangers."""

import gzip
import http.client
import json
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from turngym.tests.support.runs import write_run
from turngym.training.report import page
from turngym.training.report.page import serve


def ask(url, path="", **headers):
    """Return status, headers and body; without headers as a browser on this machine."""
    where = urlsplit(url)
    link = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    try:
        link.request(
            "GET", (where.path if not path.startswith("/") else "") + path, headers=headers
        )
        found = link.getresponse()
        return found.status, found.headers, found.read()
    finally:
        link.close()


def news(url, seen=0, steps=""):
    _, headers, body = ask(url, f"news?seen={seen}&steps={steps}")
    if headers["Content-Encoding"] == "gzip":
        body = gzip.decompress(body)
    return json.loads(body)


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", steps=4)


def test_what_is_new_is_sent_once(folder):
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:3]))
    with serve([folder]) as url:
        first = news(url)
        assert first["whole"] and first["runs"][0]["steps"] == [0, 1, 2] and first["wait"] >= 2
        assert set(first["runs"][0]["endings"]["step"]) == {
            1,
            2,
        }  # not of the step that is under way
        assert news(url, first["seen"], 2).keys() == {"wait"}
        metrics.write_text("".join(lines[:4]))
        then = news(url, first["seen"], 2)
        assert not then["whole"] and then["runs"][0]["steps"] == [3]
        assert set(then["runs"][0]["endings"]["step"]) == {3} and then["runs"][0]["journals"] == [3]
        metrics.write_text("".join(lines[:2]))  # taken up at an earlier checkpoint
        again = news(url, then["seen"], 3)
        assert again["whole"] and again["runs"][0]["steps"] == [0, 1]
        status, _, body = ask(url, "step?run=0&step=1")
        assert status == 200 and body


def test_the_page_may_ask_its_server_and_nobody_else(folder):
    with serve([folder]) as url:
        status, headers, _ = ask(url)
        assert (status, headers["Cache-Control"], headers["Content-Encoding"]) == (
            200,
            "no-store",
            "gzip",
        )
        assert url.startswith("http://127.0.0.1:")
        for path in ("/", "/favicon.ico", "/news", "/x/news"):
            assert ask(url, path)[0] == 404
        assert ask(url, Host="example.org:80")[0] == 421  # a name that somebody else points here
        assert ask(url, Origin="http://example.org")[0] == ask(url, Origin="null")[0] == 403
        assert ask(url, Host="localhost:1", Origin="http://localhost:1")[0] == 200
        assert ask(url, "no")[0] == 404
        assert ask(url, "step?run=7&step=1")[0] == ask(url, "step?run=x")[0] == 500


def test_a_name_that_is_allowed_is_answered(folder):
    with serve([folder], allow_hosts=["Box.example"]) as url:
        assert ask(url, Host="box.example")[0] == 200 and ask(url, Host="box.evil")[0] == 421


def connect(url, sent):
    where = urlsplit(url)
    connection = socket.create_connection((where.hostname, where.port), 60)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: ", b"GET"])
def test_a_client_that_lets_the_server_wait_is_left(folder, sent, monkeypatch):
    monkeypatch.setattr(page, "PATIENCE", 0.1)
    with serve([folder]) as url, connect(url, sent) as slow:
        assert slow.recv(1) == b""


def test_slow_clients_make_room_for_others(folder, monkeypatch):
    monkeypatch.setattr(page, "CONNECTIONS", 4)
    with serve([folder]) as url, ExitStack() as stack:
        slow = [stack.enter_context(connect(url, b"GET / HTTP/1.1\r\nX: ")) for _ in range(12)]
        assert ask(url)[0] == 200
        assert [each.recv(1) for each in slow[:9]] == [b""] * 9
