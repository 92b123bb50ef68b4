"""Bi-level generalised advantage estimation of RAGEN (Wang et al., arXiv 2504.20073).

Knob: advantage and objective. A value head's advantages are first taken from turn to turn, which says what each turn
is worth, and then from token to token within the turn.

    e is the last token of a turn and e' that of the next; A and V are 0 behind the last turn:
        δ_e = r_e + gamma_turn·V_e' - V_e,   A_e = δ_e + gamma_turn·lam·A_e',   r_e ← A_e + V_e
    then for all tokens t of a turn, with r 0 but on e, and A and V 0 behind e:
        δ_t = r_t + gamma·V_{t+1} - V_t,     A_t = δ_t + gamma·lam·A_{t+1},     returns A + V
    A is standardised over all tokens of the step; the value loss is PPO's.

Defaults: gamma 1, lam 1, gamma_turn 0.95 (released code); value_coef 1 and value_clip 0.5 as `ppo`.
Evidence: A, read in released code (mll-lab-nu/RAGEN), where it is off by default.
Deviations: turns end where they end; the code takes every token with a reward for an end, so it misses a turn that
earns exactly 0 and fails where the last one does. A turn without a sampled token leaves its reward to the turn before
it on the path, or to the one behind where there is none before. What the score holds beyond the turns' rewards is paid
with the last turn.
Axis: slots. A token that paths share has one V, but an advantage and a return on each path, and counts once for each.
"""

from functools import partial

import torch

from ...control.parameters import Bound, NonNegative, Share, checked
from ...loss.credit import paid
from ...loss.gae import gae
from ..base import Batch, Control, Labels, Slots, Vector
from ..base_algorithms.ppo import VALUE, with_value


@checked
def bilevel_gae(
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    gamma_turn: Share = 0.95,
    value_coef: NonNegative = 1.0,
    value_clip: Bound = 0.5,
) -> Control:
    """Return the value head, its loss and the advantage."""
    return with_value(
        "bilevel-gae", partial(bilevel_advantage, gamma, lam, gamma_turn), value_coef, value_clip
    )


def bilevel_advantage(gamma: float, lam: float, gamma_turn: float, batch: Batch) -> Slots:
    """Return the advantage of each slot before it is standardised."""
    value = batch.extras[VALUE]
    if not batch.n_slots:
        return value
    rows, ends = turn_ends(batch)
    reward = turn_reward(batch, rows).to(value.dtype)
    worth = gae(reward, value[ends], batch.turns.path[rows], gamma_turn, lam) + value[ends]
    return gae(torch.zeros_like(value).index_put((ends,), worth), value, batch.row, gamma, lam)


def turn_ends(batch: Batch) -> tuple[Labels, Labels]:
    """Return the rows that have slots, and of each the last slot."""
    rows, count = torch.unique_consecutive(batch.row, return_counts=True)
    return rows, count.cumsum(0) - 1


def turn_reward(batch: Batch, rows: Labels) -> Vector:
    """Return what each of `rows` earned, with the rewards of turns of its path that have no slot; 0 without a score."""
    turns = batch.turns
    reward = torch.where(turns.rewarded, paid(turns), 0.0)
    row = torch.arange(len(reward))
    before = (torch.searchsorted(rows, row, right=True) - 1).clamp(min=0)
    behind = (before + 1).clamp(max=len(rows) - 1)
    place = torch.where(turns.path[rows[before]] == turns.path, before, behind)
    mine = turns.path[rows[place]] == turns.path  # others belong to paths without a slot here
    return reward.new_zeros(len(rows)).index_add(0, place[mine], reward[mine])
