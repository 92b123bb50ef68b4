"""Generalised advantage estimation and discounted returns, over the slots of each path."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def discounted(
    values: Float[Tensor, "s"], path: Int[Tensor, "s"], decay: float
) -> Float[Tensor, "s"]:
    """Return y_t = x_t + decay·y_{t+1} along each path, y being 0 behind its last slot."""
    result, total = list[float](), 0.0
    for value, followed in zip(reversed(values.tolist()), reversed(_followed(path).tolist())):
        total = value + (decay * total if followed else 0.0)
        result.append(total)
    return values.new_tensor(result[::-1])


def gae(
    reward: Float[Tensor, "s"],
    value: Float[Tensor, "s"],
    path: Int[Tensor, "s"],
    gamma: float,
    lam: float,
) -> Float[Tensor, "s"]:
    """Return A_t = δ_t + gamma·lam·A_{t+1}, δ_t = R_t + gamma·V_{t+1} - V_t (GAE, arXiv 1506.02438, Eq. 16).

    t + 1 is the next slot of the path, whatever was read in between; behind the last, A and V are 0.
    """
    after = torch.where(_followed(path), value.roll(-1), 0.0)
    return discounted(reward + gamma * after - value, path, gamma * lam)


def _followed(path: Int[Tensor, "s"]) -> Bool[Tensor, "s"]:
    """Return which slots are not the last of their path."""
    same = torch.zeros_like(path, dtype=torch.bool)
    same[:-1] = path[:-1] == path[1:]
    return same
