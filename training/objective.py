"""The one loss of turngym, summed over the slots of a micro-batch.

L = (1/N) Σ scale·[ −weight·surrogate + kl_coef·k3(logp, logp_ref) − entropy_coef·entropy ] + Σ_penalties Σ coef·value

Invariant: N counts the sampled tokens of the whole optimizer step, so its micro-batches' losses add up to its own.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .columns import Batch, Current, Terms
from .kl import k3
from .surrogates import ppo

CLIP = 0.2  # PPO's (Schulman et al., arXiv 1707.06347)


def start_terms(advantage: Float[Tensor, "s"]) -> Terms:
    """Return the terms that controls shape: PPO with clip 0.2 on `advantage`, token mean, no KL, no entropy bonus."""
    ones, zeros = torch.ones_like(advantage), torch.zeros_like(advantage)
    return Terms(advantage, ones, CLIP * ones, CLIP * ones, zeros, zeros, ones, ppo)


def objective(current: Current, batch: Batch, terms: Terms, n_tokens: int) -> Float[Tensor, ""]:
    """Return this micro-batch's part of the loss to minimise; `n_tokens` are those of the whole optimizer step.

    0 where there is no slot. Raises ValueError where the terms hold a KL coefficient and the batch no reference.
    """
    value = -terms.weight * terms.surrogate(current, batch, terms) - terms.entropy_coef * current.entropy
    if batch.logp_ref is not None:
        value = value + terms.kl_coef * k3(current.logp, batch.logp_ref)
    elif bool(terms.kl_coef.any()):
        raise ValueError(
            "Batch.logp_ref is None but a control set kl_coef; declare Needs(logp_ref=True) in that control"
        )
    loss = (terms.scale * value).sum() / max(n_tokens, 1)
    for penalty in terms.penalties:
        loss = loss + (penalty.coef * penalty.value(current, batch)).sum()
    return loss
