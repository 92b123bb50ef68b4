"""The embedded back end by words: BM25 over a corpus, its index kept on disk and mapped into memory.

Scores are those of Lucene's BM25 (Kamphuis et al., ECIR 2020, table 1), worked out by bm25s (Lù, 2024,
arXiv:2407.03618). The words of a title count several times: weighted fields (Robertson et al., CIKM 2004, section 3).
Text without blanks between words has an index of its own (see `unspaced`), whose scores are added: so it changes none
of other text. A query of stop words alone is looked up in the titles.
"""

import json
import logging
import threading
import unicodedata
from collections.abc import Sequence
from functools import cache as once
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..progress import track
from .array_cache import Arrays, Texts, cache_folder, digest, joined, kept
from .corpus import best, content_digest, read_corpus
from .retriever import Passage
from .unspaced import folded, has_unspaced, pieces, sought, without_unspaced

TITLE = 3  # how often the words of a title count
_VERSION = 2  # of `words` and of what an index holds
_own = threading.local()  # a stemmer is not for several threads at once
_MATRIX = {
    "data": "scores",
    "indices": "rows",
    "indptr": "starts",
}  # what bm25s and we call its parts


class BM25:
    """A back end over passages in memory, or over the corpus file of a path that `read_corpus` reads.

    cache: The folder that keeps the index of a file; None keeps nothing.
    k1: How slowly the weight of a word saturates with its count; 0 counts only whether it is there.
    b: How much the length of a passage counts, 0 to 1.

    Raises FileNotFoundError, and ValueError for a corpus not as described, `k1` or `b` out of range, a missing package.
    """

    def __init__(
        self,
        passages: Sequence[Passage] | Path,
        cache: Path | None = None,
        *,
        k1: float = 1.5,
        b: float = 0.75,
    ) -> None:
        if not 0 <= k1 < float("inf") or not 0 <= b <= 1:
            raise ValueError(f"k1 is {k1} and b is {b}; k1 is 0 or more, and b from 0 to 1")
        if isinstance(passages, Path):
            content = content_digest(passages)
            settings = [
                TITLE,
                k1,
                b,
                version("bm25s"),
                version("PyStemmer"),
                unicodedata.unidata_version,
                content,
            ]
            keys = [digest([number, *settings]) for number in range(1, _VERSION + 1)]
            arrays = kept(cache, keys[-1], partial(_built, passages, k1, b, content), keys[:-1])
        else:
            arrays = _built(passages, k1, b)
        self._passages = Texts(arrays["passages"], arrays["passage_ends"])
        self._words = _Words(arrays, "", _engine(k1, b), len(self._passages))
        self._unspaced = _Words(arrays, "unspaced_", _engine(k1, b), len(arrays["unspaced"]))
        self._places: NDArray[np.int64] = arrays[
            "unspaced"
        ]  # which passages hold text without blanks between words
        self._titles = _Titles(arrays)

    @property
    def name(self) -> str:
        return f"BM25 over {len(self._passages):,} passages"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages that share a word with `query`, best first, ties in the order of the corpus.

        Of text without blanks between words a pair of characters counts as a word. A query of stop words alone finds
        titles with these; their score is the share of all words of query and title that is in both.
        """
        if k < 1:
            raise ValueError(f"k is {k}; ask for at least one passage")
        scores = self._scores(query)
        if scores is None:
            return []
        hits = np.flatnonzero(scores)
        shown = (
            (json.loads(self._passages[i]), float(scores[i]))
            for i in hits[best(scores[hits], k)].tolist()
        )
        return [Passage(key, title, text, score) for (key, title, text), score in shown]

    def _scores(self, query: str) -> NDArray[np.float32] | None:
        """Return the score of each passage, 0 where it does not fit; None where none does."""
        counted, characters = words(query), list[str]()
        enclosed = counted
        if has_unspaced(query):
            characters, enclosed = sought(query), words(without_unspaced(query))
            counted = [word for word in counted if has_unspaced(word)] + enclosed
        elif not counted:
            return self._titles.scores(folded(query), len(self._passages))
        scores = self._words.scores(counted)
        if scores is not None and not characters:
            return scores
        more = self._unspaced.scores(characters + enclosed)
        if more is None:
            return scores
        scores = np.zeros(len(self._passages), np.float32) if scores is None else scores
        scores[self._places] += more
        return scores

    def close(self) -> None:
        """Do nothing: the file is closed already, and its pages go with the last use of this object."""


class _Words:
    """The scores of each word in each of some texts."""

    def __init__(self, arrays: Arrays, prefix: str, engine: Any, texts: int) -> None:
        self._words = Texts(arrays[f"{prefix}words"], arrays[f"{prefix}word_ends"])
        matrix = {name: arrays[f"{prefix}{key}"] for name, key in _MATRIX.items()}
        self._engine = engine
        self._engine.scores = {**matrix, "num_docs": texts}
        self._engine.nonoccurrence_array = None  # only other kinds of BM25 have one

    def scores(self, words: Sequence[str]) -> NDArray[np.float32] | None:
        """Return the score of each text; None where no word is known."""
        known = [i for word in words if (i := self._words.find(word.encode())) is not None]
        if not known:
            return None
        scores: NDArray[np.float32] = self._engine.get_scores_from_ids(known)
        return scores


class _Titles:
    """The titles that hold stop words: for each such word the passages, and how many words their titles have."""

    def __init__(self, arrays: Arrays) -> None:
        self._words = Texts(arrays["title_words"], arrays["title_word_ends"])
        self._rows, self._sizes, self._starts = (
            arrays[f"title_{name}"] for name in ("rows", "sizes", "starts")
        )

    def scores(self, words: Sequence[str], passages: int) -> NDArray[np.float32] | None:
        """Return |Q ∩ T| / |Q ∪ T| for the words Q of a query and T of each title; None where none shares a word."""
        asked = set(words)
        known = [i for word in asked if (i := self._words.find(word.encode())) is not None]
        if not known:
            return None
        spans = [slice(self._starts[i], self._starts[i + 1]) for i in known]
        rows, sizes = (
            np.concatenate([array[span] for span in spans]) for array in (self._rows, self._sizes)
        )
        titles, first, shared = np.unique(rows, return_index=True, return_counts=True)
        scores = np.zeros(passages, np.float32)
        scores[titles] = shared / (sizes[first] + len(asked) - shared)
        return scores


def open_index(
    path: str | Path, cache_dir: str | Path | None = None, *, k1: float = 1.5, b: float = 0.75
) -> BM25:
    """Return the back end over a corpus file, its index kept in `cache_dir` or the user's cache; raises as `BM25`."""
    return BM25(Path(path), Path(cache_dir) if cache_dir else cache_folder(), k1=k1, b=b)


