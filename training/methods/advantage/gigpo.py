"""Group-in-Group Policy Optimization (GiGPO, arXiv 2505.10978).

Knob: advantage. Besides whole paths, it compares actions of a group's paths that answer one and the same observation.

    A_E = (R - mean_g R) / F                    R: score of the path; g: its group
    R_t = Σ_{k ≥ t} gamma^(k - t)·r_k           r_k: reward of turn k
    A_S = (R_t - mean_a R_t) / F                a: turns of the group with the same observation before them
    A   = A_E + omega·A_S                       on all tokens of turn t;  F = 1, or std + 1e-6

Defaults: omega 1, F = 1 ("none"), gamma 0.95: WebShop and Sokoban examples (ALFWorld: "std"; configuration: gamma 1).
Evidence: A, read in released code (langfengQ/verl-agent, core as copied in WujiangXu/EPO).
Deviations: "statistic" is "path", as in the paper: each path has one vote in mean_g and std_g; "row", the code's
default, has one a turn. A turn that is alone with its observation gets A_S 0; a path alone in its group keeps its raw
score (over 1 + 1e-6 with "std"). A turn without a sampled token earns for those before it but is in no group of turns.
What the score holds beyond the turns' rewards is paid with the last turn.
Axis: rows. A turn that paths share has a return and an advantage on each, and is a member for each of them.
"""

from typing import Literal

import torch

from ...control.parameters import NonNegative, Share, checked
from ...loss.credit import Normalize, alone, by_path, group_advantage, paid
from ...loss.gae import discounted
from ..base import Batch, Control, Labels, Slots, State, Vector


@checked
def gigpo(
    *,
    omega: NonNegative = 1.0,
    gamma: Share = 0.95,
    normalize: Normalize = "none",
    statistic: Literal["path", "row"] = "path",
) -> Control:
    """Return GiGPO; with `omega` 0 it is GRPO."""

    def credit(batch: Batch, state: State) -> Slots:
        turns = batch.turns
        drawn = torch.zeros_like(turns.rewarded).index_fill(0, batch.row, True) & turns.rewarded
        returns = discounted(paid(turns), turns.path, gamma)
        faced = turns.group * (turns.anchor.max() + 1) + turns.anchor

        def within(values: Vector, group: Labels) -> Vector:
            return group_advantage(values, group, normalize=normalize, ddof=1, eps=1e-6)

        def by_row(values: Vector) -> Slots:
            return torch.zeros_like(turns.score).masked_scatter(
                drawn, values.to(turns.score.dtype)
            )[batch.row]

        among_steps = torch.where(alone(faced[drawn]), 0.0, within(returns[drawn], faced[drawn]))
        if statistic == "path":
            return by_path(within, batch) + omega * by_row(among_steps)
        return by_row(within(turns.score[drawn], turns.group[drawn]) + omega * among_steps)

    return Control(name="gigpo", sets=frozenset({"credit"}), credit=credit)
