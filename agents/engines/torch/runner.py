"""The forward passes of the embedded engine, shaped so that a row's numbers depend on that row alone.

Matrix products give a row the same bits whatever the row count, as long as it is a multiple of 8, but not when the
length they sum over changes. So a chunk is padded to multiples that follow from its own conversation and runs with its
equals; decoding has one query a head, where a wider masked window adds exact zeros in the same order, or sees whole
blocks of the fused kernel, where a further masked block does.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .attention import BLOCK, attending, shares_keys
from .cache import SlotCache, ceil_to

CHUNK = 32  # chunks are padded to a multiple of this many tokens
WINDOW = 64  # and see a multiple of this many positions; below 64 small heads take another matrix product
ROWS = 8  # decoding runs a multiple of this many rows


def chunk_shape(start: int, stop: int) -> tuple[int, int]:
    """Return padded queries and visible positions of a chunk at positions `start` to `stop` (tokens)."""
    queries = ceil_to(stop - start, CHUNK)
    return queries, ceil_to(start + queries, WINDOW)


class Runner:
    """Runs a causal LM of `transformers` (rotary positions, given 4-D masks) over a slot cache."""

    def __init__(self, model: Any, device: torch.device, max_context: int) -> None:
        self.model, self.device, self.max_context = model, device, max_context
        self.cache = SlotCache()
        self.floor = torch.finfo(model.dtype).min
        self.step = BLOCK if shares_keys(model.config) else WINDOW  # of the windows of decoding

    @torch.inference_mode()
    def prefill(self, slots: Sequence[int], starts: Sequence[int], chunks: Sequence[NDArray[np.int64]]) -> None:
        """Write chunks (token ids [q_i]) of equal `chunk_shape` into `slots` from positions `starts` on."""
        queries, window = chunk_shape(starts[0], starts[0] + len(chunks[0]))
        tokens = np.zeros((len(slots), queries), dtype=np.int64)
        for row, chunk in zip(tokens, chunks):
            row[: len(chunk)] = chunk
        index = torch.tensor(slots, device=self.device)
        positions = torch.tensor(starts, device=self.device)[:, None] + torch.arange(queries, device=self.device)
        rows = slice(slots[0], slots[0] + 1) if len(slots) == 1 else index
        self.cache.reserve(max(slots) + 1, window)
        self.cache.aim(rows, index, positions, window)
        self._forward(self._to_device(tokens), positions, window)

    @torch.inference_mode()
    def decode(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64], longest: int) -> Tensor:
        """Append `tokens[i]` to slot i, which holds `lengths[i]`; float32 logits [n, vocabulary] of what follows.

        n is a multiple of `ROWS`; no slot that matters holds more than `longest`. Idle ones are fed too, which harms
        nothing.
        """
        window = ceil_to(1 + longest, self.step)
        index = torch.arange(len(tokens), device=self.device)
        positions = self._to_device(lengths)[:, None]
        self.cache.reserve(len(tokens), max(window, int(lengths.max()) + 1))
        self.cache.aim(slice(0, len(tokens)), index, positions, window)
        windows: list[int] = []
        if self.step == BLOCK and self.device.type == "cpu":  # a GPU takes a masked block sooner than another kernel
            windows = np.minimum(-(-(lengths + 1) // BLOCK) * BLOCK, window).tolist()
        return self._forward(self._to_device(tokens)[:, None], positions, window, windows)

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """Give slot `target` the first `length` tokens of slot `source`."""
        self.cache.copy(source, target, length)

    def _forward(self, tokens: Tensor, positions: Tensor, window: int, windows: Sequence[int] = ()) -> Tensor:
        visible = torch.arange(window, device=self.device) <= positions[:, None, :, None]
        mask = torch.zeros(visible.shape, dtype=self.model.dtype, device=self.device).masked_fill_(~visible, self.floor)
        with attending(self.model):
            out = self.model(
                input_ids=tokens,
                attention_mask=mask,
                # Padding may lie past the context, where the model has no position.
                position_ids=positions.clamp(max=self.max_context - 1),
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
                **({"windows": windows} if windows else {}),
            )
        logits: Tensor = out.logits[:, -1].float()
        return logits

    def _to_device(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def batch_dependence(model: Any, device: torch.device, rows: int) -> str:
    """Compare one conversation's logits alone and in a full batch of longer ones; "" where every bit agrees.

    Otherwise the text says by how much they differ, and sampled tokens may then depend on what else is in flight.
    """
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    length, fed = WINDOW - 2, min(rows, ROWS)  # decoding crosses into the next window, where that is one
    tokens = np.random.Generator(np.random.Philox(key=0)).integers(0, vocabulary, size=(rows, length + 4))
    tokens[-1] = tokens[0]
    alone, crowd = (Runner(model, device, 4 * WINDOW) for _ in range(2))
    alone.prefill([0], [0], [tokens[0, :length]])
    crowd.prefill([*range(rows - fed, rows)], [0] * fed, [*tokens[-fed:, :length]])  # what others hold plays no part
    others = WINDOW + np.arange(rows) * 2 * WINDOW // rows
    differ = 0.0
    for at in range(length, length + 4):
        lengths = np.where(np.arange(rows) == rows - 1, at, others)
        many = crowd.decode(tokens[:, at], lengths, max(int(lengths.max()), crowd.step))[-1]
        one = np.where(np.arange(ROWS) == 0, at, 0)
        few = alone.decode(tokens[0, one], one, at)[0]
        differ = max(differ, float((many - few).abs().max()))
    return f"logits of one row differ by up to {differ:.1e} between 1 and {rows} rows in flight" if differ else ""


def set_threads(worker: ThreadPoolExecutor, threads: int) -> None:
    """Give one thread its own count: torch keeps counts per thread, and the last one set for threads yet to start."""
    others = torch.get_num_threads()
    worker.submit(torch.get_num_threads).result()  # a thread's first use would overwrite what was set before it
    worker.submit(torch.set_num_threads, threads).result()
    torch.set_num_threads(others)


def check_supported(config: Any, max_context: int) -> None:
    """The engine's cache holds every position and its numbers must not depend on the longest row."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    if kinds != {"full_attention"} or (not hasattr(config, "layer_types") and window and window < max_context):
        raise ValueError(
            f"the model has {sorted(kinds)} layers, window {window}; the torch engine runs full attention only"
        )
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if rope in ("dynamic", "longrope"):
        raise ValueError(
            f"the model's rope_type is {rope!r}, which depends on the batch; set another in its config.json"
        )
