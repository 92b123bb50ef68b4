"""Policy terms of the loss: ratios between the policy of now and of the rollout, clipped in several ways.

Policy terms (`ppo`, …) are pure functions of the current policy, the batch and the terms, per slot, to be maximised.
"""

from dataclasses import replace
from math import inf
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...agents.engine import keyed_rng
from ..data.batch import Batch, Current, Surrogate, Terms
from .aggregation import path_mean, path_sum
from .kl import LOG_RATIO_LIMIT, log_ratio

Level = Literal["token", "sequence", "geometric"]  # what a ratio is of
SEQUENCE_LIMIT = 10.0  # nats: largest logarithm of a sequence ratio


def ratio(current: Current, batch: Batch) -> Float[Tensor, "s"]:
    """Return the importance ratio exp(logp - logp_old), its logarithm held in ±20."""
    return log_ratio(current.logp, batch.logp_old).exp()


def ppo(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return min(r·A, clip(r, 1 - clip_low, 1 + clip_high)·A) (Schulman et al., arXiv 1707.06347, Eq. 7)."""
    return clipped(ratio(current, batch), terms)


def unclipped(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return r·A."""
    return ratio(current, batch) * terms.advantage


def score_function(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return A·logp, whose gradient is REINFORCE's (Williams 1992); no ratio and no clip."""
    return terms.advantage * current.logp


def sequence_clip(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return `ppo` with the path's ratio in place of the token's (GSPO, arXiv 2507.18071, Eqs. 7 and 14).

    It is the exponential of the path's mean log-ratio. Its gradient goes to each token through that token alone, so the
    mean over the path's tokens has the gradient of the path's ratio.
    """
    mean = path_mean((current.logp - batch.logp_old).detach(), batch)
    through = current.logp - current.logp.detach()
    return clipped((mean + through).clamp(max=SEQUENCE_LIMIT).exp(), terms)


def weight_clip(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return sg(clip(r, 1 - clip_low, 1 + clip_high))·A·logp: no token loses its gradient (CISPO, arXiv 2506.13585)."""
    held = torch.clamp(ratio(current, batch), 1 - terms.clip_low, 1 + terms.clip_high)
    return held.detach() * terms.advantage * current.logp


def mismatch(level: Level, batch: Batch) -> Float[Tensor, "s"]:
    """Return the learner's probability over the sampler's, of each slot's token or path; its logarithm is in ±20."""
    gap = batch.logp_old - batch.logp_roll
    if level != "token":
        gap = path_sum(gap, batch) if level == "sequence" else path_mean(gap, batch)
    return gap.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def hold(terms: Terms, low: float, high: float) -> Terms:
    """Return `terms` with these clip bounds on every slot."""
    ones = torch.ones_like(terms.advantage)
    return replace(terms, clip_low=low * ones, clip_high=high * ones)


def clipped(r: Float[Tensor, "s"], terms: Terms) -> Float[Tensor, "s"]:
    """Return `ppo` of the ratio `r`."""
    held = torch.clamp(r, 1 - terms.clip_low, 1 + terms.clip_high)
    return torch.minimum(r * terms.advantage, held * terms.advantage)


def gradient_keeping(limit: float = inf) -> Surrogate:
    """Return min(r·A, clip(r, 1 - clip_low, (1 + clip_high)·r/sg(r))·A) (AEPO, arXiv 2510.14545, Sec. 3.2).

    Past the upper bound the value is that of `ppo`, and the coefficient of ∇logp is (1 + clip_high)·A instead of 0.
    Where A < 0 it is not allowed below limit·A, as in `dual_clip`.
    """

    def surrogate(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
        r = ratio(current, batch)
        held = (r * ((1 + terms.clip_high) / r.detach()).clamp(max=1)).clamp(min=1 - terms.clip_low)
        return torch.minimum(r * terms.advantage, held * terms.advantage)

    return _floored(surrogate, limit)


def covariance(
    advantage: Float[Tensor, "s"], logp: Float[Tensor, "s"], where: Bool[Tensor, "s"]
) -> Float[Tensor, "s"]:
    """Return each slot's (A - mean)·(logp - mean), means over the slots `where` that is so, and -inf on the others."""
    cov = (advantage - advantage[where].mean()) * (logp - logp[where].mean())
    return torch.where(where, cov, -inf)


def clip_cov(
    advantage: Float[Tensor, "s"],
    logp: Float[Tensor, "s"],
    logp_old: Float[Tensor, "s"],
    clip_low: float,
    clip_high: float,
    share: float,
    low: float,
    high: float,
    key: tuple[int, ...],
    where: Bool[Tensor, "s"] | None = None,
) -> Bool[Tensor, "s"]:
    """Return which slots Clip-Cov (arXiv 2505.22617) leaves out: `share` of all, or as many as qualify, drawn by `key`.

    Those qualify whose covariance (A - mean)·(logp - mean) lies between `low` and `high` and that no clip holds. Only
    slots `where` it is True take part, also in the means and in their number; without it all do.
    """
    learned = torch.ones_like(advantage, dtype=torch.bool) if where is None else where
    ratio = log_ratio(logp, logp_old).exp()
    clipped = torch.where(
        advantage > 0, ratio > 1 + clip_high, (advantage < 0) & (ratio < 1 - clip_low)
    )
    cov = covariance(advantage, logp, learned)
    (open_,) = torch.nonzero((low < cov) & (cov < high) & ~clipped, as_tuple=True)
    count = min(max(int(share * int(learned.sum())), 1), len(open_)) if share else 0
    drawn = keyed_rng(key).permutation(len(open_))[:count]
    left = torch.zeros_like(clipped)
    left[open_[torch.from_numpy(drawn)]] = True
    return left


def dual_clip(limit: float = 3.0) -> Surrogate:
    """Return `ppo` that, where A < 0, is not allowed below limit·A (Ye et al., arXiv 1912.09729, Eq. 5).

    A limit of inf gives `ppo`. Raises ValueError unless `limit` > 1.
    """
    if not limit > 1:
        raise ValueError(
            f"dual_clip limit is {limit}; it must exceed 1, the ratio of an unchanged policy"
        )
    return _floored(ppo, limit)


def _floored(plain: Surrogate, limit: float) -> Surrogate:
    """Return a policy term that, where A < 0, is not allowed below limit·A."""

    def surrogate(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
        value = plain(current, batch, terms)
        return torch.where(
            terms.advantage < 0, torch.maximum(value, limit * terms.advantage), value
        )

    return surrogate if limit < inf else plain
