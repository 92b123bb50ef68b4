"""Log-ratios of drawn tokens, and estimators of the KL divergence to the reference from them.

The estimators of KL(current ‖ reference) take the sampled token alone: x = logp - logp_ref, held in ±20. On samples of
the current policy `k1` and `k3` are unbiased in value.
"""

import torch
from jaxtyping import Float
from torch import Tensor

LOG_RATIO_LIMIT = 20.0


def log_ratio(
    logp: Float[Tensor, "s ..."], other: Float[Tensor, "s ..."]
) -> Float[Tensor, "s ..."]:
    """Return logp - other held in ±20, so that no exponential of it overflows; outside, the gradient is 0."""
    return (logp - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k1(logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return x. Its expected gradient is 0: it belongs in a reward, not in a loss."""
    return log_ratio(logp, logp_ref)


def k3(logp: Float[Tensor, "s"], logp_ref: Float[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return exp(-x) + x - 1 ≥ 0, the low-variance value; its gradient is (1 - exp(-x))·∇logp."""
    x = log_ratio(logp, logp_ref)
    return torch.expm1(-x) + x
