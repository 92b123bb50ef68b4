"""The one loss of turngym, its policy terms, and estimators of the KL divergence to the reference.

L = (1/N) Σ scale·[ −weight·surrogate + kl_coef·k3(logp, logp_ref) − entropy_coef·entropy ] + Σ_penalties Σ coef·value

Policy terms (`ppo`, …) are pure functions of the current policy, the batch and the terms, per slot, to be maximised.
The estimators of KL(current ‖ reference) take the sampled token alone: x = logp - logp_ref, held in ±20. On samples of
the current policy `k1` and `k3` are unbiased in value.

An update with a number that is not finite is refused before its loss is computed.
Invariant: N counts the sampled tokens of the whole optimizer step, so its micro-batches' losses add up to its own.
"""

from dataclasses import replace
from math import inf
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..agents.engine import keyed_rng
from .columns import Batch, Current, Packed, Surrogate, Terms
from .credit import path_mean, path_sum

CLIP = 0.2  # PPO's (Schulman et al., arXiv 1707.06347)
Level = Literal["token", "sequence", "geometric"]  # what a ratio is of
SEQUENCE_LIMIT = 10.0  # nats: largest logarithm of a sequence ratio
LOG_RATIO_LIMIT = 20.0


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


def log_ratio(
    logp: Float[Tensor, "s ..."], other: Float[Tensor, "s ..."]
) -> Float[Tensor, "s ..."]:
    """Return logp - other held in ±20, so that no exponential of it overflows; outside, the gradient is 0."""
    return (logp - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def moved(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    """Return |logp - logp_old|, the penalty of KL-Cov (arXiv 2505.22617); where nothing has moved its slope is 0."""
    return log_ratio(current.logp, batch.logp_old).abs()


def k1(logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return x. Its expected gradient is 0: it belongs in a reward, not in a loss."""
    return log_ratio(logp, logp_ref)


def k3(logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return exp(-x) + x - 1 ≥ 0, the low-variance value; its gradient is (1 - exp(-x))·∇logp."""
    x = log_ratio(logp, logp_ref)
    return torch.expm1(-x) + x


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
