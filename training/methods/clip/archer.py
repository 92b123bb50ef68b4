"""Archer (arXiv 2507.15778): uncertain tokens may move, certain ones are held by a tight clip and a reference.

Knob: clip, KL. A token is uncertain where its entropy is above the `quantile` of its path.

    certain:   clip ± certain,   + kl·k3(logp, logp_ref), averaged over the certain tokens
    uncertain: clip ± unsure,    no KL;   dual clip `limit` on both

Defaults: quantile 0.8, certain 0.2, unsure 0.5, kl 0.001, limit 3: released script.
Evidence: A, read in released code (wizard-III/ArcherCodeR), where the mask called high entropy marks the low tokens.
Deviations: paths that earned no score take no part in the KL. It sets no credit, so name it with grpo.
Off: certain and unsure 0.2, kl 0, limit inf.
"""

import torch

from ...control.parameters import Bound, Limit, NonNegative, Share, checked
from ...loss.aggregation import path_quantile
from ...loss.credit import earned
from ...loss.surrogates import dual_clip
from ..base import Batch, Control, Needs, Now, State, Terms, replace


@checked
def archer(
    *,
    quantile: Share = 0.8,
    certain: Bound = 0.2,
    unsure: Bound = 0.5,
    kl: NonNegative = 0.001,
    limit: Limit = 3.0,
) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(
            split(terms, batch, now, quantile, certain, unsure, kl), surrogate=dual_clip(limit)
        )

    needs = Needs(logp_ref=kl > 0, now=True)
    return Control(name="archer", needs=needs, sets=frozenset({"clip", "surrogate"}), shape=shape)


def split(
    terms: Terms, batch: Batch, now: Now, quantile: float, certain: float, unsure: float, kl: float
) -> Terms:
    """Return terms with the bounds of certain and uncertain tokens, and the KL of certain ones."""
    high = now.entropy > path_quantile(
        now.entropy, batch, quantile
    )  # a path's only token is certain
    bound = torch.where(high, unsure, certain).to(terms.clip_low)
    low = ~high & earned(batch)
    coef = torch.where(low, kl * batch.n_slots / max(int(low.sum()), 1), 0.0).to(terms.kl_coef)
    return replace(terms, clip_low=bound, clip_high=bound, kl_coef=terms.kl_coef + coef)
