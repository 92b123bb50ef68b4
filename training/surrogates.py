"""Policy terms: pure functions of the current policy, the batch and the terms, per slot, to be maximised."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .columns import Batch, Current, Surrogate, Terms
from .kl import log_ratio


def ratio(current: Current, batch: Batch) -> Float[Tensor, "s"]:
    """Return the importance ratio exp(logp - logp_old), its logarithm held in ±20."""
    return log_ratio(current.logp, batch.logp_old).exp()


def ppo(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return min(r·A, clip(r, 1 - clip_low, 1 + clip_high)·A) (Schulman et al., arXiv 1707.06347, Eq. 7)."""
    r = ratio(current, batch)
    held = torch.clamp(r, 1 - terms.clip_low, 1 + terms.clip_high)
    return torch.minimum(r * terms.advantage, held * terms.advantage)


def dual_clip(limit: float = 3.0) -> Surrogate:
    """Return `ppo` that, where A < 0, is not allowed below limit·A (Ye et al., arXiv 1912.09729, Eq. 5).

    Raises ValueError unless `limit` > 1.
    """
    if not limit > 1:
        raise ValueError(f"dual_clip limit is {limit}; it must exceed 1, the ratio of an unchanged policy")

    def surrogate(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
        plain = ppo(current, batch, terms)
        floor = torch.maximum(plain, limit * terms.advantage)
        return torch.where(terms.advantage < 0, floor, plain)

    return surrogate
