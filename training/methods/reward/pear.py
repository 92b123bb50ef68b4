"""PEAR (arXiv 2510.08026): right answers lose what their thoughts were more uncertain than their answers.

Knob: reward. Long, doubtful thinking costs; doubt in what is said outside does not.

    P = max(0, h_think - alpha·h_rest), means of entropy over thoughts and over the other sampled tokens of the path
    s ← min(1, s - P) where the path is right (score ≥ 1)

Defaults: alpha 1: paper.
Evidence: B, paper text. The rewards of right and of well-formed wrong answers could not be established.
Deviations: thoughts of all turns count; a wrong path keeps its score, where the paper gives it one for its format.
Off: weight 0.
"""

import torch

from ....agents.trajectory import PHASES
from ...control.parameters import NonNegative, Share, checked
from ...loss.aggregation import sum_by
from ..base import Batch, Control, Rows, State


@checked
def pear(*, alpha: NonNegative = 1.0, weight: Share = 1.0) -> Control:
    """Return PEAR's score; entropies are in nats, `weight` is that of P."""

    def reward(batch: Batch, state: State) -> Rows:
        turns, thinks = batch.turns, batch.phase == PHASES.index("think")
        parts = []
        for where in (thinks, ~thinks):
            total = sum_by(batch.path[where], batch.entropy[where], batch.n_paths)
            parts.append(
                total / torch.bincount(batch.path[where], minlength=batch.n_paths).clamp(min=1)
            )
        cost = weight * (parts[0] - alpha * parts[1]).clamp(min=0)[turns.path].to(turns.score)
        return (
            torch.where(turns.score >= 1, (turns.score - cost).clamp(max=1), turns.score)
            if weight
            else turns.score
        )

    return Control(name="pear", reward=reward)
