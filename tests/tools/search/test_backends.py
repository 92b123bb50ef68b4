import json
import socket

import pytest

from turngym.tools import Passage, SearchFailure
from turngym.tools.search.bm25 import BM25, open_index
from turngym.tools.search.remote import TOKEN, open_search_server
from turngym.tools.search.serve import serve

PASSAGES = [
    Passage("p1", "Paris", "The capital of France."),
    Passage("p2", "Lyon", "A city on the Rhône."),
]


@pytest.fixture(scope="module")
def index():
    return BM25(PASSAGES)


@pytest.fixture
def closed_port():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # held, so that nobody else listens there
        yield silent.getsockname()[1]


def ids(found):
    return [passage.id for passage in found]


def test_passages_and_a_corpus_file_are_searched_alike(index, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "corpus.jsonl"
    path.write_text(
        "".join(json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in PASSAGES)
    )
    for one in (index, open_index(path), open_index(str(path))):
        assert ids(one.search("what is the capital of France?", 2)) == ["p1"]
        assert ids(one.search("Rhône", 2)) == ["p2"]


def test_a_corpus_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.jsonl"):
        open_index(tmp_path / "absent.jsonl")
    path = tmp_path / "c.jsonl"
    path.write_text(
        '{"id": "1", "title": "a", "text": "b"}\n{"id": "1", "title": "c", "text": "d"}\n'
    )
    with pytest.raises(ValueError, match="lines 1 and 2 have the same id '1'"):
        open_index(path)


def test_a_server_that_is_there_is_asked(index, monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    with serve(index, port=0) as url:
        client = open_search_server(url)
        assert ids(client.search("capital of France", 1)) == ["p1"]
        client.close()


def test_a_servers_token_comes_from_the_environment(index, monkeypatch):
    with serve(index, port=0, token="open") as url:
        monkeypatch.setenv(TOKEN, "open")
        client = open_search_server(url, "search-r1")
        assert ids(client.search("Rhône", 1)) == ["p2"]
        client.close()
        monkeypatch.setenv(TOKEN, "wrong-secret")
        with pytest.raises(SearchFailure, match="401") as caught:
            open_search_server(url)
        assert "wrong-secret" not in str(caught.value)


@pytest.mark.parametrize("kind", [("search-r1", None), ("elastic", "wiki")])
def test_a_server_that_is_down_is_an_error_at_once(kind, closed_port):
    with pytest.raises(SearchFailure, match=f"http://127.0.0.1:{closed_port}/.*; start "):
        open_search_server(f"http://127.0.0.1:{closed_port}", *kind)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("http://x", "lucene"), "unknown back end 'lucene'; a server speaks search-r1 or elastic"),
        (
            ("http://x", "elastic"),
            "index is None, and the back end is 'elastic'; name the one to search",
        ),
        (
            ("http://x", "search-r1", "wiki"),
            "index is 'wiki', and the back end is 'search-r1'; leave it out",
        ),
        (("http://x", "elastic", "*"), r"index is '\*'"),
        (("ftp://x",), "is no address of a server"),
        (("http://x", "search-r1", None, 0.0), "deadline is 0.0; give seconds above 0"),
    ],
)
def test_an_argument_that_cannot_be_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        open_search_server(*arguments)
