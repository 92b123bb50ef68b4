import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turngym.tests.support.faults import FaultServer
from turngym.tests.tools.search.faults import FAULTS, answer
from turngym.tools.http.failures import Limits
from turngym.tools.search import Fault
from turngym.tools.search.remote import BASIC, KEY, Elastic
from turngym.tools.search.retriever import Passage, SearchFailure


def hits(*found, **fields):
    """An answer as the servers give it."""
    shards = {"total": 5, "successful": 5, "skipped": 0, "failed": 0}
    about = {"total": {"value": 9, "relation": "eq"}, "max_score": 1.0, "hits": list(found)}
    return {"took": 4, "timed_out": False, "_shards": shards, "hits": about, **fields}


def hit(number=7, title="Paris", text="A city.", score=1.5):
    return {
        "_index": "wiki",
        "_id": str(number),
        "_score": score,
        "_source": {"title": title, "text": text},
    }


@pytest.fixture
def asked(monkeypatch):
    """`asked(body, **settings)` is what a search makes of an answer; `asked.server` has the requests."""
    for name in (KEY, BASIC):
        monkeypatch.delenv(name, raising=False)
    said = {}
    with FaultServer(lambda request: [said["answer"]]) as server:

        def ask(body, query="who?", k=3, status="200 OK"):
            said["answer"] = answer(body, status)
            back_end = Elastic(server.url, "wiki", limits=Limits(20.0, 1))
            try:
                return back_end.search(query, k)
            finally:
                back_end.close()

        ask.server = server
        yield ask


def test_a_search_is_one_request_of_the_query_language(asked):
    assert asked(hits(hit())) == [Passage("7", "Paris", "A city.", 1.5)]
    request = asked.server.requests[0]
    assert (
        request.head.startswith("POST /wiki/_search HTTP/1.1\r\n")
        and "authorization" not in request.head.lower()
    )
    assert json.loads(request.body) == {
        "size": 3,
        "query": {"multi_match": {"query": "who?", "fields": ["title", "text"]}},
        "_source": ["title", "text"],
        "track_total_hits": False,
        "timeout": "20000ms",
    }


def test_a_title_may_be_absent(asked):
    for source in ({"text": "A city."}, {"title": None, "text": "A city."}):
        assert asked(hits({**hit(), "_source": source})) == [Passage("7", "", "A city.", 1.5)]


def test_no_hits_are_no_passages_and_no_more_come_than_asked_for(asked):
    assert asked(hits()) == []
    assert [passage.id for passage in asked(hits(*map(hit, range(9))), k=2)] == ["0", "1"]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.text(st.characters())
    | st.sampled_from(['"}}, "size": 99', "a AND (b OR *)", "\\", "_exists_:title", "\0"])
)
def test_a_query_is_a_value_and_never_syntax(asked, query):
    asked(hits(), query)
    body = json.loads(asked.server.requests[-1].body)
    sent = body["query"]["multi_match"].pop("query")
    assert sent == query.encode("utf-8", "replace").decode()
    assert body["query"] == {"multi_match": {"fields": ["title", "text"]}} and body["size"] == 3


@pytest.mark.parametrize(
    ("body", "fault", "said"),
    [
        (hits(hit(), timed_out=True), Fault.TIMEOUT, "ran into its time limit"),
        (
            hits(hit(), _shards={"failed": 2}),
            Fault.STATUS,
            "2 of its shards failed: it does not say why",
        ),
        (
            hits(
                hit(), _shards={"failed": 1, "failures": [{"reason": {"type": "too_many_clauses"}}]}
            ),
            Fault.STATUS,
            "1 of its shards failed: .*too_many_clauses",
        ),
        ({"error": {"type": "x"}}, Fault.MALFORMED, "timed_out is missing"),
        (hits(timed_out=None), Fault.MALFORMED, "timed_out is None; expected true or false"),
        (hits(_shards=3), Fault.MALFORMED, "_shards is 3; expected an object"),
        (
            hits(_shards={"failed": "no"}),
            Fault.MALFORMED,
            "_shards.failed is 'no'; expected a number",
        ),
        (hits(hits=[hit()]), Fault.MALFORMED, "hits is a list; expected an object"),
        (hits(hits={"hits": None}), Fault.MALFORMED, "hits.hits is None; expected a list"),
        (hits(3), Fault.MALFORMED, r"hits.hits\[0\] is 3; expected an object"),
        (hits({"_id": "1", "_score": 1}), Fault.MALFORMED, r"hits.hits\[0\]._source is missing"),
        (hits({**hit(), "_id": None}), Fault.MALFORMED, r"hits.hits\[0\]._id is None; expected"),
        (
            hits(hit(), hit(score=None)),
            Fault.MALFORMED,
            r"hits.hits\[1\]._score is None; expected a number",
        ),
        (
            hits(hit(text=["A city."])),
            Fault.MALFORMED,
            r"_source.text is a list; expected a string",
        ),
        (
            hits(hit(title=5)),
            Fault.MALFORMED,
            r"hits.hits\[0\]._source.title is 5; expected a string",
        ),
        (hits(hit(text=None)), Fault.MALFORMED, r"_source.text is None; expected a string"),
    ],
)
def test_what_is_incomplete_or_of_a_wrong_shape_is_a_failure(asked, body, fault, said):
    with pytest.raises(SearchFailure, match=said) as failed:
        asked(body)
    assert failed.value.fault is fault and f"{asked.server.url}/wiki/_search: " in str(failed.value)


@pytest.mark.parametrize(
    "name", ["not found", "later", "redirect elsewhere", "gzip bomb", "reset", "html", "deep"]
)
def test_faults_of_the_wire_are_typed(name):
    fault, made = FAULTS[name]
    with FaultServer(lambda request: made()) as server:
        back_end = Elastic(server.url, "wiki", limits=Limits(20.0, 1, 2**20))
        with pytest.raises(SearchFailure) as failed:
            back_end.search("q", 1)
        back_end.close()
    assert failed.value.fault is fault


def test_secrets_come_from_the_environment_and_are_never_shown(asked, monkeypatch):
    basic = f"Basic {base64.b64encode(b'me:s3cret').decode()}"
    for environment, sent in (
        ({KEY: "s3cret", BASIC: "me:other"}, "ApiKey s3cret"),
        ({BASIC: "me:s3cret"}, basic),
    ):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SearchFailure, match="it answered 401") as failed:
                asked(f"{sent} is wrong".encode(), status="401 Unauthorized")
        assert sent.lower() in asked.server.requests[-1].head.lower()
        assert "s3cret" not in str(failed.value) and sent not in str(failed.value)


def test_a_probe_asks_the_index_itself(monkeypatch):
    with FaultServer(
        lambda request: [answer(hits()) if request.number else answer({}, "404 Not Found")]
    ) as server:
        back_end = Elastic(server.url, "wiki")
        with pytest.raises(SearchFailure, match="it answered 404"):
            back_end.check()
        back_end.check()
        back_end.close()
    assert {request.target for request in server.requests} == {"/wiki/_search?size=0"}


@pytest.mark.parametrize(
    "index",
    ["", "_all", "*", "wiki*", "a,b", "a/b", "../x", ".", "Wiki", "a b", "a?q=1", "-x", "wiki\n"],
)
def test_only_one_index_can_be_named(index):
    with pytest.raises(ValueError, match="index is "):
        Elastic("http://127.0.0.1:9", index)


@pytest.mark.parametrize("index", ["wiki", "wiki-18_v2", "a.b+c", "2018", "维基"])
def test_an_index_may_be_called_so(index):
    assert index in Elastic("http://127.0.0.1:9", index).name
