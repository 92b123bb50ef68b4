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
# The arrays of the sparse matrix of scores: the name that bm25s gives them, and ours.
_MATRIX_ARRAYS = {"data": "scores", "indices": "rows", "indptr": "starts"}
_thread_local = threading.local()  # a stemmer must not be used by two threads at once


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
        # Row i of the unspaced index is the passage `_unspaced_passages[i]` of the corpus.
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

        Passages with equal scores keep the order of the corpus. A term is the stem of a word or, in
        scripts without spaces between words, a pair of characters. A query that has only stop words
        finds the passages whose titles have one of these. Their score is the number of words that
        query and title share, divided by the number of words in either.

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
        """Return the score of each passage of the corpus, 0 if it does not match.

        Returns None if no term of the query is in an index.
        """
        if has_unspaced(query):
            return self._score_unspaced_query(query)
        query_words = stem_words(query)
        if not query_words:  # the query has only stop words, which the word index does not have
            return self._title_index.score(fold_words(query), passage_count=len(self._passages))
        scores = self._word_index.score(query_words)
        if scores is None:
            # A word that is not in the word index may still be enclosed in unspaced text, as "AI"
            # is in "AI技术".
            return self._add_unspaced_scores(None, query_words)
        return scores

    def _score_unspaced_query(self, query: str) -> NDArray[np.float32] | None:
        """Return what `_score_passages` does, for a query with text in a script without spaces."""
        # Of "AI技术 2008", these are ["ai技术"], ["ai", "2008"] and ["技术"].
        unspaced_words = [word for word in stem_words(query) if has_unspaced(word)]
        other_words = stem_words(remove_unspaced(query))
        character_pairs = split_query(query)
        scores = self._word_index.score(unspaced_words + other_words)
        if scores is not None and not character_pairs:
            return scores
        return self._add_unspaced_scores(scores, character_pairs + other_words)

    def _add_unspaced_scores(
        self, scores: NDArray[np.float32] | None, query_terms: list[str]
    ) -> NDArray[np.float32] | None:
        """Add what the index of unspaced text gives for `query_terms`.

        Args:
            scores: The score of each passage of the corpus, changed in place; None is all 0.
            query_terms: Pairs of characters, and stems of words.

        Returns:
            The sums; `scores` if none of the terms is in the index.
        """
        unspaced_scores = self._unspaced_index.score(query_terms)
        if unspaced_scores is None:
            return scores
        if scores is None:
            scores = np.zeros(len(self._passages), np.float32)
        scores[self._unspaced_passages] += unspaced_scores
        return scores

    def close(self) -> None:
        """Do nothing: the file is closed, and its memory map goes with this object."""


class _TermIndex:
    """The BM25 score of each term in each text.

    Args:
        arrays: The arrays of a whole index; some of them are those of `_build_term_index`.
        prefix: What the names of these begin with.
        engine: A `bm25s.BM25`, which sums up the scores of a query's terms.
        text_count: How many texts are indexed.
    """

    def __init__(self, arrays: Arrays, *, prefix: str, engine: Any, text_count: int) -> None:
        self._vocabulary = Texts(arrays[f"{prefix}words"], arrays[f"{prefix}word_ends"])
        matrix = {
            bm25s_name: arrays[f"{prefix}{array_name}"]
            for bm25s_name, array_name in _MATRIX_ARRAYS.items()
        }
        self._engine = engine
        self._engine.scores = {**matrix, "num_docs": text_count}
        # bm25s uses this array only for variants of BM25 that score absent terms, too.
        self._engine.nonoccurrence_array = None

    def score(self, query_terms: Sequence[str]) -> NDArray[np.float32] | None:
        """Return the score of each text; None if no term is in the vocabulary."""
        term_ids = _find_terms(self._vocabulary, query_terms)
        if not term_ids:
            return None
        scores: NDArray[np.float32] = self._engine.get_scores_from_ids(term_ids)
        return scores


