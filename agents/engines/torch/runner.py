"""The forward passes of the embedded engine, shaped so that a row's numbers depend on that row alone.

Matrix products give a row the same bits whatever the row count, as long as it is a multiple of 8, but not when the
length they sum over changes. So a chunk is padded to multiples that follow from its own conversation and runs with its
equals; decoding has one query a head, where a wider masked window adds exact zeros in the same order, or sees whole
blocks of the fused kernel, where a further masked block does.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import Cache

CHUNK = 32  # chunks are padded to a multiple of this many tokens
WINDOW = 64  # and see a multiple of this many positions; below 64 small heads take another matrix product
ROWS = 8  # decoding runs a multiple of this many rows
ATTENTION = "turngym-slots"  # the name of `attend` in transformers
BLOCK = 512  # keys that the fused CPU kernel takes at a time; how it sums depends on the size of a block
UNSERVED = ("softcap", "s_aux", "position_bias")  # what a model wants beyond plain attention under a given mask


def ceil_to(n: int, multiple: int) -> int:
    """`n` rounded up to a multiple."""
    return -(-n // multiple) * multiple


class SlotCache(Cache):
    """Keys and values [slots, kv_heads, width, head_dim] per layer, taken as layers first write and grown on demand.

    A row is one conversation, with the token at position p at index p. What lies beyond a row's length is garbage that
    no mask shows and the next write replaces; so padding and idle rows may write there, and decoding needs no gathered
    copy of the cache.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.store: list[list[Tensor]] = []  # per layer: keys, values
        self._slots = self._width = 0

    def reserve(self, slots: int, width: int) -> None:
        """Make room for `slots` rows of `width` positions, at least doubling so that growth costs linear time."""
        if slots > self._slots:
            self._slots = max(ceil_to(slots, 8), 2 * self._slots)
        if width > self._width:
            self._width = max(ceil_to(width, 64), 2 * self._width)
        for layer in self.store:
            self._grow(layer)

    def aim(self, rows: slice | Tensor, index: Tensor, positions: Tensor, window: int) -> None:
        """Set where the next forward pass writes and what it sees.

        Row i of the batch is slot `index[i]` (int64 [r]; `rows` selects the same slots, as a slice where that spares a
        copy), writes at `positions[i]` (int64 [r, q]) and sees positions below `window`.
        """
        self._rows, self._index, self._positions, self._window = rows, index[:, None], positions, window

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [r, kv_heads, q, head_dim] where `aim` set; return what is seen, [r, kv_heads, window, head_dim]."""
        while len(self.store) <= layer_idx:
            self.store.append([new.new_zeros(0, new.shape[1], 0, new.shape[3]) for new in (keys, values)])
            self._grow(self.store[-1])
        layer = self.store[layer_idx]
        for tensor, new in zip(layer, (keys, values)):
            tensor[self._index, :, self._positions] = new.transpose(1, 2)
        seen = [tensor[:, :, : self._window][self._rows] for tensor in layer]
        return seen[0], seen[1]

    def copy(self, source: int, target: int, length: int) -> None:
        """Give slot `target` the first `length` tokens of slot `source`."""
        self.reserve(target + 1, 0)
        for layer in self.store:
            for tensor in layer:
                tensor[target, :, :length] = tensor[source, :, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Rows differ in length, so there is none for all; positions and masks are always given to the model."""
        return 0

    def _grow(self, layer: list[Tensor]) -> None:
        for i, old in enumerate(layer):
            if old.shape[0] < self._slots or old.shape[2] < self._width:
                layer[i] = old.new_zeros(self._slots, old.shape[1], self._width, old.shape[3])
                layer[i][: old.shape[0], :, : old.shape[2]] = old


def shares_keys(config: Any) -> bool:
    """Return whether heads of a model share their keys."""
    heads: int = config.num_attention_heads
    return heads != getattr(config, "num_key_value_heads", heads)


@contextmanager
def attending(model: Any) -> Iterator[None]:
    """Inside, `model` attends by `attend`, if its heads share keys.

    Where each head has keys of its own, transformers' own plain products are as fast.
    """
    if not shares_keys(model.config):
        yield
        return
    before, model.config._attn_implementation = model.config._attn_implementation, ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = before


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    windows: Sequence[int] = (),
    **options: Any,
) -> tuple[Tensor, None]:
    """Return `[rows, q, heads, d]` of queries `[rows, heads, q, d]` and keys and values `[rows, kv_heads, window, d]`.

    With `windows`, whole blocks for each row, that row sees no key from there on.

    Raises ValueError where the model wants more than plain attention.
    """
    if found := [name for name in UNSERVED if options.get(name) is not None]:
        raise ValueError(f"the model's attention has {found[0]}, which the torch engine does not compute")
    rows, heads, queries, _ = query.shape
    if queries == 1:  # heads that share keys become queries of one head: one product for all of them
        query = query.view(rows, key.shape[1], -1, query.shape[3])
    parts, start = [], 0
    for window, run in groupby(windows or [key.shape[2]] * rows):  # neighbours that see as much go together
        stop = start + len([*run])
        keys, values = (part[start:stop, :, :window] for part in (key, value))
        mask = attention_mask[start:stop, ..., :window]
        gqa = query.shape[1] != key.shape[1]
        parts.append(scaled_dot_product_attention(query[start:stop], keys, values, mask, scale=scaling, enable_gqa=gqa))
        start = stop
    output = parts[0] if len(parts) == 1 else torch.cat(parts)
    return output.reshape(rows, heads, queries, -1).transpose(1, 2), None


AttentionInterface.register(ATTENTION, attend)


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
