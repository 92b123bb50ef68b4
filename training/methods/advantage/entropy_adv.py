"""Entropy advantage (Reasoning with Exploration, arXiv 2506.14758): a bonus for uncertain tokens that flips no sign.

Knob: advantage. Also where the advantage is negative: there uncertainty shrinks the penalty.

    A ← A + min(alpha·H, |A|/kappa)

Defaults: alpha 0.4 (GRPO; PPO: 0.1), kappa 2: paper, for rewards of ±1.
Evidence: B, paper text, confirmed by independent notes.
Deviations: entropy is that of the policy at the start of the update. Name it behind what sets the advantage.
Off: alpha 0.
"""

from typing import Annotated

import torch

from ...control.parameters import NonNegative, Range, checked
from ..base import Batch, Control, Now, State, Terms, replace


@checked
def entropy_adv(
    *, alpha: NonNegative = 0.4, kappa: Annotated[float, Range(1, above=True)] = 2.0
) -> Control:
    """Return the bonus; `alpha` is per nat."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        bonus = torch.minimum(alpha * batch.entropy, terms.advantage.abs() / kappa)
        return replace(terms, advantage=terms.advantage + bonus.to(terms.advantage))

    return Control(name="entropy-adv", shape=shape)
