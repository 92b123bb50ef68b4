"""The forward passes of the embedded engine, shaped so that a row's numbers depend on that row alone.

Matrix products give a row the same bits whatever the row count, as long as it is a multiple of `Runner.rows`, but not
when the length they sum over changes. So a chunk is padded to multiples that follow from its own conversation and runs
with its equals; decoding has one query a head, where a wider masked window adds exact zeros in the same order.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CHUNK = 32  # chunks are padded to a multiple of this many tokens
WINDOW = 64  # and see a multiple of this many positions; below 64 small heads take another matrix product


def ceil_to(n: int, multiple: int) -> int:
    """`n` rounded up to a multiple."""
    return -(-n // multiple) * multiple


def chunk_shape(start: int, stop: int) -> tuple[int, int]:
    """Return padded queries and visible positions of a chunk at positions `start` to `stop` (tokens)."""
    queries = ceil_to(stop - start, CHUNK)
    return queries, ceil_to(start + queries, WINDOW)


class Runner(ABC):
    """Feeds tokens of conversations and keeps their keys and values: those of slot i at position p of row i.

    What lies beyond a row's length is garbage that no mask shows and the next write replaces; so padding and idle rows
    may write there, and decoding needs no gathered copy of the cache.
    """

    rows = 8  # decoding runs a multiple of this many

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.forget()

    def forget(self) -> None:
        """Drop what is cached: numbers that are not finite would spoil other rows."""
        self._cache: list[tuple[Tensor, Tensor]] = []
        self._slots = self._width = 0

    @torch.inference_mode()
    def prefill(self, slots: Sequence[int], starts: Sequence[int], chunks: Sequence[NDArray[np.int64]]) -> None:
        """Write chunks (token ids [q_i]) of equal `chunk_shape` into `slots` from positions `starts` on."""
        queries, window = chunk_shape(starts[0], starts[0] + len(chunks[0]))
        tokens = np.zeros((len(slots), queries), dtype=np.int64)
        for row, chunk in zip(tokens, chunks):
            row[: len(chunk)] = chunk
        index = self._tensor(np.array(slots))
        positions = self._tensor(np.array(starts))[:, None] + torch.arange(queries, device=self.device)
        rows = slice(slots[0], slots[0] + 1) if len(slots) == 1 else index
        self.reserve(max(slots) + 1, window)
        self._forward(self._tensor(tokens), positions, rows, index, window, logits=False)

    @torch.inference_mode()
    def decode(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64], longest: int) -> Tensor:
        """Append `tokens[i]` to slot i, which holds `lengths[i]`; float32 logits [n, vocabulary] of what follows.

        n is a multiple of `rows`; no slot that matters holds more than `longest`. Idle ones are fed too, which harms
        nothing.
        """
        window = ceil_to(1 + longest, WINDOW)
        self.reserve(len(tokens), max(window, int(lengths.max()) + 1))
        index, positions = torch.arange(len(tokens), device=self.device), self._tensor(lengths)[:, None]
        rows = slice(0, len(tokens))
        return self._forward(self._tensor(tokens)[:, None], positions, rows, index, window, logits=True).float()

    @torch.inference_mode()
    def reserve(self, slots: int, width: int) -> None:
        """Make room for `slots` rows of `width` positions, at least doubling so that growth costs linear time."""
        if slots <= self._slots and width <= self._width:
            return
        if slots > self._slots:
            self._slots = max(ceil_to(slots, 8), 2 * self._slots)
        if width > self._width:
            self._width = max(ceil_to(width, WINDOW), 2 * self._width)
        for layer, old in enumerate(self._cache):
            have, heads, size, wide = old[0].shape
            self._cache[layer] = keys, values = self._room(heads, size, old[0].dtype)
            keys[:have, ..., :wide], values[:have, :, :wide] = old

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """Give slot `target` the first `length` tokens of slot `source`."""
        self.reserve(target + 1, 0)
        for keys, values in self._cache:
            keys[target, ..., :length] = keys[source, ..., :length]
            values[target, :, :length] = values[source, :, :length]

    @torch.inference_mode()
    def exchange(self, one: int, other: int) -> None:
        """Let two slots change places."""
        self.reserve(max(one, other) + 1, 0)
        for cached in (part for layer in self._cache for part in layer):
            cached[[one, other]] = cached[[other, one]]

    def refresh(self) -> None:  # noqa: B027 (a runner of the model itself has nothing to do)
        """Take the weights as they are now."""

    @abstractmethod
    def _forward(
        self, tokens: Tensor, positions: Tensor, rows: slice | Tensor, index: Tensor, window: int, *, logits: bool
    ) -> Tensor:
        """Feed `tokens` [r, q] at `positions` [r, q] of slots `index` [r], which see what lies below `window`.

        `rows` selects the same slots, as a slice where that spares a copy. Returns the logits [r, vocabulary] behind
        the last tokens, or anything where they are not asked for.
        """

    def _layer(self, number: int, heads: int, size: int, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """A layer's keys `[slots, heads, d, positions]` and values `[slots, heads, positions, d]`."""
        if number == len(self._cache):
            self._cache.append(self._room(heads, size, kind))
        return self._cache[number]

    def _room(self, heads: int, size: int, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        new = partial(torch.zeros, dtype=kind, device=self.device)
        return new(self._slots, heads, size, self._width), new(self._slots, heads, self._width, size)

    def _tensor(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def batch_dependence(make: Callable[[], Runner], vocabulary: int, rows: int) -> str:
    """Compare one conversation's logits alone and in a full batch of longer ones; "" where every bit agrees.

    Otherwise the text says by how much they differ, and sampled tokens may then depend on what else is in flight.
    """
    alone, crowd = make(), make()
    length, fed = WINDOW - 2, min(rows, 8)  # decoding crosses into the next window
    tokens = np.random.Generator(np.random.Philox(key=0)).integers(0, vocabulary, size=(rows, length + 4))
    tokens[-1] = tokens[0]
    alone.prefill([0], [0], [tokens[0, :length]])
    crowd.prefill([*range(rows - fed, rows)], [0] * fed, [*tokens[-fed:, :length]])  # what others hold plays no part
    others = WINDOW + np.arange(rows) * 2 * WINDOW // rows
    differ = 0.0
    for at in range(length, length + 4):
        lengths = np.where(np.arange(rows) == rows - 1, at, others)
        many = crowd.decode(tokens[:, at], lengths, int(lengths.max()))[-1]
        one = np.where(np.arange(alone.rows) == 0, at, 0)
        few = alone.decode(tokens[0, one], one, at)[0]
        differ = max(differ, float((many - few).abs().max()))
    return f"logits of one row differ by up to {differ:.1e} between 1 and {rows} rows in flight" if differ else ""


def set_threads(worker: ThreadPoolExecutor, threads: int) -> None:
    """Give one thread its own count: torch keeps counts per thread, and the last one set for threads yet to start."""
    others = torch.get_num_threads()
    worker.submit(torch.get_num_threads).result()  # a thread's first use would overwrite what was set before it
    worker.submit(torch.set_num_threads, threads).result()
    torch.set_num_threads(others)


def keep_memory() -> None:
    """Let glibc keep what is freed (up to 256 MiB), as the tensors of every step would fault their pages in again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, most in ((-3, 32 << 20), (-1, 256 << 20)):  # M_MMAP_THRESHOLD at its limit, M_TRIM_THRESHOLD
        if mallopt is not None:
            mallopt(parameter, most)
