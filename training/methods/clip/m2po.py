"""M2PO (arXiv 2510.01161): the clip follows from a budget for the second moment of harmful log-ratios.

Knob: clip. Only as many tokens are held as keep stale rollouts stable.

    harmful: A > 0 and r > 1, or A < 0 and r < 1;   v = (log r)² of these, ascending
    mean v ≤ budget: nothing is held.   Else τ = √v_k, the largest for which the mean with all above held at it fits
    r is held in [min(e^-τ, 1 - clip_low), max(e^τ, 1 + clip_high)]

Defaults: budget 0.04, clip_low 0.3, clip_high 0.5: released code.
Evidence: A, read in released code (Infini-AI-Lab/M2PO, `core_algos`).
Deviations: the paper masks tokens until the budget is kept; this is the code's rule. The sign is that of each token's
advantage. No dual clip. It sets no credit, so name it with grpo.
Off: budget 0, clip_low and clip_high 0.2.
"""

from math import exp, inf, sqrt

import torch

from ...control.parameters import Bound, NonNegative, Share, checked
from ...loss.credit import earned
from ...loss.kl import log_ratio
from ...loss.surrogates import hold
from ..base import Batch, Control, Needs, Now, State, Terms, Vector

ROUND = 1e-12
FREE = 1e5  # holds nothing


@checked
def m2po(*, budget: NonNegative = 0.04, clip_low: Share = 0.3, clip_high: Bound = 0.5) -> Control:
    """Return M2PO; `budget` is in nats², the bounds are the least room that is left."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        x = log_ratio(now.logp, batch.logp_old).double()
        harmful = earned(batch) & (terms.advantage.abs() > ROUND) & (terms.advantage * x > 0)
        tau = threshold(x[harmful].square(), budget)
        if tau == inf and budget:
            return hold(terms, 1.0, FREE)
        tau = 0.0 if tau == inf else tau
        return hold(terms, max(1 - exp(-tau), clip_low), max(exp(tau) - 1, clip_high))

    return Control(name="m2po", needs=Needs(now=True), sets=frozenset({"clip"}), shape=shape)


def threshold(moments: Vector, budget: float) -> float:
    """Return τ of squared log-ratios; inf where their mean is within the budget."""
    if not len(moments) or moments.mean() <= budget + ROUND:
        return inf
    v, n = moments.sort().values, len(moments)
    capped = (v - ROUND) * torch.arange(n - 1, -1, -1) + v.cumsum(
        0
    )  # the sum with all above held at v_k
    first = int((capped >= budget * n - ROUND).nonzero()[0])
    return sqrt(max(float(v[first - 1]) - ROUND, 0.0)) if first else 0.0
