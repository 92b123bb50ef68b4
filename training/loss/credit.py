"""Advantages from scores.

Paths that an infrastructure failure ended earn no advantage. All is computed once on all slots of an optimizer step, so
how it is cut into micro-batches cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..data.batch import Batch, Turns
from .aggregation import mean_by, sum_by
from .gae import _followed

Judge = Callable[
    [Float[Tensor, "p"], Int[Tensor, "p"]], Float[Tensor, "p"]
]  # of the paths' scores and groups
Normalize = Literal["std", "none"]


def by_path(judge: Judge, batch: Batch) -> Float[Tensor, "s"]:
    """Return for each slot what `judge` gives its path, among those that earned a score; 0 where it earned none."""
    turns, rewarded = batch.turns, batch.turns.rewarded
    paths, place = torch.unique(turns.path[rewarded], return_inverse=True)
    score = turns.score.new_zeros(len(paths)).index_put((place,), turns.score[rewarded])
    group = turns.group.new_zeros(len(paths)).index_put((place,), turns.group[rewarded])
    return torch.zeros_like(turns.score).masked_scatter(rewarded, judge(score, group)[place])[
        batch.row
    ]


def group_advantage(
    score: Float[Tensor, "p"],
    group: Int[Tensor, "p"],
    *,
    normalize: Normalize,
    ddof: int,
    eps: float,
) -> Float[Tensor, "p"]:
    """Return each score less its group's mean, for "std" over std + eps: exactly 0 of equal ones; one alone is kept."""
    groups, member = torch.unique(group, return_inverse=True)
    zeros = score.new_zeros(len(groups))
    count = torch.bincount(member, minlength=len(groups))
    # Above the group's least score, so that rounding cannot part equal scores.
    least = zeros.scatter_reduce(0, member, score, "amin", include_self=False)
    above = score - least[member]
    centred = above - (zeros.index_add(0, member, above) / count)[member]
    alone = count[member] == 1
    if normalize == "none":
        return torch.where(alone, score, centred)
    variance = zeros.index_add(0, member, centred.square()) / (count - ddof).clamp(min=1)
    return torch.where(alone, score, centred) / (
        torch.where(alone, 1.0, variance.sqrt()[member]) + eps
    )


def centred(score: Float[Tensor, "p"], group: Int[Tensor, "p"]) -> Float[Tensor, "p"]:
    """Return each path's score less the mean of its group; a group of one keeps its score."""
    return group_advantage(score, group, normalize="none", ddof=1, eps=1.0)


def earned(batch: Batch) -> Bool[Tensor, "s"]:
    """Return which slots belong to a path that earned a score."""
    return batch.turns.rewarded[batch.row]


def final_reward(batch: Batch) -> Float[Tensor, "s"]:
    """Return the score of each path on its last slot and 0 elsewhere, also where it earned none."""
    return torch.where(~_followed(batch.path) & earned(batch), batch.turns.score[batch.row], 0.0)


def alone(label: Int[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """Return which places no other shares its label with."""
    _, place = torch.unique(label, return_inverse=True)
    return torch.bincount(place)[place] == 1


def paid(turns: Turns) -> Float[Tensor, "r"]:
    """Return each turn's reward in float64, the last of a path with what the score holds beyond their sum.

    NaN on the last turn of a path that earned no score.
    """
    reward = turns.reward.double()
    rest = turns.score.double() - sum_by(turns.path, reward, int(turns.path.max()) + 1)[turns.path]
    rounding = 1e-6 * (1 + turns.score.double().abs())  # rewards and scores are float32
    return reward + torch.where(~_followed(turns.path) & ~(rest.abs() <= rounding), rest, 0.0)


def steps(batch: Batch) -> tuple[Bool[Tensor, "s"], Int[Tensor, "n"], Int[Tensor, "m"]]:
    """Return which slots are on paths that earned a score, the rows with such slots, ascending, and each one's row."""
    learned = earned(batch)
    rows, step = torch.unique(batch.row[learned], return_inverse=True)
    return learned, rows, step


@dataclass(frozen=True, eq=False)
class Paths:
    """The `p` paths of a batch that earned a score and have a slot; `m` slots lie on them."""

    learned: Bool[Tensor, "s"]  # which slots lie on them
    place: Int[Tensor, "m"]  # the path of each of these slots, 0 … p - 1
    score: Float[Tensor, "p"]
    group: Int[Tensor, "p"]  # 0 … g - 1, equal where paths are compared with each other

    @classmethod
    def of(cls, batch: Batch) -> Paths:
        """Return those of a batch."""
        learned = earned(batch)
        paths, place = torch.unique(batch.path[learned], return_inverse=True)
        row = batch.row.new_zeros(len(paths)).index_put((place,), batch.row[learned])
        _, group = torch.unique(batch.turns.group[row], return_inverse=True)
        return cls(learned, place, batch.turns.score[row], group)

    @property
    def right(self) -> Bool[Tensor, "p"]:
        """Return which paths have the full score."""
        return self.score >= 1

    @property
    def easy(self) -> Float[Tensor, "p"]:
        """Return the share of right paths of each path's group, in float64."""
        return mean_by(self.group, self.right.double())[self.group]

    def mean(self, values: Float[Tensor, "s"]) -> Float[Tensor, "p"]:
        """Return the mean of `values` over each path's slots, in float64."""
        return mean_by(self.place, values[self.learned])

    def slots(
        self, values: Float[Tensor, "p"], like: Float[Tensor, "s"], rest: float = 0.0
    ) -> Float[Tensor, "s"]:
        """Return each slot's path's value in the type of `like`; `rest` where the path earned no score."""
        return torch.full_like(like, rest).masked_scatter(
            self.learned, values[self.place].to(like.dtype)
        )


def standard(
    values: Float[Tensor, "p"], group: Int[Tensor, "p"], eps: float = 1e-6
) -> Float[Tensor, "p"]:
    """Return (x - mean)/(std + eps) within groups, std unbiased; a group of one has mean 0 and std 1."""
    return group_advantage(values, group, normalize="std", ddof=1, eps=eps)


def solved(turns: Turns) -> Float[Tensor, "r"]:
    """Return for each turn the share of right paths (score 1) of its group, of those that earned one; else 0."""
    groups, group = torch.unique(turns.group, return_inverse=True)
    begins = (turns.turn == 0) & turns.rewarded
    right = sum_by(group[begins], (turns.score[begins] >= 1).double(), len(groups))
    return (right / torch.bincount(group[begins], minlength=len(groups)).clamp(min=1))[group]


def possible(turns: Turns) -> Bool[Tensor, "r"]:
    """Return which turns the environment did not call invalid; where it does not say, all are possible."""
    return torch.ones_like(turns.rewarded) if turns.valid is None else turns.valid != 0


def living(turns: Turns) -> Bool[Tensor, "r"]:
    """Return which turns were no dead ends: possible, and behind them the path has a further turn, or they earned."""
    return possible(turns) & (_followed(turns.path) | (turns.reward > 0))