class _StopWordTitles:
    """For each stop word, the passages whose titles have it, and the sizes of these titles.

    Args:
        arrays: The arrays of a whole index; some of them are those of `_build_title_index`.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._vocabulary = Texts(arrays["title_words"], arrays["title_word_ends"])
        self._rows = arrays["title_rows"]
        self._title_sizes = arrays["title_sizes"]
        self._starts = arrays["title_starts"]

    def score(
        self, query_words: Sequence[str], *, passage_count: int
    ) -> NDArray[np.float32] | None:
        """Return the Jaccard similarity of a query with the title of each passage, [passages].

        That is |Q ∩ T| / |Q ∪ T| for the sets of words Q of the query and T of the title, and 0 for
        titles that share no stop word with the query. Returns None if there is no other.
        """
        distinct_query_words = set(query_words)
        word_ids = _find_terms(self._vocabulary, distinct_query_words)
        if not word_ids:
            return None
        # The titles with word i are entries starts[i] to starts[i + 1] of both arrays.
        spans = [slice(self._starts[i], self._starts[i + 1]) for i in word_ids]
        rows = np.concatenate([self._rows[span] for span in spans])
        title_sizes = np.concatenate([self._title_sizes[span] for span in spans])
        # A title is in `rows` once for each word that it shares with the query.
        matching_rows, first_entries, shared_counts = np.unique(
            rows, return_index=True, return_counts=True
        )
        union_sizes = title_sizes[first_entries] + len(distinct_query_words) - shared_counts
        scores = np.zeros(passage_count, np.float32)
        scores[matching_rows] = shared_counts / union_sizes
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
    if not hasattr(_thread_local, "stemmer"):
        # Cache size 0, because the stemmer's cache would also store very long words.
        _thread_local.stemmer = _import_library("Stemmer").Stemmer("english", 0)
    return list(_thread_local.stemmer.stemWords(content_words))


def _load_or_build_index(corpus: Path, cache: Path | None, *, k1: float, b: float) -> Arrays:
    """Return the arrays of the index of a corpus file, from the cache if they are there.

    Args:
        corpus: The corpus file.
        cache: Folder of the cached indexes; None caches nothing.
        k1: As in `BM25`.
        b: As in `BM25`.
    """
    corpus_digest = content_digest(corpus)
    # All that the arrays depend on, besides the version of the index.
    settings = [
        TITLE_WEIGHT,
        k1,
        b,
        version("bm25s"),
        version("PyStemmer"),
        unicodedata.unidata_version,
        corpus_digest,
    ]
    key_of_version = {
        index_version: digest_values([index_version, *settings])
        for index_version in range(1, _INDEX_VERSION + 1)
    }
    current_key = key_of_version.pop(_INDEX_VERSION)

    def read_and_build() -> Arrays:
        passages = read_corpus(corpus)
        # If somebody writes the file meanwhile, the index must not be cached under the old digest.
        if content_digest(corpus) != corpus_digest:
            raise ValueError(
                f"the corpus {corpus} changed while it was read; try again when it is complete"
            )
        return _build_index(passages, k1=k1, b=b)

    return load_or_make_arrays(
        cache, current_key, read_and_build, earlier_keys=list(key_of_version.values())
    )


def _build_index(passages: Sequence[Passage], *, k1: float, b: float) -> Arrays:
    """Return all arrays of an index by name; raises ValueError if there are no passages.

    They are those of the three indexes (words, unspaced text and titles), and the passages
    themselves in the two arrays of `Texts`: a JSON list [id, title, text] for each passage.
    """
    if not passages:
        raise ValueError("there are no passages to search; give at least one")
    passage_terms: list[list[str]] = []
    for passage in track(passages, "indexing", len(passages)):
        title_terms = stem_words(passage.title) * TITLE_WEIGHT
        passage_terms.append(title_terms + stem_words(passage.text))
    passage_data, passage_ends = join_texts(
        json.dumps([passage.id, passage.title, passage.text]).encode() for passage in passages
    )
    return {
        "passages": passage_data,
        "passage_ends": passage_ends,
        **_build_term_index(passage_terms, prefix="", engine=_make_engine(k1, b)),
        **_build_unspaced_index(passages, engine=_make_engine(k1, b)),
        **_build_title_index(passages),
    }


def _build_term_index(text_terms: list[list[str]], *, prefix: str, engine: Any) -> Arrays:
    """Return the arrays of a `_TermIndex`.

    Args:
        text_terms: The terms of each text, repeated as often as they count.
        prefix: Put in front of the arrays' names.
        engine: A `bm25s.BM25`, which computes the scores.

    Returns:
        `words` and `word_ends`, the sorted vocabulary as arrays of `Texts`, and the score of each
        term in each text that has it, as a sparse matrix by columns (CSC): term i has `scores[j]`
        in text `rows[j]` for j from `starts[i]` to `starts[i + 1]`.
    """
    distinct_terms: set[str] = set()
    for terms in text_terms:
        distinct_terms.update(terms)
    vocabulary = sorted(distinct_terms, key=str.encode)  # by bytes, as `Texts.find` compares
    word_data, word_ends = join_texts(term.encode() for term in vocabulary)
    arrays: Arrays = {"words": word_data, "word_ends": word_ends}
    if vocabulary:
        id_of_term = {term: term_id for term_id, term in enumerate(vocabulary)}
        text_term_ids = [[id_of_term[term] for term in terms] for terms in text_terms]
        engine.index((text_term_ids, id_of_term), create_empty_token=False, show_progress=False)
        for bm25s_name, array_name in _MATRIX_ARRAYS.items():
            arrays[array_name] = engine.scores[bm25s_name]
    else:
        # The texts have no terms. bm25s would divide by their mean length, which is 0.
        arrays["scores"] = np.zeros(0, np.float32)
        arrays["rows"] = np.zeros(0, np.int32)
        arrays["starts"] = np.zeros(1, np.int64)
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _build_unspaced_index(passages: Sequence[Passage], *, engine: Any) -> Arrays:
    """Return the arrays of the index of text in scripts without spaces between words.

    Args:
        passages: The corpus. Only the passages with such text are indexed.
        engine: A `bm25s.BM25`, which computes the scores.

    Returns:
        The arrays of a `_TermIndex` with the prefix `unspaced_`, and `unspaced`, the positions of
        the indexed passages in the corpus.
    """
    corpus_rows: list[int] = []
    passage_terms: list[list[str]] = []
    for corpus_row, passage in enumerate(passages):
        if has_unspaced(passage.title) or has_unspaced(passage.text):
            title_terms = _split_unspaced(passage.title) * TITLE_WEIGHT
            corpus_rows.append(corpus_row)
            passage_terms.append(title_terms + _split_unspaced(passage.text))
    term_arrays = _build_term_index(passage_terms, prefix="unspaced_", engine=engine)
    return {"unspaced": np.array(corpus_rows, np.int64), **term_arrays}


def _split_unspaced(text: str) -> list[str]:
    """Return the terms of unspaced text: characters, pairs of them, stems of enclosed words."""
    characters, enclosed_words = split_passage(text)
    if not enclosed_words:
        return characters
    return characters + stem_words(" ".join(enclosed_words))


def _build_title_index(passages: Sequence[Passage]) -> Arrays:
    """Return the arrays of `_StopWordTitles`: which titles have which stop words.

    Returns:
        `title_words` and `title_word_ends`, the stop words in titles, sorted, as arrays of `Texts`.
        For j from `title_starts[i]` to `title_starts[i + 1]`, word i is in the title of passage
        `title_rows[j]`, which has `title_sizes[j]` different words.
    """
    stop_words = _load_stop_words()
    rows_of_word: dict[str, list[int]] = {}
    title_size_of_row: dict[int, int] = {}
    for row, passage in enumerate(passages):
        title_words = set(fold_words(passage.title))
        for word in title_words & stop_words:
            rows_of_word.setdefault(word, []).append(row)
            title_size_of_row[row] = len(title_words)
    vocabulary = sorted(rows_of_word, key=str.encode)  # by bytes, as `Texts.find` compares
    word_data, word_ends = join_texts(word.encode() for word in vocabulary)
    rows: list[int] = []
    starts = [0]
    for word in vocabulary:
        rows += rows_of_word[word]
        starts.append(len(rows))
    title_sizes = [title_size_of_row[row] for row in rows]
    return {
        "title_words": word_data,
        "title_word_ends": word_ends,
        "title_rows": np.array(rows, np.int64),
        "title_sizes": np.array(title_sizes, np.int64),
        "title_starts": np.array(starts, np.int64),
    }


def _find_terms(vocabulary: Texts, terms: Iterable[str]) -> list[int]:
    """Return the positions, in a sorted vocabulary, of those `terms` that it has."""
    positions = [vocabulary.find(term.encode()) for term in terms]
    return [position for position in positions if position is not None]


def _make_engine(k1: float, b: float) -> Any:
    """Return an empty `bm25s.BM25`."""
    bm25s = _import_library("bm25s")
    # On import bm25s sets its logger to DEBUG, which would show its messages in every user's logs.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s.BM25(k1=k1, b=b)


@cache_result
def _load_stop_words() -> frozenset[str]:
    """Return the English stop words of bm25s, without those that are also words with a meaning."""
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
