"""The one loss of turngym, and the check of an update.

L = (1/N) Σ scale·[ −weight·surrogate + kl_coef·k3(logp, logp_ref) − entropy_coef·entropy ] + Σ_penalties Σ coef·value

An update with a number that is not finite is refused before its loss is computed.
Invariant: N counts the sampled tokens of the whole optimizer step, so its micro-batches' losses add up to its own.
"""

from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from ..data.batch import Batch, Current, Terms
from ..data.packing import Packed
from .kl import k3, log_ratio
from .surrogates import ppo

CLIP = 0.2  # PPO's (Schulman et al., arXiv 1707.06347)


def moved(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return |logp - logp_old|, the penalty of KL-Cov (arXiv 2505.22617); where nothing has moved its slope is 0."""
    return log_ratio(current.logp, batch.logp_old).abs()


def start_terms(advantage: Float[Tensor, "s"]) -> Terms:
    """Return the terms that controls shape: PPO with clip 0.2 on `advantage`, token mean, no KL, no entropy bonus."""
    ones, zeros = torch.ones_like(advantage), torch.zeros_like(advantage)
    return Terms(advantage, ones, CLIP * ones, CLIP * ones, zeros, zeros, ones, ppo)


def objective(current: Current, batch: Batch, terms: Terms, n_tokens: int) -> Float[Tensor, ""]:
    """Return this micro-batch's part of the loss to minimise; `n_tokens` are those of the whole optimizer step.

    0 where there is no slot. Raises ValueError where the terms hold a KL coefficient and the batch no reference.
    """
    value = (
        -terms.weight * terms.surrogate(current, batch, terms)
        - terms.entropy_coef * current.entropy
    )
    if batch.logp_ref is not None:
        value = value + terms.kl_coef * k3(current.logp, batch.logp_ref)
    elif bool(terms.kl_coef.any()):
        raise ValueError(
            "Batch.logp_ref is None but a control set kl_coef; declare Needs(logp_ref=True) in it"
        )
    loss = (terms.scale * value).sum() / max(n_tokens, 1)
    for penalty in terms.penalties:
        loss = loss + (penalty.coef * penalty.value(current, batch, terms)).sum()
    return loss


class BadUpdate(Exception):
    """An update is not to be taken: why, and the key (seed, step, task, branch) of the sample where one is known."""

    def __init__(self, why: str, key: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.key = key


def check(terms: Terms, packed: Packed) -> None:
    """Raise BadUpdate with the first sample that has a number that is not finite. A bad score affects its group."""
    batch, turns = packed.batch, packed.batch.turns
    columns = {
        "score": torch.where(turns.rewarded, turns.score, 0.0)[batch.row],
        "reward of a turn": torch.where(turns.rewarded, turns.reward, 0.0)[batch.row],
        "sampler's log-probability": batch.logp_old,
        "sampler's entropy": batch.entropy,
        "reference's log-probability": torch.zeros(0) if batch.logp_ref is None else batch.logp_ref,
        "advantage": terms.advantage,
        "weight": terms.weight,
        "KL coefficient": terms.kl_coef,
        "entropy coefficient": terms.entropy_coef,
        "scale": terms.scale,
        "lower clip": torch.where(terms.clip_low == inf, 0.0, terms.clip_low),  # inf holds nothing
        "upper clip": torch.where(terms.clip_high == inf, 0.0, terms.clip_high),
        **{f"coefficient of {penalty.name}": penalty.coef for penalty in terms.penalties},
    }
    for what, column in columns.items():
        for slot in (~torch.isfinite(column)).nonzero()[:1, 0].tolist():
            path = int(batch.path[slot])
            raise BadUpdate(
                f"{packed.names[path]}: the {what} is {float(column[slot])}", packed.keys[path]
            )
