"""Forward passes through transformers, for architectures that `decoder` does not compute; slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from .runner import Part, Runner


class SlotCache(Cache):
    """What layers of `transformers` see of a runner's cache."""

    def __init__(self, runner: Fallback, part: Part) -> None:
        super().__init__(layers=[])
        self._runner, self._part = runner, part

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [r, kv_heads, q, head_dim]; return what is seen, [r, kv_heads, window, head_dim]."""
        all_keys, all_values = self._runner._layer(layer_idx, keys.shape[1], keys.shape[3], keys.dtype)
        part = self._part
        all_keys[part.index[:, None], :, :, part.positions] = keys.transpose(1, 2)
        all_values[part.index[:, None], :, part.positions] = values.transpose(1, 2)
        seen = all_keys[..., : part.window][part.rows], all_values[:, :, : part.window][part.rows]
        return seen[0].transpose(2, 3), seen[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Rows differ in length, so there is none for all; positions and masks are always given to the model."""
        return 0


class Fallback(Runner):
    """Runs a causal LM of `transformers` (rotary positions, given 4-D masks) over a slot cache.

    Raises ValueError where the model's attention has a window or a rotation that depends on the batch.
    """

    def __init__(self, model: Any, device: torch.device, max_context: int) -> None:
        super().__init__(device)
        check_supported(model.config, max_context)
        self.model, self.max_context = model, max_context

    def _forward(self, parts: Sequence[Part], *, logits: bool) -> Tensor:
        for part in parts:
            unseen = torch.arange(part.window, device=self.device) > part.positions[:, None, :, None]
            floor = torch.finfo(self.model.dtype).min
            mask = torch.zeros(unseen.shape, dtype=self.model.dtype, device=self.device).masked_fill_(unseen, floor)
            out = self.model(
                input_ids=part.tokens,
                attention_mask=mask,
                # Padding may lie past the context, where the model has no position.
                position_ids=part.positions.clamp(max=self.max_context - 1),
                past_key_values=SlotCache(self, part),
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
