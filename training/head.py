"""Log-probability and entropy of drawn tokens, in chunks: the logits of all tokens never exist at once.

`logp` is at each token's own temperature, untruncated; `entropy` is of the full vocabulary at temperature 1. Both carry
gradient to the hidden states and to the head's own adapter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_ELEMENTS = 1 << 24  # logits a chunk: 64 MiB in float32


def token_stats(
    hidden: Float[Tensor, "s d"],
    head: Callable[[Tensor], Tensor],
    token: Int[Tensor, "s"],
    temperature: Float[Tensor, "s"],
    vocabulary: int,
) -> tuple[Float[Tensor, "s"], Float[Tensor, "s"]]:
    """Return `(logp, entropy)` in nats of `token` given the hidden state that predicts it.

    With gradient and more than one chunk, a chunk's logits are computed again in the backward pass.
    """
    size = max(CHUNK_ELEMENTS // vocabulary, 1)
    if len(token) <= size:
        return _stats(hidden, head, token, temperature)
    parts = []
    for start in range(0, len(token), size):
        part = slice(start, start + size)
        inputs = (hidden[part], head, token[part], temperature[part])
        parts.append(checkpoint(_stats, *inputs, use_reentrant=False) if torch.is_grad_enabled() else _stats(*inputs))
    return torch.cat([logp for logp, _ in parts]), torch.cat([entropy for _, entropy in parts])


def _stats(
    hidden: Tensor, head: Callable[[Tensor], Tensor], token: Tensor, temperature: Tensor
) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float()
    plain = torch.log_softmax(logits, -1)
    entropy = -(plain.exp() * plain).sum(-1)
    tempered = plain if bool((temperature == 1).all()) else torch.log_softmax(logits / temperature[:, None], -1)
    return tempered.gather(-1, token[:, None])[:, 0], entropy
