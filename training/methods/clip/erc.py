"""Entropy ratio clipping (ERC, arXiv 2512.05591): tokens whose entropy has moved too far get no gradient.

Knob: clip. A bound on the whole distribution, beside the one on the drawn token's probability.

    ρ_t = (H_t + 1e-8)/(H_old,t + 1e-8);   learned from where low < ρ_t < high

Defaults: low 0.95, high 1.05: released scripts (an earlier experiment: 0.8, 1.2).
Evidence: A, read in released code (Kwai-Klear/ERC, `core_algos`), which names it on top of DAPO.
Deviations: the loss that is reported lacks these tokens, too; its mean still counts them. It sets no credit.
Note: in the first optimizer step on a rollout ρ is 1, so it needs --updates 2 or more.
Off: low 0 and high inf.
"""

import torch

from ...control.parameters import Share, checked
from ..base import Batch, Ceiling, Control, Needs, Now, State, Terms, replace

EPS = 1e-8


@checked
def erc(*, low: Share = 0.95, high: Ceiling = 1.05) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        moved = (now.entropy + EPS) / (batch.entropy + EPS)
        return replace(terms, weight=torch.where((low < moved) & (moved < high), terms.weight, 0.0))

    return Control(name="erc", needs=Needs(now=True), shape=shape)
