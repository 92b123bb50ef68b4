"""Sums, means and weights over slots, by path, turn and group."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..data.batch import Batch

Aggregation = Literal[
    "token-mean",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "token-sum",
    "token-sum-norm",
    "turn-mean",
]


def mean_by(label: Int[Tensor, "m"], values: Float[Tensor, "m"]) -> Float[Tensor, "n"]:
    """Return the mean of `values` by label, in float64, where the mean of equal float32 values is that value."""
    count = torch.bincount(label)
    return (
        values.new_zeros(len(count), dtype=torch.float64).index_add(0, label, values.double())
        / count
    )


def path_quantile(values: Float[Tensor, "s"], batch: Batch, share: float) -> Float[Tensor, "s"]:
    """Return for each slot the linear `share` quantile of `values` over its path."""
    parts = torch.split(values, torch.bincount(batch.path, minlength=batch.n_paths).tolist())
    return torch.cat(
        [values[:0], *(part.quantile(share).expand(len(part)) for part in parts if len(part))]
    )


def sum_by(label: Int[Tensor, "m"], values: Float[Tensor, "m"], size: int) -> Float[Tensor, "n"]:
    """Return the sum of `values` by label, for labels below `size`."""
    return values.new_zeros(size).index_add(0, label, values)


def softmax_by(label: Int[Tensor, "m"], level: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
    """Return the weights n·softmax(level) within each label of n places; their mean is 1."""
    _, place = torch.unique(label, return_inverse=True)
    count = torch.bincount(place)
    top = level.new_full(count.shape, -torch.inf).scatter_reduce(0, place, level, "amax")
    share = torch.exp(level - top[place])
    return count[place] * share / sum_by(place, share, len(count))[place]


def shared_mean(values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot the mean of `values` over all slots of its token."""
    return mean_by(batch.token, values)[batch.token].to(values.dtype)


def scale(
    mode: Aggregation, batch: Batch, size: int = 1, count_empty: bool = False
) -> Float[Tensor, "s"]:
    """Return the scale that makes the loss the `mode` mean of its slots.

    - token-mean: Σ / N
    - seq-mean-token-mean: the mean over paths of each path's token mean
    - seq-mean-token-sum: the mean over paths of each path's sum
    - seq-mean-token-sum-norm: the same divided by `size` tokens, as verl has it since 2026; with `count_empty` as TRL
      and Dr. GRPO (arXiv 2503.20783) have it
    - token-sum: Σ
    - token-sum-norm: Σ / `size`, as verl had it until early 2026
    - turn-mean: the mean over paths of the mean over turns of the token mean (EPO, arXiv 2509.22576, Eq. 2)

    The loss is (1/N) Σ_s scale·value, N = slots. Paths and turns of which no token was sampled are not counted; with
    `count_empty` a mean over paths also counts those without a slot, which add 0.
    Raises ValueError on an unknown mode and on a size below 1.
    """
    if mode not in get_args(Aggregation):
        raise ValueError(
            f"aggregation is {mode!r}; it must be one of {', '.join(get_args(Aggregation))}"
        )
    if size < 1:
        raise ValueError(f"aggregation size is {size}; it is a number of tokens, at least 1")
    ones, n = torch.ones_like(batch.logp_old), batch.n_slots
    flat = {"token-mean": 1, "token-sum": n, "token-sum-norm": n / size}
    if mode in flat or not n:
        return ones * flat.get(mode, 1)
    per_path = ones * (n / (batch.n_paths if count_empty else torch.unique(batch.path).numel()))
    if mode.startswith("seq-mean-token-sum"):
        return per_path / size if mode.endswith("norm") else per_path
    return per_path / (
        _turns(batch) * _members(batch.row) if mode == "turn-mean" else _members(batch.path)
    )


def average(mode: Aggregation, values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, ""]:
    """Return the `mode` mean of `values`; 0 for a batch without slots."""
    return (scale(mode, batch) * values).sum() / max(batch.n_slots, 1)


def path_sum(values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot the sum of `values` over its path."""
    return sum_by(batch.path, values, batch.n_paths)[batch.path]


def path_mean(values: Float[Tensor, "s"], batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot the mean of `values` over its path."""
    return path_sum(values, batch) / _members(batch.path)


def whiten(values: Float[Tensor, "s"], chosen: Bool[Tensor, "s"]) -> Float[Tensor, "s"]:
    """Return (x - mean) / √(var + 1e-8) of the `chosen`, var unbiased, exactly 0 where all are equal; 0 elsewhere."""
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
