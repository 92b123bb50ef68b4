"""Search by words: BM25 over a corpus, inside this process.

The index of a corpus file is cached on disk and memory-mapped. Scores are those of Lucene's BM25
(Kamphuis et al., ECIR 2020, table 1), computed by bm25s (Lù, 2024, arXiv:2407.03618). The words of
a title count several times, as a weighted field (Robertson et al., CIKM 2004, section 3).

There are three indexes:

- words: the usual one, of all passages
- unspaced: of the passages with text in scripts without spaces between words (see `unspaced`). Its
  scores are added to those of the words, so they change nothing for other text.
- titles: of the stop words in titles. Only a query that consists of stop words ("The Who") is
  looked up there.
"""

import json
import logging
import math
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache as cache_result
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..progress import track
from .array_cache import Arrays, Texts, cache_folder, digest_values, join_texts, load_or_make_arrays
from .corpus import content_digest, rank_top_k, read_corpus
from .retriever import Passage
from .unspaced import fold_words, has_unspaced, remove_unspaced, split_passage, split_query

TITLE_WEIGHT = 3  # a word in a title counts as this many in the text
# The version of the terms and of the arrays of an index; cached indexes of another are not read.
_INDEX_VERSION = 2
# The parts of the sparse matrix of scores: their names in bm25s, and in our arrays.
_MATRIX_PARTS = {"data": "scores", "indices": "rows", "indptr": "starts"}
_per_thread = threading.local()  # a stemmer must not be used by two threads at once


