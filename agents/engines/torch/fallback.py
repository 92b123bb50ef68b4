"""Forward passes through transformers, for architectures that `decoder` does not compute; slower."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from .runner import WINDOW, Runner, ceil_to


class SlotCache(Cache):
    """Keys and values [slots, kv_heads, width, head_dim] per layer, taken as layers first write and grown on demand."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.store: list[list[Tensor]] = []  # per layer: keys, values
        self._slots = self._width = 0

    def reserve(self, slots: int, width: int) -> None:
        """Make room for `slots` rows of `width` positions."""
        if slots > self._slots:
            self._slots = max(ceil_to(slots, 8), 2 * self._slots)
        if width > self._width:
            self._width = max(ceil_to(width, WINDOW), 2 * self._width)
        for layer in self.store:
            self._grow(layer)

    def aim(self, rows: slice | Tensor, index: Tensor, positions: Tensor, window: int) -> None:
        """Set where the next forward pass writes and what it sees, as in `Runner._forward`."""
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

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Rows differ in length, so there is none for all; positions and masks are always given to the model."""
        return 0

    def _grow(self, layer: list[Tensor]) -> None:
        for i, old in enumerate(layer):
            if old.shape[0] < self._slots or old.shape[2] < self._width:
                layer[i] = old.new_zeros(self._slots, old.shape[1], self._width, old.shape[3])
                layer[i][: old.shape[0], :, : old.shape[2]] = old


class Fallback(Runner):
    """Runs a causal LM of `transformers` (rotary positions, given 4-D masks) over a slot cache.

    Raises:
        ValueError: the model's attention has a window or a rotation that depends on the batch.
    """

    def __init__(self, model: Any, device: torch.device, max_context: int) -> None:
        super().__init__(device)
        check_supported(model.config, max_context)
        self.model, self.max_context = model, max_context
        self.cache = SlotCache()

    def reserve(self, slots: int, width: int) -> None:
        """Make room."""
        self.cache.reserve(slots, width)

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """Give slot `target` the first `length` tokens of slot `source`."""
        self.reserve(target + 1, 0)
        for tensor in (tensor for layer in self.cache.store for tensor in layer):
            tensor[target, :, :length] = tensor[source, :, :length]

    @torch.inference_mode()
    def exchange(self, one: int, other: int) -> None:
        """Let two slots change places."""
        self.reserve(max(one, other) + 1, 0)
        for tensor in (tensor for layer in self.cache.store for tensor in layer):
            tensor[[one, other]] = tensor[[other, one]]

    def forget(self) -> None:
        """Drop the cache."""
        self.cache = SlotCache()

    def _forward(
        self, tokens: Tensor, positions: Tensor, rows: slice | Tensor, index: Tensor, window: int, *, logits: bool
    ) -> Tensor:
        self.cache.aim(rows, index, positions, window)
        unseen = torch.arange(window, device=self.device) > positions[:, None, :, None]
        floor = torch.finfo(self.model.dtype).min
        mask = torch.zeros(unseen.shape, dtype=self.model.dtype, device=self.device).masked_fill_(unseen, floor)
        out = self.model(
            input_ids=tokens,
            attention_mask=mask,
            # Padding may lie past the context, where the model has no position.
            position_ids=positions.clamp(max=self.max_context - 1),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        found: Tensor = out.logits[:, -1]
        return found


def check_supported(config: Any, max_context: int) -> None:
    """The cache holds every position and its numbers must not depend on the longest row."""
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
