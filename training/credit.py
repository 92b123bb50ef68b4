"""Advantages from scores, and sums and means over slots.

Paths that an infrastructure failure ended earn no advantage. All is computed once on all slots of an optimizer step, so
how it is cut into micro-batches cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .columns import Batch, Turns

Judge = Callable[
    [Float[Tensor, "p"], Int[Tensor, "p"]], Float[Tensor, "p"]
]  # of the paths' scores and groups
Normalize = Literal["std", "none"]
Aggregation = Literal[
    "token-mean",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "token-sum",
    "token-sum-norm",
    "turn-mean",
]


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


def mean_by(label: Int[Tensor, "m"], values: Float[Tensor, "m"]) -> Float[Tensor, "n"]:
    """Return the mean of `values` by label, in float64, where the mean of equal float32 values is that value."""
    count = torch.bincount(label)
    return (
        values.new_zeros(len(count), dtype=torch.float64).index_add(0, label, values.double())
        / count
    )


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


def path_quantile(values: Float[Tensor, "s"], batch: Batch, share: float) -> Float[Tensor, "s"]:
    """Return for each slot the linear `share` quantile of `values` over its path."""
    parts = torch.split(values, torch.bincount(batch.path, minlength=batch.n_paths).tolist())
    return torch.cat(
        [values[:0], *(part.quantile(share).expand(len(part)) for part in parts if len(part))]
    )


def sum_by(label: Int[Tensor, "m"], values: Float[Tensor, "m"], size: int) -> Float[Tensor, "n"]:
    """Return the sum of `values` by label, for labels below `size`."""
    return values.new_zeros(size).index_add(0, label, values)


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
