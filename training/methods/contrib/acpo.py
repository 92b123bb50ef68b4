"""ACPO (arXiv 2510.08899): parts of a path count by how much uncertainty they remove.

Knob: advantage. A path is cut where its entropy leaps; what makes the rest certain deserves the credit.

    a token of entropy above the `quantile` of its path begins a segment;   H_k: mean entropy of segment k
    I_k = H_k - H_{k+1}, 0 behind the last;   A ← A·(K·softmax_k(I_k/tau)) on the tokens of segment k of K

Defaults: quantile 0.8, tau 1: ours.
Evidence: C. Segments by semantics, and credit by an estimate of mutual information from entropies, are the paper's; its
formula could not be established.
Deviations: its curriculum by difficulty is not here. It sets no credit, so name it with grpo.
Off: tau inf.
"""

import torch

from ...control.parameters import Share, checked
from ...loss.aggregation import mean_by, path_quantile, softmax_by
from ..base import Batch, Control, Now, Slots, State, Terms, Width, replace


@checked
def acpo(*, quantile: Share = 0.8, tau: Width = 1.0) -> Control:
    """Return the coefficients; `tau` is in nats."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(
            terms, advantage=terms.advantage * attributed(batch, quantile, tau).to(terms.advantage)
        )

    return Control(name="acpo", shape=shape)


def attributed(batch: Batch, quantile: float, tau: float) -> Slots:
    """Return each slot's coefficient, in float64; its mean over the segments of a path is 1."""
    if not batch.n_slots:
        return batch.entropy.double()
    begins = batch.entropy > path_quantile(batch.entropy, batch, quantile)
    begins |= torch.cat([begins.new_ones(1), batch.path.diff() != 0])
    segment = begins.cumsum(0) - 1
    level, path = mean_by(segment, batch.entropy), batch.path[begins]
    follows = torch.cat([path.diff() == 0, begins.new_zeros(1)])
    removed = torch.where(follows, level - level.roll(-1), 0.0)
    return softmax_by(path, removed / tau)[segment]
