import asyncio
import gzip
import itertools
import json
import time
import tracemalloc
from email.utils import formatdate

import pytest

from turngym.tests.support.faults import FaultServer, head
from turngym.tests.tools.search.faults import FAULTS, GOOD, PACKED, answer
from turngym.tools.http import client as module
from turngym.tools.http.client import JsonClient, _parse_retry_after, send_with_retries
from turngym.tools.http.failures import Fault, HttpFailure, Limits

SLOW = ("slow head", "slow continue", "slow body", "slow chunks", "silent", "silent body")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "BACKOFF", 0.01)


USUAL = Limits(20.0, 3, 2**20)


def ask(answers, limits=USUAL):
    """What a client makes of a server whose answer to the nth request is `answers(n)`, and the server."""
    with FaultServer(lambda request: answers(request.number)) as server:
        client = JsonClient(server.url, "/x", limits=limits)
        try:
            return client.post({"a": 1}).value, server
        except HttpFailure as failure:
            return failure, server
        finally:
            client.close()


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("overflow", *SLOW)])
def test_each_fault_is_a_typed_failure(name):
    fault, made = FAULTS[name]
    failure, server = ask(lambda n: made())
    assert isinstance(failure, HttpFailure) and failure.fault is fault, failure
    is_retried = fault is Fault.CONNECT or name in (
        "storm",
        "internal",
        "too many",
        "slow error",
    )
    assert len(server.requests) == (3 if is_retried else 1)


@pytest.mark.parametrize("name", SLOW)
def test_a_deadline_holds_however_the_bytes_drip(name):
    failure, server = ask(lambda n: FAULTS[name][1](), Limits(0.3))
    assert failure.fault is Fault.TIMEOUT and "within 0.3 s" in str(failure)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "name", ["huge", "huge chunks", "gzip bomb", "deflate bomb", "header flood", "slow body"]
)
def test_no_answer_takes_more_memory_than_allowed(name):
    tracemalloc.start()
    try:
        failure, _ = ask(lambda n: FAULTS[name][1](), Limits(0.5, 1, 2**18))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(failure, HttpFailure)
    assert peak < 2**24  # the server's own part: some blocks of a mebibyte


@pytest.mark.parametrize(
    "first", ["storm", "too many", "reset", "reset in body", "short", "closed", "garbage"]
)
def test_what_may_pass_is_tried_again(first):
    value, server = ask(lambda n: FAULTS[first][1]() if n < 2 else [answer(GOOD)])
    assert value == GOOD
    assert len(server.requests) == 3
    assert {request.body for request in server.requests} == {b'{"a": 1}'}


def persisted(monkeypatch, waits, limits):
    """The pauses of a request whose tries fail, one for each of `waits`, before it succeeds."""
    pauses, left = [], iter(waits)

    async def sleep(seconds):
        pauses.append(seconds)

    async def attempt():
        if (wait := next(left, None)) is None:
            return b"there"
        raise HttpFailure(Fault.STATUS, "it answered 503", _parse_retry_after(wait), 503)

    monkeypatch.setattr("turngym.tools.http.client.asyncio.sleep", sleep)
    assert asyncio.run(send_with_retries(attempt, limits)) == b"there"
    return pauses


def test_the_pauses_double(monkeypatch):
    assert persisted(monkeypatch, [""] * 4, Limits(20.0, 5)) == [
        module.BACKOFF * 2**n for n in range(4)
    ]


def test_a_wait_that_the_server_asks_for_is_kept(monkeypatch):
    soon = formatdate(time.time() + 9, usegmt=True)
    pauses = persisted(
        monkeypatch,
        ["3", soon, "soon", "9" * 5000, formatdate(0, usegmt=True), "-5"],
        Limits(60, 9),
    )
    assert pauses[0] == 3.0 and 5.0 < pauses[1] <= 9.0
    assert pauses[2:] == [module.BACKOFF * 2**n for n in range(2, 6)]


def test_a_server_that_asks_for_no_wait_is_asked_again_at_once():
    value, server = ask(
        lambda n: [answer(b"", "429 Oh", "Retry-After: 0")] if n < 1 else [answer(GOOD)]
    )
    assert value == GOOD and len(server.requests) >= 2


