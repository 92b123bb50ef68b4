"""Aggregation: from values per slot to one number, as a `scale` per slot with (1/N) Σ_s scale·value, N = slots.

Computed once on all slots of an optimizer step, so how it is cut into micro-batches cannot matter. Paths and turns of
which no token was sampled are not counted.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .columns import Batch

Aggregation = Literal[
    "token-mean",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "token-sum",
    "token-sum-norm",
    "turn-mean",
]


def scale(mode: Aggregation, batch: Batch, size: int = 1, count_empty: bool = False) -> Float[Tensor, "s"]:
    """Return the scale that makes the loss the `mode` mean of its slots.

    - token-mean: Σ / N
    - seq-mean-token-mean: the mean over paths of each path's token mean
    - seq-mean-token-sum: the mean over paths of each path's sum
    - seq-mean-token-sum-norm: the same divided by `size` tokens, as verl has it since 2026; with `count_empty` as TRL
      and Dr. GRPO (arXiv 2503.20783) have it
    - token-sum: Σ
    - token-sum-norm: Σ / `size`, as verl had it until early 2026
    - turn-mean: the mean over paths of the mean over turns of the token mean (EPO, arXiv 2509.22576, Eq. 2)

    With `count_empty` a mean over paths also counts those without a slot, which add 0.
    Raises ValueError on an unknown mode and on a size below 1.
    """
    if mode not in get_args(Aggregation):
        raise ValueError(f"aggregation is {mode!r}; it must be one of {', '.join(get_args(Aggregation))}")
    if size < 1:
        raise ValueError(f"aggregation size is {size}; it is a number of tokens, at least 1")
    ones = torch.ones_like(batch.logp_old)
    if mode == "token-mean" or batch.n_slots == 0:
        return ones
    if mode == "token-sum":
        return ones * batch.n_slots
    if mode == "token-sum-norm":
        return ones * (batch.n_slots / size)
    n_paths: int = batch.n_paths if count_empty else torch.unique(batch.path).numel()
    per_path = ones * (batch.n_slots / n_paths)
    if mode == "seq-mean-token-sum":
        return per_path
    if mode == "seq-mean-token-sum-norm":
        return per_path / size
    if mode == "seq-mean-token-mean":
        return per_path / _members(batch.path)
    return per_path / (_turns(batch) * _members(batch.row))


def average(mode: Aggregation, values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, ""]:
    """Return the `mode` mean of `values`; 0 for a batch without slots."""
    return (scale(mode, batch) * values).sum() / max(batch.n_slots, 1)


def path_sum(values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot the sum of `values` over its path."""
    return values.new_zeros(batch.n_paths).index_add(0, batch.path, values)[batch.path]


def path_mean(values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot the mean of `values` over its path."""
    return path_sum(values, batch) / _members(batch.path)


def whiten(values: Float[Tensor, "s"], chosen: Bool[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return (x - mean) / √(var + 1e-8) of the `chosen` values, var unbiased; 0 for the others.

    Equal values, or one alone, give exactly 0.
    """
    kept = values[chosen]
    if not len(kept):
        return torch.zeros_like(values)
    above = kept - kept.min()  # so that rounding cannot part equal values
    centred = above - above.mean()
    variance = centred.square().sum() / max(len(kept) - 1, 1)
    return torch.zeros_like(values).masked_scatter(chosen, centred * torch.rsqrt(variance + 1e-8))


def _members(label: Int[Tensor, "s"]) -> Int[Tensor, "s"]:
    """Return for each slot how many slots carry its label."""
    return torch.bincount(label)[label]


def _turns(batch: Batch) -> Int[Tensor, "s"]:
    """Return for each slot how many turns of its path have a slot; a row is a turn of one path."""
    pairs = torch.unique(torch.stack((batch.path, batch.row)), dim=1)
    return torch.bincount(pairs[0])[batch.path]
