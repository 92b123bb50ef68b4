"""The dense back end: passages and queries as vectors of an encoder, compared by exact inner product.

Dense passage retrieval as in Karpukhin et al., EMNLP 2020 (arXiv:2004.04906), section 3, without an approximate index.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..http.core import Fault
from .cache import Arrays, digest, kept
from .core import Passage, SearchFailure
from .index import best, content_digest

Encode: TypeAlias = Callable[[list[str]], Any]  # n texts to an array [n, d]

_BATCH = 1024  # texts that an encoder is given at once
_ROWS = 65536  # vectors that are compared at once, which bounds their copies in float32


class Dense:
    """A back end that finds the passages whose vectors fit that of the query best.

    Args:
        passages: The passages.
        encode: Turns n texts into an array [n, d]; called from any thread.
        cache: The folder that keeps the vectors; None keeps nothing.
        encoder: What `encode` is, for the cache: vectors of one encoder are never taken for those of another.
        query_prefix: Put before each query; "query: " for the E5 models.
        passage_prefix: Put before each passage, which is its title, a line break and its text; "passage: " for E5.
        dtype: How vectors are kept; float16 halves their size.

    Raises:
        ValueError: there are no passages, a cache is given without the encoder's name, or `encode` does not return one
            finite vector a text.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        encode: Encode,
        cache: Path | None = None,
        *,
        encoder: str = "",
        query_prefix: str = "",
        passage_prefix: str = "",
        dtype: Literal["float32", "float16"] = "float32",
    ) -> None:
        if not passages:
            raise ValueError("there are no passages to search; give at least one")
        if cache and not encoder:
            raise ValueError("vectors can be kept only under their encoder's name; give encoder=")
        self._passages, self._encode, self._prefix = passages, encode, query_prefix
        key = digest(["dense", encoder, passage_prefix, dtype, content_digest(passages) if cache else ""])
        self._vectors = kept(cache, key, partial(_built, passages, encode, passage_prefix, dtype))["vectors"]

    @property
    def name(self) -> str:
        """What is searched, for messages."""
        return f"vectors of {len(self._passages):,} passages"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first, ties in the order of the corpus; none for an empty query.

        Raises:
            SearchFailure: the encoder failed.
        """
        if k < 1:
            raise ValueError(f"k is {k}; ask for at least one passage")
        if not query.strip():
            return []
        vector = self._vector(f"{self._prefix}{query}")
        scores = np.concatenate(
            [_products(self._vectors[i : i + _ROWS], vector) for i in range(0, len(self._vectors), _ROWS)]
        )
        found = ((self._passages[i], float(scores[i])) for i in best(scores, k).tolist())
        return [Passage(passage.id, passage.title, passage.text, score) for passage, score in found]

    def close(self) -> None:
        """Do nothing: the file is closed already, and its pages go with the last use of this object."""

    def _vector(self, text: str) -> NDArray[np.float32]:
        try:
            vectors = _vectors(self._encode, [text])
        except ValueError as error:
            raise SearchFailure(Fault.MALFORMED, f"the query has no vector: {error}") from error
        except Exception as error:
            raise SearchFailure(Fault.STATUS, f"the encoder failed: {type(error).__name__}: {error}") from error
        if vectors.shape[1] != self._vectors.shape[1]:
            raise SearchFailure(
                Fault.MALFORMED,
                f"the query's vector has {vectors.shape[1]} numbers and those of passages have "
                f"{self._vectors.shape[1]}; another encoder made them",
            )
        vector: NDArray[np.float32] = vectors[0]
        return vector


def load_encoder(name: str, *, device: str | None = None, normalize: bool = True) -> Encode:
    """Return the `encode` of a sentence-transformers model, by its name or folder.

    Args:
        name: The model.
        device: Where it runs; None leaves the choice to sentence-transformers.
        normalize: Whether vectors get length 1, so that their inner product is a cosine.

    Raises:
        ImportError: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(f'vectors need sentence-transformers ({error}): pip install "turngym[dense]"') from error
    model = SentenceTransformer(name, device=device)
    lock = threading.Lock()  # a fast tokenizer refuses a second caller

    def encode(texts: list[str]) -> NDArray[np.float32]:
        with lock:
            vectors = model.encode(
                texts, normalize_embeddings=normalize, convert_to_numpy=True, show_progress_bar=False
            )
        return np.asarray(vectors, np.float32)

    return encode


def _built(passages: Sequence[Passage], encode: Encode, prefix: str, dtype: str) -> Arrays:
    texts = [f"{prefix}{passage.title}\n{passage.text}" for passage in passages]
    made = [_vectors(encode, texts[i : i + _BATCH]).astype(dtype) for i in range(0, len(texts), _BATCH)]
    return {"vectors": np.concatenate(made)}


def _vectors(encode: Encode, texts: list[str]) -> NDArray[np.float32]:
    vectors = np.asarray(encode(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ValueError(
            f"the encoder returned an array {list(vectors.shape)} for {len(texts)} texts; it must hold one finite "
            "vector a text"
        )
    return vectors


def _products(vectors: NDArray[Any], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the inner product of each row with a vector; einsum, as the bits of BLAS depend on place and threads."""
    products: NDArray[np.float32] = np.einsum("nd,d->n", vectors.astype(np.float32, copy=False), vector)
    return products
