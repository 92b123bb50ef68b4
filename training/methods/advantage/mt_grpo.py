"""Multi-Turn GRPO: credit for the turn before the first tool result (MT-GRPO, Zeng et al., arXiv 2505.11821).

Knob: advantage. What comes before the first tool result is also judged by what that turn itself earned.

    z(x) = (x - mean_g x) / (std_g x + 1e-4)                 over the paths of a group, unbiased std
    before the first tool result: A = z(O) + lam·z(T)        T: reward of the first turn
    behind it:                    A = z(O)                   O: the rest of the score
    a path without tool result:   A = z(T + O) on all of it

Defaults: lam 1; groups of 21 and 2 optimizer steps a rollout are the run's.
Evidence: A, read in released code (SiliangZeng/Multi-Turn-RL-Agent); how the paper differs is not established.
Deviations: the first tool result is taken to follow turn 0 of a path that has a second turn. Only there is it split,
however many turns follow: the generalisation A_t = z(O) + lam·Σ_{s ≥ t} z(T_s) is not established and not offered. T of
a path without tool result is 0, its whole score being O. A path alone in its group keeps its raw rewards, over
1 + 1e-4, as in GRPO. The code's second estimate ("cae": z(T + O) before the result) is left out.
"""

from functools import partial

import torch

from ...control.parameters import NonNegative, checked
from ...loss.credit import by_path, standard
from ..base import Batch, Control, Rows, Slots, State, replace

EPS = 1e-4


@checked
def mt_grpo(*, lam: NonNegative = 1.0) -> Control:
    """Return MT-GRPO; `lam` 0 leaves out what the first turn earned."""

    def credit(batch: Batch, state: State) -> Slots:
        turns = batch.turns
        several = torch.bincount(turns.path)[turns.path] > 1
        opening = torch.where(several & (turns.turn == 0), turns.reward, 0.0)
        earned = torch.zeros_like(opening).index_add(0, turns.path, opening)[turns.path]

        def relative(reward: Rows) -> Slots:
            return by_path(
                partial(standard, eps=EPS), replace(batch, turns=replace(turns, score=reward))
            )

        behind = relative(turns.score - earned)
        split = torch.where(batch.turn == 0, behind + lam * relative(earned), behind)
        return torch.where(several[batch.row], split, relative(turns.score))

    return Control(name="mt-grpo", sets=frozenset({"credit"}), credit=credit)
