"""OPEFO and PAPO (arXiv 2605.11491, 2605.11775): weights by the sign of each token's first-order change of entropy.

Knob: objective (token weights). f_t = -A·π(1 - π)·(log π + H) says whether learning from a token raises entropy.

    opefo: tokens that lower it weigh κ = min(1, Σ raised / (keep·Σ lowered))
    papo:  A ← A·(1 + gain·f_t / max |f|)

Defaults: keep 1, gain 0.5: ours.
Evidence: C. That tokens are told apart by the sign, and that a closed-form coefficient balances them, is the papers';
their formulas could not be established.
Deviations: sums are over the optimizer step. It sets no credit, so name it with grpo.
Off: keep 0; gain 0.
"""

import torch

from ...control.parameters import NonNegative, Share, checked
from ..base import Batch, Control, Needs, Now, Slots, State, Terms, replace


@checked
def opefo(*, keep: NonNegative = 1.0) -> Control:
    """Return the balance of both flows."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        change = polarity(terms.advantage, now)
        raised, lowered = change.clamp(min=0).sum(), keep * (-change).clamp(min=0).sum()
        kappa = (raised / lowered).clamp(max=1) if lowered > 0 else 1.0
        return replace(terms, weight=torch.where(change < 0, kappa * terms.weight, terms.weight))

    return Control(name="opefo", needs=Needs(now=True), shape=shape)


@checked
def papo(*, gain: Share = 0.5) -> Control:
    """Return the weights by polarity."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        change = polarity(terms.advantage, now)
        most = change.abs().max() if len(change) else change.new_zeros(())
        return replace(
            terms, advantage=terms.advantage * (1 + gain * change / most.clamp(min=1e-12))
        )

    return Control(name="papo", needs=Needs(now=True), shape=shape)


def polarity(advantage: Slots, now: Now) -> Slots:
    """Return the first-order change of entropy where only the drawn token's logit moves, by A·(1 - π)."""
    p = now.logp.exp()
    return -advantage * p * (1 - p) * (now.logp + now.entropy)
