"""The other rankings: each against a second source, and the shares by hand."""

import math
import random

import numpy as np
import pytest

from turngym.tests.verify.search.rankings import lucene, shares

TEXTS = [
    "a cat sat on a mat",
    "a dog sat",
    "the cat and the dog and the cat",
    "nothing here",
    "a dog sat",
]
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


def test_shares_by_hand():
    """Of two golds one is third; of one gold it is sixth."""
    found = [["x", "y", "g1", *"abcdefgh"], [*"abcde", "g3"]]
    assert shares(found, [["g1", "g2"], ["g3"]]) == {
        "recall@5": pytest.approx(0.25),
        "hit@5": pytest.approx(0.5),
        "recall@20": pytest.approx(0.75),
        "hit@20": pytest.approx(1.0),
    }
