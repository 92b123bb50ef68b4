"""Rand-Pos-Clip (arXiv 2511.05993): a few random positive tokens are left out, as a control of Clip-Cov.

Knob: clip. It tests whether the ranking by covariance matters.

    left out: max(⌊share·N⌋, 1) tokens drawn from those with A > 0;   N stays

Defaults: share 0.0002, as Clip-Cov.
Evidence: B, paper text; from which tokens the count is taken could not be established, here from all.
Deviations: drawn once an optimizer step. It sets no credit, so name it with grpo.
Off: share 0.
"""

import torch

from ....agents.engine import keyed_rng
from ...control.parameters import Share, checked
from ..base import Batch, Control, Now, State, Terms, replace

SALT = 0x9C1  # parts these draws from others of the step


@checked
def rand_pos_clip(*, share: Share = 0.0002) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        (positive,) = torch.nonzero(terms.advantage > 0, as_tuple=True)
        count = min(max(int(share * batch.n_slots), 1), len(positive)) if share else 0
        rng = keyed_rng((batch.at.seed, batch.at.step, batch.at.update, SALT))
        drawn = positive[torch.from_numpy(rng.permutation(len(positive))[:count])]
        return replace(terms, weight=terms.weight.index_fill(0, drawn, 0.0))

    return Control(name="rand-pos-clip", shape=shape)
