"""The back end by meaning: vectors of an encoder over a corpus.

Vectors are compared by exact inner product, as in Karpukhin et al., EMNLP 2020 (arXiv:2004.04906), section 3.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..http.failures import Fault
from .corpus import best
from .retriever import Passage, SearchFailure

_BATCH = 1024  # texts that an encoder is given at once
Encode: TypeAlias = Callable[[list[str]], Any]  # n texts to an array [n, d]


class Dense:
    """A back end that finds the passages whose vectors fit that of the query best.

    `encode` turns n texts into an array [n, d]; it is called from any thread. The prefixes are put before each query
    and each passage, which is its title, a line break and its text: "query: " and "passage: " for the E5 models. Raises
    ValueError where there are no passages, or `encode` does not return one finite vector a text.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        encode: Encode,
        *,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        if not passages:
            raise ValueError("there are no passages to search; give at least one")
        self._passages, self._encode, self._prefix = passages, encode, query_prefix
        texts = [f"{passage_prefix}{passage.title}\n{passage.text}" for passage in passages]
        self._vectors = np.concatenate(
            [_vectors(encode, texts[i : i + _BATCH]) for i in range(0, len(texts), _BATCH)]
        )

    @property
    def name(self) -> str:
        return f"vectors of {len(self._passages):,} passages"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first, ties in their order. Raises SearchFailure where the encoder failed."""
        if k < 1:
            raise ValueError(f"k is {k}; ask for at least one passage")
        if not query.strip():
            return []
        try:  # by einsum, as the bits of BLAS depend on place and threads
            vector = _vectors(self._encode, [f"{self._prefix}{query}"])[0]
            scores: NDArray[np.float32] = np.einsum("nd,d->n", self._vectors, vector)
        except ValueError as error:
            raise SearchFailure(Fault.MALFORMED, f"the query has no vector: {error}") from error
        except Exception as error:
            raise SearchFailure(
                Fault.STATUS, f"the encoder failed: {type(error).__name__}: {error}"
            ) from error
        return [
            replace(self._passages[i], score=float(scores[i])) for i in best(scores, k).tolist()
        ]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def load_encoder(name: str, *, device: str | None = None, normalize: bool = True) -> Encode:
    """Return the `encode` of a sentence-transformers model, by its name or folder.

    `device` None leaves the choice to sentence-transformers; with `normalize` vectors get length 1, so that their inner
    product is a cosine. Raises ImportError where sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(
            f'vectors need sentence-transformers ({error}): pip install "turngym[dense]"'
        ) from error
    model = SentenceTransformer(name, device=device)
    lock = threading.Lock()  # a fast tokenizer refuses a second caller

    def encode(texts: list[str]) -> NDArray[np.float32]:
        with lock:
            vectors = model.encode(texts, normalize_embeddings=normalize, show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    return encode


def _vectors(encode: Encode, texts: list[str]) -> NDArray[np.float32]:
    vectors = np.asarray(encode(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        returned = f"the encoder returned an array {list(vectors.shape)} for {len(texts)} texts"
        raise ValueError(f"{returned}; it must hold one finite vector a text")
    return vectors
