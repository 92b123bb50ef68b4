"""FlowRL (arXiv 2509.15207): the policy matches a distribution in proportion to the reward, and not its maximum.

Knob: objective. A learned log Z of the prompt closes the balance between the path's likelihood and its reward.

    δ_i = log Z(x) + mean_t logp - beta·A_i - mean_t logp_ref;     loss = mean_i w_i·δ_i²
    w_i = clip(exp Σ_t (logp - logp_old), 1 - clip, 1 + clip), without gradient

Defaults: beta 15, clip 0.2: paper. A is the advantage of grpo, so name it with that.
Evidence: A, read in released code (Xuekai-Zhu/FlowRL, `dp_actor`).
Deviations: log Z reads the hidden state that predicts a path's first token, the code's the mean over the prompt, and
has no dropout, so that a step is repeatable. Variant "code": w is not clipped; its logarithm is held in ±20.
It replaces the policy term. Paths that earned no score take no part.
"""

import torch
from torch import nn

from ...control.parameters import NonNegative, Share, Variant, checked
from ...loss.aggregation import path_mean, path_sum
from ...loss.credit import earned
from ...loss.kl import LOG_RATIO_LIMIT
from ..base import Batch, Control, Current, Needs, Now, Penalty, Slots, State, Terms, replace

LOG_Z = "log-z"


@checked
def flowrl(*, beta: NonNegative = 15.0, clip: Share = 0.2, variant: Variant = "paper") -> Control:
    def balance(current: Current, batch: Batch, terms: Terms) -> Slots:
        assert batch.logp_ref is not None
        first = torch.ones_like(batch.path, dtype=torch.bool)
        first[1:] = batch.path.diff() > 0
        log_z = path_sum(torch.where(first, current.extras[LOG_Z], 0.0), batch)
        return (
            log_z + path_mean(current.logp - batch.logp_ref, batch) - beta * terms.advantage
        ).square()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        gap = (
            path_sum(now.logp - batch.logp_old, batch)
            .clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
            .exp()
        )
        weight = gap.clamp(1 - clip, 1 + clip) if variant == "paper" else gap
        learned = earned(batch)
        paths = max(torch.unique(batch.path[learned]).numel(), 1)
        coef = torch.where(learned, weight / (paths * torch.bincount(batch.path)[batch.path]), 0.0)
        penalty = Penalty("flowrl", coef, balance)
        return replace(
            terms, weight=torch.zeros_like(terms.weight), penalties=(*terms.penalties, penalty)
        )

    needs = Needs(logp_ref=True, now=True, modules={LOG_Z: log_partition})
    return Control(name="flowrl", needs=needs, sets=frozenset({"surrogate", "clip"}), shape=shape)


def log_partition(width: int) -> nn.Module:
    """Return the network of log Z: `[s, d]` to `[s]`."""
    layers = [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    return nn.Sequential(*layers, nn.Linear(width, 1), nn.Flatten(0))
