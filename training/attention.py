"""Attention over a layout in which paths share tokens: segment by segment, so no [tokens, tokens] mask ever exists.

It is registered with transformers and used only inside `hidden_states`; what it computes of a path is what causal
attention computes of the path alone.
"""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .layout import Layout

NAME = "turngym-segments"
UNSERVED = ("sliding_window", "softcap", "s_aux", "position_bias")  # what other attention than the plain one is given


def hidden_states(model: Any, layout: Layout, device: torch.device) -> Float[Tensor, "u d"]:
    """Return the last hidden states of a causal LM of `transformers` on the tokens of `layout`.

    Raises:
        ValueError: the model's attention has a window, soft caps, sinks or biases.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _by_segments)
    before = model.config._attn_implementation
    model.config._attn_implementation = NAME
    try:
        hidden: Tensor = model.model(
            input_ids=layout.tokens[None].to(device),
            position_ids=layout.positions[None].to(device),
            use_cache=False,
            layout=layout,
            band=_band(layout, model.dtype, device),
        ).last_hidden_state
    finally:
        model.config._attn_implementation = before
    return hidden[0]


def _band(layout: Layout, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "n w"]:
    """Return the mask of which those of all segments are parts: 0 where column <= w - n + row, else -inf."""
    behind = [layout.sizes[chain[-1]] for chain in layout.chains if len(chain) > 1]
    n = max(behind, default=0)
    depth = max(sum(layout.sizes[i] for i in chain) for chain in layout.chains)
    return torch.full((n, depth + n), -inf, dtype=dtype, device=device).triu(depth + 1)


def _by_segments(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    layout: Layout,
    band: Tensor,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return `[1, u, heads, d]` of queries `[1, heads, u, d]` and keys and values `[1, kv_heads, u, d]`."""
    if found := [name for name in UNSERVED if options.get(name) is not None]:
        raise ValueError(f"the model's attention has {found[0]}, which the learner does not compute; use another model")
    queries, keys, values = (torch.split(part, list(layout.sizes), 2) for part in (query, key, value))
    parts = []
    for own, chain in zip(queries, layout.chains):
        seen, said = (torch.cat([part[i] for i in chain], 2) for part in (keys, values))
        part = scaled_dot_product_attention(
            own,
            seen,
            said,
            attn_mask=_mask(band, own.shape[2], seen.shape[2]) if len(chain) > 1 else None,
            is_causal=len(chain) == 1,
            scale=scaling,
            enable_gqa=key.shape[1] != query.shape[1],
        )
        parts.append(part.transpose(1, 2))
    return torch.cat(parts, 1), None


def _mask(band: Tensor, size: int, depth: int) -> Tensor:
    """Return the part of `band` for `size` queries, the last ones of `depth` keys."""
    start = band.shape[1] - band.shape[0] - (depth - size)
    return band[:size, start : start + depth]
