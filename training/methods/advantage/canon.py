"""CANON (arXiv 2509.23962): a path is compared with the other half of its group, sorted by entropy or length.

Knob: advantage. What a group says about uncertain paths is told apart from what it says about certain ones.

    halves: the lower ⌊n/2⌋ by the metric, and the rest; m_L, m_H their mean scores
    high: mu·(s - alpha·m_L + beta) + (1 - mu)·(s - m_H);   low: mu·(alpha·s - m_H - beta) + (1 - mu)·(s - m_L)

Defaults: mu 1, alpha 1, beta 0, metric entropy: paper. With mu 0.5 and equal halves it is Dr. GRPO's advantage.
Evidence: A, read in released code (biuboomc/CANON, `core_algos`).
Deviations: the code divides by a length of 8192, which is an aggregation, as in `dr-grpo`. Ties keep the paths' order.
"""

from typing import Literal

import torch

from ...control.parameters import Finite, Share, checked
from ...loss.credit import Paths
from ..base import Batch, Control, Slots, State


@checked
def canon(
    *,
    mu: Share = 1.0,
    alpha: Finite = 1.0,
    beta: Finite = 0.0,
    metric: Literal["entropy", "length"] = "entropy",
) -> Control:
    def credit(batch: Batch, state: State) -> Slots:
        paths = Paths.of(batch)
        by = paths.mean(batch.entropy) if metric == "entropy" else torch.bincount(paths.place)
        found = torch.zeros_like(paths.score)
        for group in torch.unique(paths.group):
            (members,) = torch.nonzero(paths.group == group, as_tuple=True)
            order = members[by[members].argsort(stable=True)]
            low, high = order[: len(order) // 2], order[len(order) // 2 :]
            s, m_low, m_high = (
                paths.score,
                paths.score[low].sum() / max(len(low), 1),
                paths.score[high].mean(),
            )
            found[high] = mu * (s[high] - alpha * m_low + beta) + (1 - mu) * (s[high] - m_high)
            found[low] = mu * (alpha * s[low] - m_high - beta) + (1 - mu) * (s[low] - m_low)
        return paths.slots(found, batch.logp_old)

    return Control(name="canon", sets=frozenset({"credit"}), credit=credit)
