"""Estimators of KL(current ‖ reference) from the sampled token alone, per slot, in nats.

x = logp - logp_ref, held in ±20. On samples of the current policy k1 and k3 are unbiased in value and k2 in gradient.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LOG_RATIO_LIMIT = 20.0


def log_ratio(logp: Float[Tensor, "s"], other: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return logp - other held in ±20, so that no exponential of it overflows; outside, the gradient is 0."""
    return (logp - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k1(logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return x. Its expected gradient is 0: it belongs in a reward, not in a loss."""
    return log_ratio(logp, logp_ref)


def k2(logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return x²/2, whose gradient is that of the reverse KL."""
    return 0.5 * log_ratio(logp, logp_ref).square()


def k3(logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return exp(-x) + x - 1 ≥ 0, the low-variance value; its gradient is (1 - exp(-x))·∇logp."""
    x = log_ratio(logp, logp_ref)
    return torch.expm1(-x) + x


def with_k2_gradient(
    value: Float[Tensor, "s"], logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]
) -> Float[Tensor, "s"]:
    """Return `value` (an estimate by k1 or k3) with the gradient of k2."""
    carrier = k2(logp, logp_ref)
    return value.detach() + carrier - carrier.detach()
