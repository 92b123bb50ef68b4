"""What a process sees of a completion, in this process."""

import pytest

from turngym.envs.qa import SearchEnv
from turngym.tests.support.faults import FaultServer
from turngym.tests.verify.search import worker
from turngym.tools import Search


@pytest.fixture
def server():
    """A server between an index and pages, whose hook for audit events is called by hand."""
    with FaultServer(worker.answer) as index, FaultServer() as pages:
        yield worker.Server(index, pages)


@pytest.fixture
def see(server):
    """See a completion whose right answer is Paris, or another."""
    return lambda text, *golds: server.see(text, golds or ["Paris"])


def test_a_search_is_seen_by_the_server(see):
    seen = see("<search>a\r\nHost: evil</search> more")
    assert seen.queries == ["a Host: evil"] and "host" in seen.fields and "evil" not in seen.fields
    assert (seen.seen.calls, seen.seen.cut, seen.seen.turns, seen.seen.error) == (
        1,
        True,
        None,
        False,
    )


def test_a_visit_tells_how_it_ended(see, server):
    page, inside = (
        see(f"<visit>http://{server.pages.host}/page</visit>"),
        see("<visit>http://127.0.0.1/</visit>"),
    )
    assert (page.status, page.hops, inside.status, inside.hops) == ("ok", 1, "rejected", 0)
    assert inside.seen.error and not page.seen.error


def test_pages_that_the_server_does_not_know_are_taken_for_like_ones(server, monkeypatch):
    texts = []
    monkeypatch.setattr(
        worker.Server, "see", lambda self, text, golds: texts.append(text) or worker.Searched()
    )
    for page in ("redirect-20", "to-metadata", "page", "gzip-10gb", "what"):
        server.handle({"text": f"<visit>http://{{{{HOST}}}}/{page}</visit>", "golds": ["x"]})
    ends = [
        text.removeprefix(f"<visit>http://{server.pages.host}/").removesuffix("</visit>")
        for text in texts
    ]
    assert ends == ["loop", "redirect/http%3A%2F%2F169.254.169.254%2F", "page", "gzip-10gb", "what"]


def test_what_is_raised_is_what_was_seen(see, monkeypatch):
    monkeypatch.setattr(
        SearchEnv,
        "step",
        lambda self, text: 1 / 0 if "boom" in text else (_ for _ in ()).throw(OSError),
    )
    monkeypatch.setattr(worker.Server, "_next_ok", lambda self: False)
    assert see("boom").seen.raised == "ZeroDivisionError: division by zero"


def test_a_search_that_fails_is_no_result(see, monkeypatch):
    def call(self, arguments):
        raise probe_failure

    from turngym.tools import ToolFailure

    probe_failure = ToolFailure("down")
    monkeypatch.setattr(Search, "call", call)
    seen = see("<search>x</search>")
    assert seen.seen.raised == "RuntimeError: tool_error: down" and not seen.seen.next_ok


def test_a_gold_in_what_is_shown_is_seen(see):
    assert (
        see("<search>x</search>", "seat of government").gold and not see("<search>x</search>").gold
    )


def test_control_tokens_of_a_text_are_counted():
    assert worker.control("<|im_end|>", "<answer>x</answer>") == 0


def test_events_are_heard_only_while_something_is_played(server):
    server.hear("socket.connect", (None, ("10.0.0.1", 80)))
    server.heard = {"runs": [], "writes": [], "connects": []}
    server.hear("socket.connect", (None, ("10.0.0.1", 80)))
    server.hear("open", ("a", "r", 0))
    server.hear("open", ("b", "w", 0))
    server.hear("os.remove", ("c", -1))
    server.hear("os.system", (b"true",))
    server.hear("compile", (None, worker.__file__))
    assert server.heard["connects"] == ["10.0.0.1:80"] and len(server.heard["writes"]) == 2
    assert [event.split()[0] for event in server.heard["runs"]] == ["os.system"]
