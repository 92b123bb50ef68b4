"""Search by meaning: inner products of a query's vector with those of the passages.

All vectors are compared exactly, as in Karpukhin et al., EMNLP 2020 (arXiv:2004.04906), section 3.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..http.failures import Fault
from .corpus import rank_top_k
from .retriever import Passage, SearchFailure

_TEXTS_PER_CALL = 1024  # texts per call of an encoder
Encode: TypeAlias = Callable[[list[str]], Any]  # n texts to an array [n, d]


class Dense:
    """A retriever that ranks passages by the inner product of their vectors with that of the query.

    Args:
        passages: What is searched. The text that is encoded is the title, a line break and the
            text.
        encode: Turns n texts into an array [n, d]; it is called from any thread.
        query_prefix: Put in front of every query: "query: " for the E5 models.
        passage_prefix: Put in front of every passage: "passage: " for the E5 models.

    Raises:
        ValueError: There are no passages, or `encode` does not return one finite vector per text.
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
        self._passages = passages
        self._encode = encode
        self._query_prefix = query_prefix
        texts = [f"{passage_prefix}{passage.title}\n{passage.text}" for passage in passages]
        vector_batches: list[NDArray[np.float32]] = []
        for start in range(0, len(texts), _TEXTS_PER_CALL):
            text_batch = texts[start : start + _TEXTS_PER_CALL]
            vector_batches.append(_encode_texts(encode, text_batch))
        self._vectors = np.concatenate(vector_batches)  # [passages, d]

    @property
    def name(self) -> str:
        return f"vectors of {len(self._passages):,} passages"

    def search(self, query: str, k: int) -> list[Passage]:
        """Return up to `k` passages, best first; equal scores keep the order of the passages.

        A blank query finds nothing.

        Raises:
            ValueError: `k` is less than 1.
            SearchFailure: The encoder failed.
        """
        if k < 1:
            raise ValueError(f"k is {k}; ask for at least one passage")
        if not query.strip():
            return []
        try:
            query_vectors = _encode_texts(self._encode, [f"{self._query_prefix}{query}"])  # [1, d]
            # Not `@`, because the last bits of a BLAS product depend on memory alignment and
            # threads, and an episode must be the same when it is played again.
            scores: NDArray[np.float32] = np.einsum("nd,d->n", self._vectors, query_vectors[0])
        except ValueError as error:
            raise SearchFailure(Fault.MALFORMED, f"the query has no vector: {error}") from error
        except Exception as error:
            raise SearchFailure(
                Fault.STATUS, f"the encoder failed: {type(error).__name__}: {error}"
            ) from error
        best_rows = rank_top_k(scores, k).tolist()
        return [replace(self._passages[row], score=float(scores[row])) for row in best_rows]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def load_encoder(name: str, *, device: str | None = None, normalize: bool = True) -> Encode:
    """Load a sentence-transformers model and return its encoding function.

    Args:
        name: The model's name or folder.
        device: As torch names it; None leaves the choice to sentence-transformers.
        normalize: Whether vectors get length 1, so that their inner product is a cosine.

    Returns:
        A function that turns n texts into an array [n, d]; any thread may call it.

    Raises:
        ImportError: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(
            f'vectors need sentence-transformers ({error}): pip install "turngym[dense]"'
        ) from error
    model = SentenceTransformer(name, device=device)
    lock = threading.Lock()  # fast tokenizers raise if two threads use them at once

    def encode(texts: list[str]) -> NDArray[np.float32]:
        with lock:
            vectors = model.encode(texts, normalize_embeddings=normalize, show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    return encode


def _encode_texts(encode: Encode, texts: list[str]) -> NDArray[np.float32]:
    """Return the vectors of n texts, [n, d], after checking what the encoder returned.

    Raises:
        ValueError: The encoder did not return one finite vector for each text.
    """
    vectors = np.asarray(encode(texts), np.float32)
    is_one_row_per_text = vectors.ndim == 2 and len(vectors) == len(texts)
    if not is_one_row_per_text or not np.isfinite(vectors).all():
        raise ValueError(
            f"the encoder returned an array {list(vectors.shape)} for {len(texts)} texts; "
            "it must hold one finite vector a text"
        )
    return vectors