def test_no_wait_is_begun_that_would_outlast_the_deadline():
    failure, server = ask(lambda n: [answer(b"", "503 Oh", "Retry-After: 21")], Limits(20.0))
    assert failure.fault is Fault.STATUS and len(server.requests) == 1


def test_a_timeout_tells_what_came_before():
    failure, _ = ask(lambda n: [60.0] if n else [answer(b"busy", "503 Oh")], Limits(0.5))
    assert failure.fault is Fault.TIMEOUT and "before that: it answered 503: 'busy'" in str(failure)


def test_an_error_page_is_kept_whole_however_it_is_sent(monkeypatch):
    """The message shows its beginning; whatever breaks it off, the status is known."""
    monkeypatch.setattr(module, "PROBE_TIMEOUT", 0.2)
    page = json.dumps({"pad": "x" * 500, "error": "at its end"}).encode()
    whole = answer(page, "400 No")
    packed = gzip.compress(page)
    for parts in (
        [whole],
        [whole[:200], 0.01, whole[200:400], 0.01, whole[400:]],
        [answer(packed, "400 No", "Content-Encoding: gzip")],
    ):
        failure, _ = ask(lambda n, parts=parts: parts, Limits(20.0, 1))
        assert (failure.fault, failure.status, failure.page) == (Fault.STATUS, 400, page.decode())
        assert len(str(failure)) < 300
    for parts in (
        [whole[:300]],
        [whole[:300], 60.0],
        [answer(b"x" * 10**6, "400 No")],
        [answer(packed[:-9], "400 No", "Content-Encoding: gzip")],
    ):
        failure, _ = ask(lambda n, parts=parts: parts, Limits(20.0, 1))
        assert (failure.fault, failure.status) == (Fault.STATUS, 400) and 0 < len(
            failure.page
        ) <= module.MAX_ERROR_PAGE
    failure, _ = ask(lambda n: [answer(page, "400 No", "Content-Encoding: br")], Limits(20.0, 1))
    assert failure.status == 400 and "only gzip was offered" in failure.page


def test_good_answers_are_read_however_they_are_sent():
    whole = answer(GOOD)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (PACKED[:7], PACKED[7:], b""))
    for parts in (
        [whole[:30], 0.01, whole[30:50], 0.01, whole[50:]],
        [head() + whole.partition(b"\r\n\r\n")[2]],  # until the connection ends
        [whole.replace(b"HTTP/1.1", b"HTTP/1.0")],
        [answer(PACKED, "200 OK", "Content-Encoding: gzip")],
        [answer(PACKED, "200 OK", "Content-Encoding: GZIP")],
        [head("200 OK", "Transfer-Encoding: chunked", "Content-Encoding: gzip") + chunks],
        [answer(GOOD, "201 Created")],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + whole],
    ):
        assert ask(lambda n, parts=parts: parts)[0] == GOOD


def test_the_largest_answer_is_as_large_as_allowed():
    body = b'"' + b"x" * 1000 + b'"'
    for form, sent in (("identity", body), ("gzip", gzip.compress(body))):
        made = [answer(sent, "200 OK", f"Content-Encoding: {form}")]
        assert ask(lambda n, made=made: made, Limits(20.0, 1, 1002))[0] == "x" * 1000
        assert ask(lambda n, made=made: made, Limits(20.0, 1, 1001))[0].fault is Fault.TOO_LARGE


def test_bytes_that_unpack_to_nothing_count():
    empty = gzip.compress(b"", mtime=0)[:10] + b"\0\0\0\xff\xff" * 100_000  # empty blocks
    made = [head("200 OK", "Content-Encoding: gzip"), *itertools.repeat(empty, 3)]
    assert ask(lambda n: made, Limits(20.0, 1, 2**17))[0].fault is Fault.TOO_LARGE


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deadline": 0}, "deadline is 0"),
        ({"deadline": float("inf")}, "deadline is inf"),
        ({"deadline": float("nan")}, "deadline is nan"),
    ],
)
def test_limits_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        Limits(**given)
