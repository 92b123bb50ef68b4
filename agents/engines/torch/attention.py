"""Attention for models whose heads share keys: torch's fused kernel, with nothing repeated for every head.

It is registered with transformers and used only inside `attending`. Where each head has keys of its own, nothing is
repeated, and transformers' own plain products are as fast.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

NAME = "turngym-slots"
BLOCK = 512  # keys that the fused CPU kernel takes at a time; how it sums depends on the size of a block
UNSERVED = ("softcap", "s_aux", "position_bias")  # what a model wants beyond plain attention under a given mask


def shares_keys(config: Any) -> bool:
    """Return whether heads of a model share their keys."""
    heads: int = config.num_attention_heads
    return heads != getattr(config, "num_key_value_heads", heads)


@contextmanager
def attending(model: Any) -> Iterator[None]:
    """Inside, `model` attends by `attend`, if its heads share keys."""
    if not shares_keys(model.config):
        yield
        return
    before, model.config._attn_implementation = model.config._attn_implementation, NAME
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


AttentionInterface.register(NAME, attend)
