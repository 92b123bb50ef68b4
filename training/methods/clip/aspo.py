"""ASPO (arXiv 2510.06062): what became unlikely and is good gets the reciprocal of the ratio as its weight.

Knob: clip, surrogate. PPO's ratio gives most to good tokens that are likely already, which wastes entropy.

    A < 0: r·A with r held above 1 - clip_low;   A ≥ 0: A/r with r held below 1 + clip_high, none of it past the bound
    where the weight would be above `limit`: limit·A·logp;   bounds and KL by uncertainty as in Archer

Defaults: certain 0.2, unsure 0.4, kl 0.001, quantile 0.8, limit 3: released code.
Evidence: A, read in released code (wizard-III/Archer2.0, `compute_policy_loss_archer`).
Deviations: as in archer. It sets no credit, so name it with grpo.
"""

import torch

from ...control.parameters import Bound, Limit, NonNegative, Share, checked
from ...loss.surrogates import ratio
from ..base import Batch, Control, Current, Needs, Now, Slots, State, Surrogate, Terms, replace
from .archer import split


@checked
def aspo(
    *,
    quantile: Share = 0.8,
    certain: Bound = 0.2,
    unsure: Bound = 0.4,
    kl: NonNegative = 0.001,
    limit: Limit = 3.0,
) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(
            split(terms, batch, now, quantile, certain, unsure, kl), surrogate=reciprocal(limit)
        )

    needs = Needs(logp_ref=kl > 0, now=True)
    return Control(name="aspo", needs=needs, sets=frozenset({"clip", "surrogate"}), shape=shape)


def reciprocal(limit: float) -> Surrogate:
    """Return ASPO's term, with weights of at most `limit`."""

    def surrogate(current: Current, batch: Batch, terms: Terms) -> Slots:
        r, advantage = ratio(current, batch), terms.advantage
        above, below = r.clamp(min=1 - terms.clip_low), torch.minimum(r, 1 + terms.clip_high)
        weight = torch.where(advantage < 0, above, 1 / below).detach()
        term = torch.where(advantage < 0, above, below / below.detach().square()) * advantage
        return torch.where(weight <= limit, term, limit * advantage * current.logp)

    return surrogate
