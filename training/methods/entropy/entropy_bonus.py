"""Entropy bonus (Williams & Peng 1991; Mnih et al., arXiv 1602.01783).

Knob: objective. The loss is lowered by the entropy of every sampled token.

    L ← L - coef · mean H          averaged as the rest of the loss is

Defaults: coef 0.001, as EPO's released configuration (arXiv 2509.22576); 0.01 is usual in games.
Evidence: A, read in released code (verl `entropy_coeff`).
Deviations: none. Entropy is that of the full vocabulary at temperature 1.
"""

from ...control.parameters import NonNegative, checked
from ..base import Batch, Control, Needs, Now, State, Terms, replace


@checked
def entropy_bonus(coef: NonNegative = 0.001) -> Control:
    """Return a constant entropy bonus of `coef` per nat; 0 changes nothing."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(terms, entropy_coef=terms.entropy_coef + coef)

    return Control(name="entropy-bonus", needs=Needs(entropy_grad=coef > 0), shape=shape)
