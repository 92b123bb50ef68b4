"""Group-in-Group Policy Optimization (GiGPO, arXiv 2505.10978).

Knob: advantage. Besides whole paths, it compares actions of a group's paths that answer one and the same observation.

    A_E = (R - mean_g R) / F                    R: score of the path; g: its group
    R_t = Σ_{k ≥ t} gamma^(k - t)·r_k           r_k: reward of turn k
    A_S = (R_t - mean_a R_t) / F                a: turns of the group with the same observation before them
    A   = A_E + omega·A_S                       on all tokens of turn t;  F = 1, or std + 1e-6

Defaults: omega 1, F = 1 ("none") and gamma 0.95, as in the WebShop and Sokoban examples (ALFWorld: "std"; the
configuration file: gamma 1).
Evidence: A, read in released code (langfengQ/verl-agent, core as copied in WujiangXu/EPO).
Deviations: "statistic" is "path", as in the paper, so each path has one vote in mean_g and std_g; "row", the code's
default, has one a turn, and long paths weigh more. A turn that is alone with its observation gets A_S 0; a path alone
in its group keeps its raw score (over 1 + 1e-6 with "std"), which with "row" takes a path of one turn. A turn without a
sampled token earns for those before it but is in no group of turns. What a path's score holds beyond its turns'
rewards, such as a shaped reward, is paid with its last turn.
Axis: rows. A turn that paths share has a return and an advantage on each, and is a member for each of them.
"""

from __future__ import annotations

from math import inf
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..columns import Batch, Turns
from ..control import Control, State
from ..credit import by_path, discounted
from ..parameters import require
from .grpo import Normalize, group_advantage

Statistic = Literal["path", "row"]
EPS = 1e-6


def gigpo(
    *, omega: float = 1.0, gamma: float = 0.95, normalize: Normalize = "none", statistic: Statistic = "path"
) -> Control:
    """Return GiGPO; with `omega` 0 it is GRPO. Raises ValueError on a parameter out of range."""
    require(0 <= omega < inf, "gigpo", "omega", omega, "0 or more")
    require(0 <= gamma <= 1, "gigpo", "gamma", gamma, "0 to 1")
    require(normalize in ("std", "none"), "gigpo", "normalize", normalize, "std or none")
    require(statistic in ("path", "row"), "gigpo", "statistic", statistic, "path or row")

    def credit(batch: Batch, state: State) -> Float[Tensor, "s"]:
        turns = batch.turns
        drawn = torch.zeros_like(turns.rewarded).index_fill(0, batch.row, True) & turns.rewarded
        returns = discounted(paid(turns), turns.path, gamma)
        faced = turns.group * (turns.anchor.max() + 1) + turns.anchor

        def within(values: Float[Tensor, "n"], group: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
            return group_advantage(values, group, normalize=normalize, ddof=1, eps=EPS)

        def by_row(values: Float[Tensor, "n"]) -> Float[Tensor, "s"]:
            return torch.zeros_like(turns.score).masked_scatter(drawn, values.to(turns.score.dtype))[batch.row]

        among_steps = torch.where(alone(faced[drawn]), 0.0, within(returns[drawn], faced[drawn]))
        if statistic == "path":
            return by_path(within, batch) + omega * by_row(among_steps)
        return by_row(within(turns.score[drawn], turns.group[drawn]) + omega * among_steps)

    return Control(name="gigpo", sets=frozenset({"credit"}), credit=credit)


def alone(label: Int[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """Return which places no other shares its label with."""
    _, place = torch.unique(label, return_inverse=True)
    return torch.bincount(place)[place] == 1


def paid(turns: Turns) -> Float[Tensor, "r"]:
    """Return each turn's reward in float64, the last of a path with what the score holds beyond their sum.

    NaN on the last turn of a path that earned no score.
    """
    reward = turns.reward.double()
    size = int(turns.path.max()) + 1
    total = reward.new_zeros(size).index_add(0, turns.path, reward)
    last = turns.turn.new_zeros(size).scatter_reduce(0, turns.path, turns.turn, "amax")
    rest = turns.score.double() - total[turns.path]
    rounding = 1e-6 * (1 + turns.score.double().abs())  # rewards and scores are float32
    return reward + torch.where((turns.turn == last[turns.path]) & ~(rest.abs() <= rounding), rest, 0.0)
