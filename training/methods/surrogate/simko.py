"""SimKO (arXiv 2510.14807): at uncertain tokens the gradient of right paths is shared with other likely tokens.

Knob: objective. What was drawn shares the probability that it gains.

    uncertain: entropy above the `quantile` of its path
    right paths (score 1), uncertain:  r ← (1 - share)·r + share/top · Σ_k sg(r / r_k)·r_k, r_k of the k-th likely token
    wrong paths (A < 0), uncertain and drawn the likeliest:  A ← push·A
    then PPO's clip on the new r, whose value is that of the old

Defaults: quantile 0.8, share 0.01, top 3, push 1.1: paper.
Evidence: A, read in released code (CLR-Lab/SimKO, `compute_policy_loss_simko`).
Deviations: the likely tokens and the entropy are those of the policy at the start of the update; r_k is at
temperature 1. It sets no credit, so name it with grpo.
Off: share 0 and push 1.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ...control.parameters import Count, Share, checked
from ...loss.aggregation import path_quantile
from ...loss.kl import log_ratio
from ...loss.surrogates import clipped, ratio
from ..base import (
    Batch,
    Before,
    Control,
    Current,
    Factor,
    Ids,
    Logits,
    Needs,
    Now,
    Slots,
    State,
    Terms,
    replace,
)

LIKELY = "simko-likely"  # whether the likeliest was drawn, then the ids of likely tokens, then their logp


@checked
def simko(
    *, quantile: Share = 0.8, share: Share = 0.01, top: Count = 3, push: Factor = 1.1
) -> Control:
    def surrogate(current: Current, batch: Batch, terms: Terms) -> Slots:
        r, part = ratio(current, batch), terms.extras["simko"]
        other = log_ratio(current.extras[LIKELY][:, -top:], batch.extras[LIKELY][:, -top:]).exp()
        shared = (r[:, None].detach() / (other.detach() + 1e-8) * other).mean(-1)
        return clipped((1 - part) * r + part * shared, terms)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        unsure = batch.entropy > path_quantile(batch.entropy, batch, quantile)
        drawn = batch.extras[LIKELY][:, 0] > 0
        part = torch.where(
            unsure & (batch.turns.score[batch.row] >= 1), share, torch.zeros_like(terms.weight)
        )
        mistaken = unsure & drawn & (terms.advantage < 0)
        pushed = torch.where(mistaken, push * terms.advantage, terms.advantage)
        return replace(
            terms, advantage=pushed, surrogate=surrogate, extras={**terms.extras, "simko": part}
        )

    needs = Needs(functionals={LIKELY: partial(likely, top)})
    return Control(name="simko", needs=needs, sets=frozenset({"surrogate"}), shape=shape)


def likely(top: int, logits: Logits, token: Ids, before: Before) -> Float[Tensor, "c k"]:
    """Return `LIKELY` of some tokens; the ids are those of `before`, once there are some."""
    logp = logits.log_softmax(-1)
    ids = logp.topk(top).indices if before is None else before[:, 1 : 1 + top].long()
    drawn = (logits.argmax(-1) == token)[:, None] if before is None else before[:, :1]
    return torch.cat([drawn.to(logp), ids.to(logp), logp.gather(-1, ids)], -1)
