"""Shaping by perplexity and position (Deng et al., arXiv 2508.02260).

Knob: advantage. Fluent paths count more, and so do the later tokens of a path.

    A ← A·(1 - alpha·z),  z: log-perplexity of the path, standardised within its group
    A ← A + sign(A)·b·σ(gamma·(t/T - 1/2))

Defaults: alpha 0.01, b 0.1, gamma 1: ours.
Evidence: C. Directions are the paper's; formulas and coefficients could not be established.
Deviations: perplexity is that of the policy which drew. Name it behind what sets the advantage.
Off: alpha 0 and b 0.
"""

import torch

from ...control.parameters import Finite, NonNegative, checked
from ...loss.credit import Paths, standard
from ..base import Batch, Control, Now, State, Terms, replace


@checked
def deng(*, alpha: NonNegative = 0.01, b: NonNegative = 0.1, gamma: Finite = 1.0) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths, advantage = Paths.of(batch), terms.advantage
        z = standard(paths.mean(-batch.logp_old), paths.group)
        advantage = advantage * (1 - alpha * paths.slots(z, advantage))
        length = torch.bincount(batch.path, minlength=batch.n_paths)
        place = torch.arange(batch.n_slots) - (length.cumsum(0) - length)[batch.path]
        late = torch.sigmoid(gamma * (place / length[batch.path] - 0.5)).to(advantage)
        return replace(terms, advantage=advantage + advantage.sign() * b * late)

    return Control(name="deng", shape=shape)
