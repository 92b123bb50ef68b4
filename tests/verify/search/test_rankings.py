"""The other rankings: each against a second source, and the shares by hand."""

import math
import random
import sys

import numpy as np
import pytest

from turngym.tests.verify.search.rankings import lucene, okapi, plain, shares

TEXTS = ["a cat sat on a mat", "a dog sat", "the cat and the dog and the cat", "nothing here", "a dog sat"]
QUERIES = ["cat", "dog sat", "the the cat", "unseen", "a mat", "cat unseen dog"]


def by_hand(query, text, texts=TEXTS):
    """BM25 of one text, straight from the formula."""
    words = [other.split() for other in texts]
    mean = sum(map(len, words)) / len(words)
    total = 0.0
    for word in query.split():
        held = sum(word in other for other in words)
        times = text.split().count(word)
        idf = math.log(1 + (len(words) - held + 0.5) / (held + 0.5))
        total += idf * times / (times + 1.2 * (1 - 0.75 + 0.75 * len(text.split()) / mean))
    return total


@pytest.mark.parametrize("query", QUERIES)
def test_lucene_is_its_formula(query):
    expected = sorted(range(len(TEXTS)), key=lambda i: (-by_hand(query, TEXTS[i]), i))
    assert lucene(TEXTS, str.split)(query, 5) == expected


def test_lucene_is_its_formula_where_lengths_and_counts_weigh():
    drawn = random.Random(0)
    texts = [" ".join(drawn.choices("abcdefgh", k=drawn.randint(1, 30))) for _ in range(60)]
    rank = lucene(texts, str.split)
    for query in ("a b", "c d e", "h", "a a f"):
        expected = sorted(range(60), key=lambda i: (-by_hand(query, texts[i], texts), i))
        assert rank(query, 60) == expected


@pytest.mark.parametrize("query", QUERIES)
def test_lucene_is_that_of_bm25s(query):
    import bm25s

    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index([text.split() for text in TEXTS], show_progress=False)
    known = [word for word in query.split() if any(word in text.split() for text in TEXTS)]
    scores = index.get_scores(known) if known else np.zeros(len(TEXTS))
    assert lucene(TEXTS, str.split)(query, 3) == np.argsort(-scores, kind="stable")[:3].tolist()


@pytest.mark.parametrize("query", QUERIES)
def test_okapi_is_the_class_itself(query):
    from rank_bm25 import BM25Okapi

    scores = BM25Okapi([text.split() for text in TEXTS]).get_scores(query.split())
    assert okapi(TEXTS, str.split)(query, 5) == np.argsort(-scores, kind="stable").tolist()


def test_without_the_package_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rank_bm25", None)
    with pytest.raises(ValueError, match="pip install rank-bm25"):
        okapi(TEXTS, str.split)


def test_equal_texts_come_in_the_order_of_the_corpus():
    assert lucene(TEXTS, str.split)("dog sat", 2) == [1, 4]


def test_plain_words_are_small_letters_and_digits():
    assert plain("Röntgen's 2 X-rays") == ["röntgen", "s", "2", "x", "rays"]


def test_shares_by_hand():
    """Of two golds one is third; of one gold it is sixth."""
    found = [["x", "y", "g1", *"abcdefgh"], [*"abcde", "g3"]]
    assert shares(found, [["g1", "g2"], ["g3"]]) == {
        "recall@5": pytest.approx(0.25),
        "hit@5": pytest.approx(0.5),
        "recall@20": pytest.approx(0.75),
        "hit@20": pytest.approx(1.0),
    }
