"""Conditional entropy shaping (CES, arXiv 2605.19358): forks cost something on right paths and pay on wrong ones.

Knob: advantage. Short answers where the task is easy, exploration where it is not solved yet.

    on the `share` of a path's tokens of highest entropy:  A ← A - gain·|A| on right paths, A + gain·|A| on wrong ones

Defaults: share 0.2 (of forking tokens, arXiv 2506.01939), gain 0.3: ours.
Evidence: C. Which tokens are changed, and in which direction, is in the abstract; the formula is not.
Deviations: a path is right where its score is 1. Name it behind dapo or grpo.
Off: gain 0.
"""

import torch

from ...control.parameters import Share, checked
from ...loss.aggregation import path_quantile
from ...loss.credit import Paths
from ..base import Batch, Control, Now, State, Terms, replace


@checked
def ces(*, share: Share = 0.2, gain: Share = 0.3) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths = Paths.of(batch)
        sign = paths.slots(1 - 2 * paths.right.double(), terms.advantage)
        fork = batch.entropy >= path_quantile(batch.entropy, batch, 1 - share)
        shaped = terms.advantage + torch.where(fork, gain * sign, 0.0) * terms.advantage.abs()
        return replace(terms, advantage=shaped)

    return Control(name="ces", shape=shape)
