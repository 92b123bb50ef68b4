"""Negative and positive sample reinforcement (NSR, PSR, arXiv 2506.01347): learning from one side of the advantage.

Knob: objective (token weights). Wrong paths alone keep entropy and coverage, right ones alone consume them.

    weight `positive` where A > 0, `negative` where A < 0

Defaults: nsr 0 and 1, psr 1 and 0: paper; nsr with positive 0.1 is its W-REINFORCE.
Evidence: B, paper text.
Deviations: the paper has rewards of ±1 without a baseline: `reinforce,nsr`. The mean still counts all tokens.
Off: positive and negative 1.
"""

import torch

from ...control.parameters import Share, checked
from ..base import Batch, Control, Now, State, Terms, replace


@checked
def nsr(*, positive: Share = 0.0, negative: Share = 1.0) -> Control:
    """Return the weights that make the most of what is bad."""
    return _weighed("nsr", positive, negative)


@checked
def psr(*, positive: Share = 1.0, negative: Share = 0.0) -> Control:
    """Return the weights that make the most of what is good."""
    return _weighed("psr", positive, negative)


def _weighed(name: str, positive: float, negative: float) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        share = torch.where(
            terms.advantage > 0, positive, torch.where(terms.advantage < 0, negative, 1.0)
        )
        return replace(terms, weight=terms.weight * share.to(terms.weight))

    return Control(name=name, shape=shape)
