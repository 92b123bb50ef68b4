"""The forward passes of the embedded engine, shaped so that a row's numbers depend on that row alone.

Matrix products give a row the same bits whatever the row count, as long as it is a multiple of `Runner.rows`, but not
when the length they sum over changes. So a chunk is padded to multiples that follow from its own conversation and runs
with its equals; decoding has one query a head, where a wider masked window adds exact zeros in the same order.
"""

import ctypes
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache

T = TypeVar("T")
CHUNK = 32  # chunks are padded to a multiple of this many tokens
PAYS, MEASURES = (
    1.25,
    0.5,
)  # times as fast that twice the threads have to be, and seconds to find that
WINDOW = 64  # and see a multiple of this many positions; below 64 small heads take another matrix product


def ceil_to(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def chunk_shape(start: int, stop: int) -> tuple[int, int]:
    """Return padded queries and visible positions of a chunk at positions `start` to `stop` (tokens)."""
    queries = ceil_to(stop - start, CHUNK)
    return queries, ceil_to(start + queries, WINDOW)


@dataclass(frozen=True)
class Part:
    """What is fed to several conversations alike.

    `tokens` [r, q] go to `positions` [r, q] of slots `index` [r], which see what lies below `window`. `rows` selects
    the same slots, as a slice where that spares a copy. `blocks` [r, window / WINDOW] are the slots that hold the
    tokens that are seen, where they are others.
    """

    tokens: Tensor
    positions: Tensor
    index: Tensor
    rows: slice | Tensor
    window: int
    blocks: Tensor | None = None


class Runner(ABC):
    """Feeds tokens of conversations and keeps their keys and values: those of slot i at position p of row i.

    What lies beyond a row's length is garbage that no mask shows and the next write replaces: padding may write there.
    """

    rows = 8  # decoding runs a multiple of this many

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.forget()

    def forget(self) -> None:
        """Drop what is cached: numbers that are not finite would spoil other rows."""
        self._cache: list[tuple[Tensor, Tensor]] = []
        self._slots = self._width = 0

    @property
    def nbytes(self) -> int:
        """Bytes of what is cached and of the room around it."""
        return sum(part.nbytes for layer in self._cache for part in layer)

    @torch.inference_mode()
    def prefill(
        self, slots: Sequence[int], starts: Sequence[int], chunks: Sequence[NDArray[np.int64]]
    ) -> None:
        """Write chunks (token ids [q_i]) into `slots` from positions `starts` on; those of one shape are one part."""
        alike: dict[tuple[int, int], list[int]] = {}
        for i, (start, chunk) in enumerate(zip(starts, chunks)):
            alike.setdefault(chunk_shape(start, start + len(chunk)), []).append(i)
        self._begin(slots, starts, max(window for _, window in alike))
        parts = []
        for (queries, window), rows in alike.items():
            tokens = np.zeros((len(rows), queries), np.int64)
            for row, i in zip(tokens, rows):
                row[: len(chunks[i])] = chunks[i]
            parts.append(
                self._part([slots[i] for i in rows], [starts[i] for i in rows], tokens, window)
            )
        self._forward(parts, logits=False)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], lengths: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Append `tokens[i]` to `slots[i]`, which holds `lengths[i]`; float32 logits [n, vocabulary] of what follows.

        n is a multiple of `rows`; to make it one, a slot may be fed twice, alike.
        """
        window = ceil_to(1 + max(lengths), WINDOW)
        self._begin(slots, lengths, window)
        part = self._part(slots, lengths, np.array(tokens, np.int64)[:, None], window)
        return self._forward([part], logits=True).float()

    def _part(
        self, slots: Sequence[int], starts: Sequence[int], tokens: NDArray[np.int64], window: int
    ) -> Part:
        """Return a part of `tokens` [r, q] for `slots` [r] from positions `starts` [r] on."""
        index = self._tensor(np.array(slots))
        positions = self._tensor(np.array(starts))[:, None] + torch.arange(
            tokens.shape[1], device=self.device
        )
        whole = all(slot == slots[0] + i for i, slot in enumerate(slots))
        rows = slice(slots[0], slots[0] + len(slots)) if whole else index
        return Part(self._tensor(tokens), positions, index, rows, window)

    def _begin(self, slots: Sequence[int], starts: Sequence[int], window: int) -> None:
        """Prepare for what will be written to `slots` from positions `starts` on."""
        self.reserve(max(slots) + 1, window)

    @torch.inference_mode()
    def reserve(self, slots: int, width: int) -> None:
        """Make room for `slots` rows of `width` positions, at least doubling so that growth costs linear time."""
        if slots <= self._slots and width <= self._width:
            return
        self._slots = (
            max(ceil_to(slots, 8), 2 * self._slots) if slots > self._slots else self._slots
        )
        self._width = (
            max(ceil_to(width, WINDOW), 2 * self._width) if width > self._width else self._width
        )
        for layer, old in enumerate(self._cache):
            have, heads, size, wide = old[0].shape
            self._cache[layer] = keys, values = self._room(heads, size, old[0].dtype)
            keys[:have, ..., :wide], values[:have, :, :wide] = old

    @torch.inference_mode()
    def copy(self, source: int, targets: Sequence[int], length: int, start: int = 0) -> None:
        """Give `targets` what `source` holds from position `start` to `length`; with none, `source` is free again."""
        if not targets:
            return
        self.reserve(max(targets) + 1, 0)
        index = self._tensor(np.array(targets))
        for keys, values in self._cache:
            keys[index, ..., start:length] = keys[
                source, ..., start:length
            ].clone()  # torch refuses what overlaps
            values[index, :, start:length] = values[source, :, start:length].clone()

    def refresh(self) -> None:  # noqa: B027 (a runner of the model itself has nothing to do)
        """Take the weights as they are now."""

    @abstractmethod
    def _forward(self, parts: Sequence[Part], *, logits: bool) -> Tensor:
        """Feed all parts; with `logits`, return those [r, vocabulary] behind the last tokens of the last part."""

    def _layer(
        self, number: int, heads: int, size: int, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """A layer's keys `[slots, heads, d, positions]` and values `[slots, heads, positions, d]`."""
        if number == len(self._cache):
            self._cache.append(self._room(heads, size, kind))
        return self._cache[number]

    def _mask(
        self, positions: Tensor, window: int, kind: torch.dtype, size: int | None = None
    ) -> Tensor:
        """Return what is added to scores, `[..., q, window]`; `size` is the layer's own window (tokens)."""
        at, own = torch.arange(window, device=self.device), positions[..., None]
        unseen = at > own if size is None else (at > own) | (at <= own - size)
        return torch.zeros(unseen.shape, dtype=kind, device=self.device).masked_fill_(
            unseen, torch.finfo(kind).min
        )

    def _room(self, heads: int, size: int, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        new = partial(torch.zeros, dtype=kind, device=self.device)
        return new(self._slots, heads, size, self._width), new(
            self._slots, heads, self._width, size
        )

    def _tensor(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


class SlotCache(Cache):
    """What layers of `transformers` see of a runner's cache."""

    def __init__(self, runner: Runner, part: Part) -> None:
        super().__init__(layers=[])
        self._runner, self._part = runner, part

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [r, kv_heads, q, head_dim]; return what is seen, [r, kv_heads, window, head_dim]."""
        all_keys, all_values = self._runner._layer(
            layer_idx, keys.shape[1], keys.shape[3], keys.dtype
        )
        part = self._part
        all_keys[part.index[:, None], :, :, part.positions] = keys.transpose(1, 2)
        all_values[part.index[:, None], :, part.positions] = values.transpose(1, 2)
        seen = all_keys[..., : part.window][part.rows], all_values[:, :, : part.window][part.rows]
        return seen[0].transpose(2, 3), seen[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Rows differ in length, so there is none for all; positions and masks are always given to the model."""
        return 0


class Fallback(Runner):
    """Runs a causal LM of `transformers` over a slot cache, its layers with full attention or a sliding window."""

    def __init__(self, model: Any, device: torch.device, max_context: int) -> None:
        super().__init__(device)
        self.model, self.max_context = model, max_context

    def _forward(self, parts: Sequence[Part], *, logits: bool) -> Tensor:
        for part in parts:
            mask = self._attention_mask(part)
            # Padding may lie past the context, where the model has no position.
            at, kept = (
                part.positions.clamp(max=self.max_context - 1),
                {"use_cache": True, "logits_to_keep": 1},
            )
            seen = {
                "attention_mask": mask,
                "position_ids": at,
                "past_key_values": SlotCache(self, part),
            }
            out = self.model(input_ids=part.tokens, **seen, **kept)
        found: Tensor = out.logits[:, -1]
        return found

    def _attention_mask(self, part: Part) -> Tensor | dict[str, Tensor]:
        """Return the mask of all layers, or of each type of layer if some attend within a window."""
        config = self.model.config
        mask = partial(self._mask, part.positions[:, None], part.window, self.model.dtype)
        sliding_window = getattr(config, "sliding_window", None)
        layer_types = getattr(config, "layer_types", None)
        if layer_types is None:
            return mask(sliding_window)
        if "sliding_attention" not in layer_types:
            return mask()
        return {"full_attention": mask(), "sliding_attention": mask(sliding_window)}


@torch.no_grad()
def distance_from_model(model: Any, runner: Runner, vocabulary: int) -> float:
    """Return how far a runner's logits are from those of the model's own forward pass.

    The unit is the change of the logits by another beginning of the text.
    """
    rng = np.random.Generator(np.random.Philox(key=0))
    tokens, others = rng.integers(0, vocabulary, (2, WINDOW + 16))
    others[WINDOW // 2 :] = tokens[WINDOW // 2 :]
    expected, elsewhere = (
        model(input_ids=torch.from_numpy(text)[None].to(runner.device), use_cache=False)
        .logits[0, -1]
        .float()
        for text in (tokens, others)
    )
    last = len(tokens) - 1
    runner.prefill([0], [0], [tokens[:last]])
    logits = runner.decode(
        [0] * runner.rows, [last] * runner.rows, [int(tokens[last])] * runner.rows
    )[0]
    return float((logits - expected).abs().max() / (elsewhere - expected).abs().max())


def batch_dependence(make: Callable[[], Runner], vocabulary: int, rows: int) -> str:
    """Compare one conversation's logits alone and in a full batch of longer ones; "" where every bit agrees.

    Otherwise the text says by how much they differ, and sampled tokens may then depend on what else is in flight.
    """
    alone, crowd = make(), make()
    length, fed = WINDOW - 2, min(rows, 8)  # decoding crosses into the next window
    tokens = np.random.Generator(np.random.Philox(key=0)).integers(
        0, vocabulary, size=(rows, length + 4)
    )
    tokens[-1] = tokens[0]
    alone.prefill([0], [0], [tokens[0, :length]])
    crowd.prefill(
        [*range(rows - fed, rows)], [0] * fed, [*tokens[-fed:, :length]]
    )  # what others hold plays no part
    others = WINDOW + np.arange(rows) * 2 * WINDOW // rows
    differ = 0.0
    for at in range(length, length + 4):
        lengths = np.where(np.arange(rows) == rows - 1, at, others).tolist()
        many = crowd.decode(range(rows), lengths, tokens[:, at].tolist())[-1]
        few = alone.decode([0] * alone.rows, [at] * alone.rows, [int(tokens[0, at])] * alone.rows)[
            0
        ]
        differ = max(differ, float((many - few).abs().max()))
    return (
        f"logits of one row differ by up to {differ:.1e} between 1 and {rows} rows in flight"
        if differ
        else ""
    )


def paying_threads(make: Callable[[], Runner], vocabulary: int, rows: int, most: int) -> int:
    """Return how many of at most `most` threads draw fastest, to the same bits; the calling thread has as many then.

    Twice as many have to be `PAYS` times as fast in the median of pairs: environments compute, too.
    """
    runner, chosen = make(), 1
    tokens = np.random.Generator(np.random.Philox(key=0)).integers(0, vocabulary, (2, WINDOW - 2))

    def draw(threads: int) -> tuple[Tensor, float]:
        torch.set_num_threads(threads)
        began = time.perf_counter()
        runner.prefill([0, 1], [0, 0], [*tokens])
        logits = runner.decode(range(rows), [WINDOW - 2] * rows, [0] * rows)
        return logits, time.perf_counter() - began

    while (more := 2 * chosen) <= most:
        began, gains = time.perf_counter(), list[float]()
        while len(gains) < 6 and (not gains or time.perf_counter() - began < MEASURES):
            (bits, few), (others, many) = draw(chosen), draw(more)
            gains.append(few / many if torch.equal(bits, others) else 0.0)
        if median(gains[1:] or gains) < PAYS:  # the first starts the threads
            break
        chosen = more
    torch.set_num_threads(chosen)
    return chosen


def set_threads(worker: ThreadPoolExecutor, choose: Callable[..., T], *given: Any) -> T:
    """Let a thread choose its own count: torch keeps one per thread, and the last one set for threads yet to start."""
    others = torch.get_num_threads()
    worker.submit(
        torch.get_num_threads
    ).result()  # a thread's first use would overwrite what was set before it
    chosen = worker.submit(choose, *given).result()
    torch.set_num_threads(others)
    return chosen


def keep_memory() -> None:
    """Let glibc keep what is freed (up to 256 MiB), as the tensors of every step would fault their pages in again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, most in (
        (-3, 32 << 20),
        (-1, 256 << 20),
    ):  # M_MMAP_THRESHOLD at its limit, M_TRIM_THRESHOLD
        if mallopt is not None:
            mallopt(parameter, most)