class BM25:
    """A retriever over passages in memory or over a corpus file.

    Args:
        passages: The passages, or the path of a corpus file, which `read_corpus` reads.
        cache: Folder in which the index of a corpus file is cached; None caches nothing.
        k1: How slowly a term's weight saturates with its count in a passage, at least 0; at 0
            counts do not matter.
        b: How much long passages are penalized, from 0 to 1.

    Raises:
        FileNotFoundError: There is no such corpus file.
        ValueError: The corpus is not as `read_corpus` expects it, there are no passages, `k1` or
            `b` is out of range, or a package of the extra `search` is missing.
    """

    def __init__(
        self,
        passages: Sequence[Passage] | Path,
        cache: Path | None = None,
        *,
        k1: float = 1.5,
        b: float = 0.75,
    ) -> None:
        if not 0 <= k1 < math.inf or not 0 <= b <= 1:
            raise ValueError(f"k1 is {k1} and b is {b}; k1 is 0 or more, and b from 0 to 1")
        if isinstance(passages, Path):
            arrays = _load_or_build_index(passages, cache, k1=k1, b=b)
        else:
            arrays = _build_index(passages, k1=k1, b=b)
        self._passages = Texts(arrays["passages"], arrays["passage_ends"])
        # Rows of the unspaced index are not those of the corpus; this array maps them.
        self._unspaced_passages: NDArray[np.int64] = arrays["unspaced"]
        self._word_index = _TermIndex(
            arrays, prefix="", engine=_make_engine(k1, b), text_count=len(self._passages)
        )
        self._unspaced_index = _TermIndex(
            arrays,
            prefix="unspaced_",
            engine=_make_engine(k1, b),
            text_count=len(self._unspaced_passages),
        )
        self._title_index = _StopWordTitles(arrays)

    @property
    def name(self) -> str:
        return f"BM25 over {len(self._passages):,} passages"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages that share a term with `query`, best first.

        Equal scores keep the order of the corpus. In scripts without spaces between words, a pair
        of characters counts as a term. A query of stop words finds the passages whose titles have
        these; their score is the share of all words of query and title that is in both.

        Raises:
            ValueError: `k` is less than 1.
        """
        if k < 1:
            raise ValueError(f"k is {k}; ask for at least one passage")
        scores = self._score_passages(query)
        if scores is None:
            return []
        matching_rows = np.flatnonzero(scores)
        best_rows = matching_rows[rank_top_k(scores[matching_rows], k)]
        hits: list[Passage] = []
        for row in best_rows.tolist():
            passage_id, title, text = json.loads(self._passages[row])
            hits.append(Passage(passage_id, title, text, score=float(scores[row])))
        return hits

    def _score_passages(self, query: str) -> NDArray[np.float32] | None:
        """Return the score of every passage, 0 for those that do not match; None if none does."""
        if has_unspaced(query):
            character_pairs = split_query(query)
            enclosed_words = stem_words(remove_unspaced(query))
            unspaced_words = [word for word in stem_words(query) if has_unspaced(word)]
            query_words = unspaced_words + enclosed_words
        else:
            character_pairs = []
            query_words = enclosed_words = stem_words(query)
            if not query_words:  # nothing but stop words
                return self._title_index.score(fold_words(query), passage_count=len(self._passages))
        scores = self._word_index.score(query_words)
        if scores is not None and not character_pairs:
            return scores
        # Words that the word index does not know may still be enclosed in unspaced text, as "AI" in
        # "AI技术".
        unspaced_scores = self._unspaced_index.score(character_pairs + enclosed_words)
        if unspaced_scores is None:
            return scores
        if scores is None:
            scores = np.zeros(len(self._passages), np.float32)
        scores[self._unspaced_passages] += unspaced_scores
        return scores

    def close(self) -> None:
        """Do nothing: the file is closed, and its memory map goes with this object."""


class _TermIndex:
    """The BM25 score of each term in each of some texts.

    Args:
        arrays: An index, of which `_build_term_index` made a part.
        prefix: What the names of that part begin with.
        engine: A `bm25s.BM25`, which sums up the scores of a query's terms.
        text_count: How many texts are indexed.
    """

    def __init__(self, arrays: Arrays, *, prefix: str, engine: Any, text_count: int) -> None:
        self._vocabulary = Texts(arrays[f"{prefix}words"], arrays[f"{prefix}word_ends"])
        matrix = {part: arrays[f"{prefix}{name}"] for part, name in _MATRIX_PARTS.items()}
        self._engine = engine
        self._engine.scores = {**matrix, "num_docs": text_count}
        self._engine.nonoccurrence_array = None  # only other variants of BM25 have one

    def score(self, query_terms: Sequence[str]) -> NDArray[np.float32] | None:
        """Return the score of each text; None if no term is in the vocabulary."""
        term_ids = _find_terms(self._vocabulary, query_terms)
        if not term_ids:
            return None
        scores: NDArray[np.float32] = self._engine.get_scores_from_ids(term_ids)
        return scores


class _StopWordTitles:
    """For each stop word, the passages whose titles have it, and the sizes of these titles."""

    def __init__(self, arrays: Arrays) -> None:
        self._vocabulary = Texts(arrays["title_words"], arrays["title_word_ends"])
        self._rows = arrays["title_rows"]
        self._title_sizes = arrays["title_sizes"]
        self._starts = arrays["title_starts"]

    def score(
        self, query_words: Sequence[str], *, passage_count: int
    ) -> NDArray[np.float32] | None:
        """Return the Jaccard similarity of a query with the title of each passage.

        That is |Q ∩ T| / |Q ∪ T| for the sets of words Q of the query and T of the title. Only stop
        words are looked up; returns None if no title has one of the query's.
        """
        query_set = set(query_words)
        word_ids = _find_terms(self._vocabulary, query_set)
        if not word_ids:
            return None
        spans = [slice(self._starts[i], self._starts[i + 1]) for i in word_ids]
        rows = np.concatenate([self._rows[span] for span in spans])
        title_sizes = np.concatenate([self._title_sizes[span] for span in spans])
        # A title stands in `rows` once for each word that it shares with the query.
        matching_rows, first_places, shared = np.unique(rows, return_index=True, return_counts=True)
        union = title_sizes[first_places] + len(query_set) - shared
        scores = np.zeros(passage_count, np.float32)
        scores[matching_rows] = shared / union
        return scores


def open_index(
    path: str | Path, cache_dir: str | Path | None = None, *, k1: float = 1.5, b: float = 0.75
) -> BM25:
    """Return a `BM25` over a corpus file; its index is cached.

    Args:
        path: The corpus file, which `read_corpus` reads.
        cache_dir: Folder of the cached index; None is the user's cache folder.
        k1: As in `BM25`.
        b: As in `BM25`.

    Raises as `BM25`.
    """
    folder = Path(cache_dir) if cache_dir else cache_folder()
    return BM25(Path(path), folder, k1=k1, b=b)


def stem_words(text: str) -> list[str]:
    """Split a text into the terms that are counted: stems of its words, without stop words.

    Words are runs of letters and digits, in lower case and without accents. Stems are those of
    Porter's second English stemmer (snowballstem.org): "The running dogs" -> ["run", "dog"].
    """
    stop_words = _load_stop_words()
    content_words = [word for word in fold_words(text) if word not in stop_words]
    if not hasattr(_per_thread, "stemmer"):
        # Cache size 0: the stemmer's cache would keep words of any length.
        _per_thread.stemmer = _import_library("Stemmer").Stemmer("english", 0)
    return list(_per_thread.stemmer.stemWords(content_words))


def _load_or_build_index(corpus: Path, cache: Path | None, *, k1: float, b: float) -> Arrays:
    """Return the arrays of the index of a corpus file, from the cache if it has them."""
    corpus_digest = content_digest(corpus)
    # All that the arrays depend on, besides `_INDEX_VERSION`.
    settings = [
        TITLE_WEIGHT,
        k1,
        b,
        version("bm25s"),
        version("PyStemmer"),
        unicodedata.unidata_version,
        corpus_digest,
    ]

    def read_and_build() -> Arrays:
        passages = read_corpus(corpus)
        if content_digest(corpus) != corpus_digest:
            raise ValueError(
                f"the corpus {corpus} changed while it was read; try again when it is complete"
            )
        return _build_index(passages, k1=k1, b=b)

    *earlier_keys, key = [
        digest_values([index_version, *settings]) for index_version in range(1, _INDEX_VERSION + 1)
    ]
    return load_or_make_arrays(cache, key, read_and_build, earlier_keys)


def _build_index(passages: Sequence[Passage], *, k1: float, b: float) -> Arrays:
    """Return all arrays of an index by name; raises ValueError if there are no passages.

    `passages` and `passage_ends` are the passages themselves, a JSON list [id, title, text] each.
    """
    if not passages:
        raise ValueError("there are no passages to search; give at least one")
    passage_terms: list[list[str]] = []
    for passage in track(passages, "indexing", len(passages)):
        title_terms = stem_words(passage.title) * TITLE_WEIGHT
        passage_terms.append(title_terms + stem_words(passage.text))
    data, ends = join_texts(
        json.dumps([passage.id, passage.title, passage.text]).encode() for passage in passages
    )
    return {
        "passages": data,
        "passage_ends": ends,
        **_build_term_index(passage_terms, prefix="", engine=_make_engine(k1, b)),
        **_build_unspaced_index(passages, engine=_make_engine(k1, b)),
        **_build_title_index(passages),
    }


def _build_term_index(text_terms: list[list[str]], *, prefix: str, engine: Any) -> Arrays:
    """Return the arrays of a `_TermIndex`.

    Args:
        text_terms: The terms of each text, as often as they count.
        prefix: Put in front of the arrays' names.
        engine: A `bm25s.BM25`, which computes the scores.

    Returns:
        `words` and `word_ends`, the sorted vocabulary, and the score of each term in each text that
        has it, as a sparse matrix by columns (CSC): term i has `scores[j]` in text `rows[j]` for j
        from `starts[i]` to `starts[i + 1]`.
    """
    distinct_terms: set[str] = set()
    for terms in text_terms:
        distinct_terms.update(terms)
    vocabulary = sorted(distinct_terms, key=str.encode)  # by bytes, as `Texts.find` compares
    word_data, word_ends = join_texts(term.encode() for term in vocabulary)
    arrays: Arrays = {"words": word_data, "word_ends": word_ends}
    if vocabulary:
        term_ids = {term: i for i, term in enumerate(vocabulary)}
        text_ids = [[term_ids[term] for term in terms] for terms in text_terms]
        engine.index((text_ids, term_ids), create_empty_token=False, show_progress=False)
        for part, name in _MATRIX_PARTS.items():
            arrays[name] = engine.scores[part]
    else:
        # All words are stop words. bm25s would divide by the mean length of a text, which is 0.
        arrays["scores"] = np.zeros(0, np.float32)
        arrays["rows"] = np.zeros(0, np.int32)
        arrays["starts"] = np.zeros(1, np.int64)
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _build_unspaced_index(passages: Sequence[Passage], *, engine: Any) -> Arrays:
    """Return the arrays of the index of text without spaces between words.

    `unspaced` has the places, in the corpus, of the passages that hold such text; only these are
    indexed.
    """
    rows: list[int] = []
    passage_terms: list[list[str]] = []
    for row, passage in enumerate(passages):
        if has_unspaced(passage.title) or has_unspaced(passage.text):
            title_terms = _split_unspaced(passage.title) * TITLE_WEIGHT
            rows.append(row)
            passage_terms.append(title_terms + _split_unspaced(passage.text))
    term_arrays = _build_term_index(passage_terms, prefix="unspaced_", engine=engine)
    return {"unspaced": np.array(rows, np.int64), **term_arrays}


def _split_unspaced(text: str) -> list[str]:
    """Return the terms of unspaced text: characters, pairs of them, stems of enclosed words."""
    characters, enclosed_words = split_passage(text)
    if not enclosed_words:
        return characters
    return characters + stem_words(" ".join(enclosed_words))


def _build_title_index(passages: Sequence[Passage]) -> Arrays:
    """Return the arrays of `_StopWordTitles`.

    Returns:
        `title_words` and `title_word_ends`, the stop words in titles, sorted; the titles with word
        i are those of the passages `title_rows[j]`, which have `title_sizes[j]` different words,
        for j from `title_starts[i]` to `title_starts[i + 1]`.
    """
    stop_words = _load_stop_words()
    rows_of_word: dict[str, list[int]] = {}
    size_of_title: dict[int, int] = {}  # by row
    for row, passage in enumerate(passages):
        title_words = set(fold_words(passage.title))
        for word in title_words & stop_words:
            rows_of_word.setdefault(word, []).append(row)
            size_of_title[row] = len(title_words)
    vocabulary = sorted(rows_of_word, key=str.encode)  # by bytes, as `Texts.find` compares
    word_data, word_ends = join_texts(word.encode() for word in vocabulary)
    rows: list[int] = []
    starts = [0]
    for word in vocabulary:
        rows += rows_of_word[word]
        starts.append(len(rows))
    return {
        "title_words": word_data,
        "title_word_ends": word_ends,
        "title_rows": np.array(rows, np.int64),
        "title_sizes": np.array([size_of_title[row] for row in rows], np.int64),
        "title_starts": np.array(starts, np.int64),
    }


def _find_terms(vocabulary: Texts, terms: Iterable[str]) -> list[int]:
    """Return the indices of those `terms` that are in a sorted vocabulary."""
    places = [vocabulary.find(term.encode()) for term in terms]
    return [place for place in places if place is not None]


def _make_engine(k1: float, b: float) -> Any:
    """Return an empty `bm25s.BM25`."""
    bm25s = _import_library("bm25s")
    # On import bm25s sets its logger to DEBUG, which would show its messages in every user's logs.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s.BM25(k1=k1, b=b)


@cache_result
def _load_stop_words() -> frozenset[str]:
    """Return the English stop words of bm25s, without those that have a meaning of their own."""
    stop_words = frozenset(_import_library("bm25s.stopwords").STOPWORDS_EN_PLUS)
    # The list has single letters, because an apostrophe leaves them behind: "Curie's", "don't". Of
    # these, d, m, o and y mean something by themselves, as in "vitamin D".
    return stop_words - set("dmoy")


def _import_library(name: str) -> Any:
    """Import a package of the extra `search`; raises ValueError if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(
            f'the embedded index needs {name} ({error}): pip install "turngym[search]"'
        ) from error
