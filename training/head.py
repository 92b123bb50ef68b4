"""Log-probability and entropy of drawn tokens, in chunks: the logits of all tokens never exist at once.

`logp` is at each token's own temperature, untruncated; `entropy` is of the full vocabulary at temperature 1. Both carry
gradient to the hidden states and to the head's own adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .head_once import OnePass

CHUNK_ELEMENTS = 1 << 24  # logits a chunk that is computed again: 64 MiB in float32

Functional = Callable[[Float[Tensor, "c v"], Int[Tensor, "c"]], Float[Tensor, "c ..."]]  # of logits and drawn tokens


def token_stats(
    hidden: Float[Tensor, "s d"],
    head: Callable[[Tensor], Tensor],
    token: Int[Tensor, "s"],
    temperature: Float[Tensor, "s"],
    vocabulary: int,
    functionals: Mapping[str, Functional] = MappingProxyType({}),
    entropy_grad: bool = True,
) -> tuple[Float[Tensor, "s"], Float[Tensor, "s"], dict[str, Float[Tensor, "s ..."]]]:
    """Return `(logp, entropy, extras)` of `token` given the hidden state that predicts it; the first two in nats.

    `extras` are what `functionals` say of the logits at temperature 1, by their names. Without `entropy_grad` the
    entropy carries no gradient. A frozen `nn.Linear`, be it below an adapter that is switched off, is passed once;
    of any other head, and where there are functionals, a chunk's logits are computed again in the backward pass.
    """
    plain = None if functionals else _plain(head)
    if plain is not None:
        slopes = 1 + entropy_grad if torch.is_grad_enabled() and hidden.requires_grad else 0
        found = OnePass.apply(hidden, plain.weight, plain.bias, token, temperature, slopes)  # type: ignore[no-untyped-call]
        logp, entropy = (value.float() for value in found)
        return logp, entropy, {}
    size = max(CHUNK_ELEMENTS // vocabulary, 1)
    parts = []
    for start in range(0, max(len(token), 1), size):
        part = slice(start, start + size)
        inputs = (hidden[part], head, token[part], temperature[part], tuple(functionals.values()))
        again = torch.is_grad_enabled() and len(token) > size
        parts.append(checkpoint(_stats, *inputs, use_reentrant=False) if again else _stats(*inputs))
    logp, entropy, *extras = (torch.cat(column) for column in zip(*parts))
    return logp, entropy if entropy_grad else entropy.detach(), dict(zip(functionals, extras))


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


def _plain(head: Any) -> nn.Linear | None:
    """Return the frozen linear layer that is all `head` computes, if it is that."""
    if not isinstance(head, nn.Module):
        return None
    base = getattr(head, "base_layer", head)  # below peft's wrapper
    if base is not head and (head.merged or not head.disable_adapters):
        return None
    if type(base) is not nn.Linear or any(parameter.requires_grad for parameter in base.parameters()):
        return None
    return base
