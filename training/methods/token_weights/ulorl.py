"""UloRL's DMMPTs (arXiv 2507.19766): what is mastered and right is not learned again where entropy is low.

Knob: objective (loss mask). Mastered positive tokens only narrow the policy.

    no gradient where the path is right (score ≥ 1), its mean entropy is below `entropy`, and p(token) ≥ mastered

Defaults: entropy 0.2 nats, mastered 0.99: paper.
Evidence: B, paper text, whose equation of the entropy lacks its sign.
Deviations: none; the mean still counts masked tokens. It sets no credit, so name it with grpo.
Off: entropy 0.
"""

import torch

from ...control.parameters import NonNegative, Share, checked
from ...loss.aggregation import path_mean
from ..base import Batch, Control, Needs, Now, State, Terms, replace


@checked
def ulorl(*, entropy: NonNegative = 0.2, mastered: Share = 0.99) -> Control:
    """Return UloRL's mask; `entropy` is in nats."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        sure = path_mean(now.entropy, batch) < entropy
        masked = sure & (batch.turns.score[batch.row] >= 1) & (now.logp.exp() >= mastered)
        return replace(terms, weight=torch.where(masked, 0.0, terms.weight))

    return Control(name="ulorl", needs=Needs(now=True), shape=shape)