def words(text: str) -> list[str]:
    """Return what is counted of a text: stems of its words, in lower case, without accents and stop words.

    Words are runs of letters and digits; stems are those of Porter's second English stemmer (snowballstem.org).
    """
    stop = _stop_words()
    kept_words = [word for word in folded(text) if word not in stop]
    if not hasattr(_own, "stemmer"):  # one for each thread: it is not for several at once
        _own.stemmer = _library("Stemmer").Stemmer(
            "english", 0
        )  # 0: its cache would hold words of any length
    return list(_own.stemmer.stemWords(kept_words))


def _built(passages: Sequence[Passage] | Path, k1: float, b: float, content: str = "") -> Arrays:
    if isinstance(passages, Path):
        path, passages = passages, read_corpus(passages)
        if content_digest(path) != content:
            raise ValueError(
                f"the corpus {path} changed while it was read; try again when it is complete"
            )
    if not passages:
        raise ValueError("there are no passages to search; give at least one")
    going = track(passages, "indexing", len(passages))
    counted = [words(passage.title) * TITLE + words(passage.text) for passage in going]
    data, ends = joined(
        json.dumps([passage.id, passage.title, passage.text]).encode() for passage in passages
    )
    made: Arrays = {"passages": data, "passage_ends": ends}
    made |= _matrix(counted, "", _engine(k1, b))
    made |= _unspaced(passages, _engine(k1, b))
    made |= _titles(passages)
    return made


def _matrix(counted: list[list[str]], prefix: str, engine: Any) -> Arrays:
    """Return the arrays of `_Words` for the words of each text."""
    vocabulary = sorted({word for each in counted for word in each}, key=str.encode)
    word_data, word_ends = joined(word.encode() for word in vocabulary)
    made: Arrays = {"words": word_data, "word_ends": word_ends}
    if vocabulary:
        place = {word: i for i, word in enumerate(vocabulary)}
        engine.index(([[place[word] for word in each] for each in counted], place), False, False)
        found = (
            engine.scores
        )  # of each word in each text that has it: scores, texts, and where each word's begin
        made.update({key: found[name] for name, key in _MATRIX.items()})
    else:  # nothing but stop words, and so no mean length to divide by
        made.update(
            scores=np.zeros(0, np.float32), rows=np.zeros(0, np.int32), starts=np.zeros(1, np.int64)
        )
    return {f"{prefix}{name}": array for name, array in made.items()}


def _unspaced(passages: Sequence[Passage], engine: Any) -> Arrays:
    """Return the arrays of the passages that hold text without blanks between words, and which these are."""
    counted, places = list[list[str]](), list[int]()
    for place, passage in enumerate(passages):
        if has_unspaced(passage.title) or has_unspaced(passage.text):
            places.append(place)
            counted.append(_pieces(passage.title) * TITLE + _pieces(passage.text))
    return {"unspaced": np.array(places, np.int64), **_matrix(counted, "unspaced_", engine)}


def _pieces(text: str) -> list[str]:
    characters, enclosed = pieces(text)
    return characters + (words(" ".join(enclosed)) if enclosed else [])


def _titles(passages: Sequence[Passage]) -> Arrays:
    """Return the arrays of `_Titles`."""
    stop, holding, sizes = _stop_words(), dict[str, list[int]](), dict[int, int]()
    for place, passage in enumerate(passages):
        title = set(folded(passage.title))
        for word in title & stop:
            holding.setdefault(word, []).append(place)
            sizes[place] = len(title)
    vocabulary = sorted(holding, key=str.encode)
    word_data, word_ends = joined(word.encode() for word in vocabulary)
    rows = np.array([place for word in vocabulary for place in holding[word]], np.int64)
    return {
        "title_words": word_data,
        "title_word_ends": word_ends,
        "title_rows": rows,
        "title_sizes": np.array([sizes[place] for place in rows.tolist()], np.int64),
        "title_starts": np.cumsum(
            [0, *(len(holding[word]) for word in vocabulary)], dtype=np.int64
        ),
    }


def _engine(k1: float, b: float) -> Any:
    bm25s = _library("bm25s")
    logging.getLogger("bm25s").setLevel(
        logging.WARNING
    )  # it sets DEBUG, and would speak up in everybody's logs
    return bm25s.BM25(k1=k1, b=b)


@once
def _stop_words() -> frozenset[str]:
    # Of the letters only those that an apostrophe leaves behind ("Curie's", "don't") say nothing; "vitamin D" does.
    return frozenset(_library("bm25s.stopwords").STOPWORDS_EN_PLUS) - set("dmoy")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(
            f'the embedded index needs {name} ({error}): pip install "turngym[search]"'
        ) from error
