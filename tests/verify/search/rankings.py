"""Other rankings of the same passages, and the shares by which rankings are compared."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75  # what Lucene takes where nothing is said
CUTS = (5, 20)

Ranking = Callable[
    [str, int], Sequence[int]
]  # a query and a number to the places in the corpus, best first
Words = Callable[[str], Sequence[str]]
Scored = tuple[
    NDArray[np.int64], NDArray[np.float64]
]  # places of texts, and what a word gives to each


def plain(text: str) -> list[str]:
    """Return the words of a text in small letters."""
    return re.findall(r"\w+", text.lower())


def lucene(texts: Sequence[str], words: Words) -> Ranking:
    """Rank by BM25 as Lucene has it (Robertson and Zaragoza 2009, §3.2, with an IDF that is never negative), float64.

    score = Σ_t ln(1 + (N − n_t + ½) / (n_t + ½)) · f_t / (f_t + k1 (1 − b + b · length / mean length)),
    over the words t of the query, as often as each stands there; equal scores in the order of the corpus.
    """
    counts = [Counter(words(text)) for text in texts]
    lengths = np.array([count.total() for count in counts], np.float64)
    norm = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-12))
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for place, count in enumerate(counts):
        for word, times in count.items():
            held[word].append((place, times))

    @cache
    def scores_of(word: str) -> Scored:
        pairs = held.get(word, [])
        places, times = np.array(pairs, np.int64).reshape(-1, 2).T
        idf = math.log(1 + (len(texts) - len(pairs) + 0.5) / (len(pairs) + 0.5))
        return places, idf * times / (times + norm[places])

    return partial(_summed, len(texts), words, scores_of)


def okapi(texts: Sequence[str], words: Words) -> Ranking:
    """Rank by the class BM25Okapi of the package rank-bm25, with its own settings.

    Raises:
        ValueError: it is not installed.
    """
    try:
        from rank_bm25 import BM25Okapi
    except ModuleNotFoundError:
        raise ValueError(
            "rank-bm25 is not installed, and retrieval is measured beside it: pip install rank-bm25"
        ) from None
    index = BM25Okapi([words(text) for text in texts])

    @cache
    def scores_of(word: str) -> Scored:
        """What the class itself gives for one word: it takes words one by one, but looks at every text for each."""
        scores = np.asarray(index.get_scores([word]), np.float64)
        places = np.flatnonzero(scores)
        return places, scores[places]

    return partial(_summed, len(texts), words, scores_of)


def _summed(
    size: int, words: Words, scores_of: Callable[[str], Scored], query: str, k: int
) -> list[int]:
    """Return the places of the `k` largest sums of scores, equal ones in the order of the corpus."""
    scores = np.zeros(size)
    for word in words(query):
        places, given = scores_of(word)
        scores[places] += given
    found: list[int] = np.argsort(-scores, kind="stable")[:k].tolist()
    return found


def shares(found: Sequence[Sequence[str]], golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return recall@k, the mean share of gold passages among the first k, and hit@k, the share of queries with one."""
    named = {}
    for k in CUTS:
        held = [len(set(gold) & set(ids[:k])) for ids, gold in zip(found, golds, strict=True)]
        named[f"recall@{k}"] = float(
            np.mean([some / len(set(gold)) for some, gold in zip(held, golds, strict=True)])
        )
        named[f"hit@{k}"] = float(np.mean([some > 0 for some in held]))
    return named
