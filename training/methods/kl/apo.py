"""APO (arXiv 2506.21655): the KL is light where the task is hard, and long wrong answers cost more.

Knob: KL, advantage. d is the share of wrong paths of a group.

    + coef · mean_i f_i · mean_t k3,   f_i = 1 - exp(-e·(1 - d)) where A > 0 and 0 < d < 1, else 1;   e = 2.718…
    wrong and longer than the mean right path by n tokens: A ← A·(2 - 1.00001^-n)

Defaults: coef 0.001, grow 0.00001: released code.
Evidence: A, read in released code (Indolent-Kawhi/View-R1, `ppo_actor.py`, `experience_maker.py`).
Deviations: right is a score of 1 or more; length is in sampled tokens. It sets no credit, so name it with grpo.
Off: coef 0 and grow 0.
"""

from math import e

import torch

from ...control.parameters import NonNegative, checked
from ...loss.aggregation import sum_by
from ...loss.credit import Paths
from ...loss.kl import k3
from ..base import Batch, Control, Current, Needs, Now, Penalty, State, Terms, replace
from .kl import reference


@checked
def apo(*, coef: NonNegative = 0.001, grow: NonNegative = 0.00001) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths, advantage = Paths.of(batch), terms.advantage
        if not len(paths.score):
            return terms
        group, right, easy = paths.group, paths.right, paths.easy
        length = torch.bincount(paths.place).double()
        known = sum_by(group, length * right, len(group)) / sum_by(
            group, right.double(), len(group)
        ).clamp(min=1)
        over = torch.where((easy > 0) & ~right, (length - known[group]).clamp(min=0), 0.0)
        advantage = advantage * paths.slots(2 - (1 + grow) ** -over, advantage, 1.0)
        light = torch.where((easy > 0) & (easy < 1), 1 - torch.exp(-e * easy), 1.0)
        factor = torch.where(advantage > 0, paths.slots(light, advantage), 1.0)
        cost = factor * paths.slots(coef / (len(length) * length), advantage)
        penalty = Penalty("apo-kl", cost, _k3)
        return replace(
            terms,
            advantage=advantage,
            penalties=(*terms.penalties, penalty) if coef else terms.penalties,
        )

    return Control(name="apo", needs=Needs(logp_ref=coef > 0), shape=shape)


def _k3(current: Current, batch: Batch, terms: Terms) -> torch.Tensor:
    return k3(current.logp, reference(batch))
