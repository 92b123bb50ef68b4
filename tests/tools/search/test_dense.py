import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from turngym.tools.search import Fault, dense
from turngym.tools.search.dense import Dense, load_encoder
from turngym.tools.search.retriever import Passage, SearchFailure

PASSAGES = [
    Passage("a", "", "aaaa"),
    Passage("ab", "", "aabb"),
    Passage("b", "B", "bbbb"),
    Passage("ab2", "", "abab"),
]


def letters(texts):
    """Counts of a, b and c: the dot products of such vectors are known without a machine."""
    return np.array([[text.count(letter) for letter in "abc"] for text in texts])


class Counted:
    def __init__(self, encode=letters):
        self.encode, self.texts = encode, []

    def __call__(self, texts):
        self.texts += texts
        return self.encode(texts)


def shown(found):
    return [(passage.id, passage.score) for passage in found]


def test_passages_come_by_their_inner_product_and_then_by_their_order():
    searched = Dense(PASSAGES, letters)
    assert shown(searched.search("aab", 9)) == [("a", 8.0), ("ab", 6.0), ("ab2", 6.0), ("b", 4.0)]
    assert shown(searched.search("aab", 2)) == [("a", 8.0), ("ab", 6.0)]
    assert shown(searched.search("c", 2)) == [("a", 0.0), ("ab", 0.0)]
    assert searched.search("b", 1) == [Passage("b", "B", "bbbb", 4.0)]
    assert searched.name == "vectors of 4 passages"


def test_products_are_exact(monkeypatch):
    monkeypatch.setattr(dense, "_TEXTS_PER_CALL", 50)
    table = np.random.default_rng(0).normal(size=(301, 67)).astype(np.float32)
    passages = [Passage(str(i), "", str(i)) for i in range(300)]
    searched = Dense(passages, lambda texts: table[[int(text) for text in texts]])
    found = {int(passage.id): passage.score for passage in searched.search("300", 300)}
    exact = table[:300].astype(np.float64) @ table[300].astype(np.float64)
    np.testing.assert_allclose([found[i] for i in range(300)], exact, atol=1e-4)


@pytest.mark.parametrize("n", [5, 17, 101])
def test_equal_vectors_have_equal_scores_wherever_they_stand(n):
    table = np.random.default_rng(0).normal(size=(2, 128))
    passages = [Passage(str(i), "", "same") for i in range(n)]
    found = Dense(passages, lambda texts: table[[int(text == "query") for text in texts]]).search(
        "query", n
    )
    assert [passage.id for passage in found] == [str(i) for i in range(n)]


def test_prefixes_and_titles_are_what_the_encoder_is_given():
    encode = Counted()
    Dense(PASSAGES[1:3], encode, query_prefix="query: ", passage_prefix="passage: ").search(
        "what", 1
    )
    assert encode.texts == ["passage: \naabb", "passage: B\nbbbb", "query: what"]


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_finds_nothing(query):
    assert Dense(PASSAGES, letters).search(query, 3) == []


@pytest.mark.parametrize(
    "wrong, said",
    [
        (lambda texts: np.zeros(3), r"\[3\] for 4 texts"),
        (lambda texts: np.zeros((1, 3)), r"\[1, 3\] for 4 texts"),
        (lambda texts: np.full((4, 3), np.nan), "one finite vector"),
    ],
)
def test_an_encoder_that_returns_something_else_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Dense(PASSAGES, wrong)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="there are no passages"):
        Dense([], letters)
    with pytest.raises(ValueError, match="k is 0"):
        Dense(PASSAGES, letters).search("a", 0)


def test_an_encoder_that_fails_at_a_query_is_a_typed_failure():
    def broken(texts):
        if texts == ["raise"]:
            raise RuntimeError("out of memory")
        if texts == ["nan"]:
            return np.full((1, 3), np.nan)
        return letters(texts)[:, : 2 if texts == ["short"] else 3]

    searched = Dense(PASSAGES, broken)
    for query, fault, said in (
        ("raise", Fault.STATUS, "RuntimeError: out of memory"),
        ("nan", Fault.MALFORMED, "one finite vector"),
        ("short", Fault.MALFORMED, "the query has no vector"),
    ):
        with pytest.raises(SearchFailure, match=said) as caught:
            searched.search(query, 3)
        assert caught.value.fault is fault
    assert len(searched.search("a", 3)) == 3


def test_a_model_is_loaded_by_its_name(monkeypatch):
    asked = {}

    class SentenceTransformer:
        def __init__(self, name, device):
            asked.update(name=name, device=device)

        def encode(self, texts, **settings):
            asked.update(settings)
            return letters(texts)

    fake = ModuleType("sentence_transformers")
    fake.SentenceTransformer = SentenceTransformer
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake)
    encode = load_encoder("intfloat/e5-base-v2", device="cpu", normalize=False)
    assert encode(["aab"]).tolist() == [[2, 1, 0]]
    assert encode(["aab"]).dtype == np.float32
    assert (asked["name"], asked["device"]) == ("intfloat/e5-base-v2", "cpu")
    assert (asked["normalize_embeddings"], asked["show_progress_bar"]) == (False, False)


def test_a_missing_library_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r'sentence-transformers.*"turngym\[dense\]"'):
        load_encoder("any")


def test_no_heavy_library_is_loaded_before_it_is_used():
    program = (
        "import sys, turngym.tools.search.bm25\n"
        "assert not {'torch', 'bm25s', 'Stemmer', 'sentence_transformers'} & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
