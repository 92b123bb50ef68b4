"""From scores to advantages: what a path earned, or what it still earns behind a token, less what was to be expected.

Paths that an infrastructure failure ended have no part in any of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .columns import Batch

Judge = Callable[[Float[Tensor, "p"], Int[Tensor, "p"]], Float[Tensor, "p"]]  # of the paths' scores and groups


def by_path(judge: Judge, batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot what `judge` gives its path, among those that earned a score; 0 where it earned none."""
    turns, rewarded = batch.turns, batch.turns.rewarded
    paths, place = torch.unique(turns.path[rewarded], return_inverse=True)
    score = turns.score.new_zeros(len(paths)).index_put((place,), turns.score[rewarded])
    group = turns.group.new_zeros(len(paths)).index_put((place,), turns.group[rewarded])
    return torch.zeros_like(turns.score).masked_scatter(rewarded, judge(score, group)[place])[batch.row]


def earned(batch: Batch) -> Bool[Tensor, "s"]:
    """Return which slots belong to a path that earned a score."""
    return batch.turns.rewarded[batch.row]


def final_reward(batch: Batch) -> Float[Tensor, "s"]:
    """Return the score of each path on its last slot and 0 elsewhere, also where it earned none."""
    return torch.where(~_followed(batch.path) & earned(batch), batch.turns.score[batch.row], 0.0)


def discounted(values: Float[Tensor, "s"], path: Int[Tensor, "s"], decay: float) -> Float[Tensor, "s"]:
    """Return y_t = x_t + decay·y_{t+1} along each path, y being 0 behind its last slot."""
    result, total = list[float](), 0.0
    for value, followed in zip(reversed(values.tolist()), reversed(_followed(path).tolist())):
        total = value + (decay * total if followed else 0.0)
        result.append(total)
    return values.new_tensor(result[::-1])


def gae(
    reward: Float[Tensor, "s"], value: Float[Tensor, "s"], path: Int[Tensor, "s"], gamma: float, lam: float
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
