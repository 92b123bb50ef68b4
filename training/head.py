"""Log-probability and entropy of drawn tokens, in chunks: the logits of all tokens never exist at once.

`logp` is at each token's own temperature, untruncated; `entropy` is of the full vocabulary at temperature 1. Both carry
gradient to the hidden states and to the head's own adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_ELEMENTS = 1 << 24  # logits a chunk: 64 MiB in float32

Functional = Callable[[Float[Tensor, "c v"], Int[Tensor, "c"]], Float[Tensor, "c ..."]]  # of logits and drawn tokens


def token_stats(
    hidden: Float[Tensor, "s d"],
    head: Callable[[Tensor], Tensor],
    token: Int[Tensor, "s"],
    temperature: Float[Tensor, "s"],
    vocabulary: int,
    functionals: Mapping[str, Functional] = MappingProxyType({}),
) -> tuple[Float[Tensor, "s"], Float[Tensor, "s"], dict[str, Float[Tensor, "s ..."]]]:
    """Return `(logp, entropy, extras)` of `token` given the hidden state that predicts it; the first two in nats.

    `extras` are what `functionals` say of the logits at temperature 1, by their names. With gradient and more than one
    chunk, a chunk's logits are computed again in the backward pass.
    """
    size = max(CHUNK_ELEMENTS // vocabulary, 1)
    parts = []
    for start in range(0, max(len(token), 1), size):
        part = slice(start, start + size)
        inputs = (hidden[part], head, token[part], temperature[part], tuple(functionals.values()))
        again = torch.is_grad_enabled() and len(token) > size
        parts.append(checkpoint(_stats, *inputs, use_reentrant=False) if again else _stats(*inputs))
    logp, entropy, *extras = (torch.cat(column) for column in zip(*parts))
    return logp, entropy, dict(zip(functionals, extras))


def _stats(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    token: Tensor,
    temperature: Tensor,
    functionals: tuple[Functional, ...],
) -> tuple[Tensor, ...]:
    logits = head(hidden).float()
    plain = torch.log_softmax(logits, -1)
    entropy = -(plain.exp() * plain).sum(-1)
    tempered = plain if bool((temperature == 1).all()) else torch.log_softmax(logits / temperature[:, None], -1)
    logp = tempered.gather(-1, token[:, None])[:, 0]
    return logp, entropy, *(functional(logits, token) for functional in functionals)
