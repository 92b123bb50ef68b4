"""Agentic Entropy-Balanced Policy Optimisation (AEPO, Dong et al., arXiv 2510.14545).

Knob: sampling, clip and advantage. Three parts, each of them a method of its own: branching (`aepo-branching`), a clip
that keeps the gradient of tokens past its upper bound (`aepo-clip`), and advantages that weigh uncertain tokens more
(`aepo-advantage`).

    min(δA, clip(δ, 1 - low, (1 + high)·δ/sg(δ))·A): coefficient 1 + high, not 0, past the upper bound    (Sec. 3.2)
    A ← A·(1 + scale·z), z = (H - mean)/std over all tokens of the step

Defaults: beta 0.5, penalty 0.05, scale 0.2: released script (AEPO_Qwen3_14B_DeepResearch). Clip bounds are the run's.
Evidence: A for variant "code" (RUC-NLPIR/ARPO, folder AEPO, read through public forks), B for the paper's rule.
Deviations: 1 + scale·z is held at 0 or more, and z is 0 where all entropies are equal. Statistics are over the step's
tokens, each once; the code's are over a micro-batch and are skipped unless something else has entropy computed.
Variant "code": the clip has a dual bound of 3; for the branching see `aepo-branching`.
"""

from math import inf

import torch

from ...control.parameters import Finite, NonNegative, Variant, checked
from ...loss.credit import earned
from ...loss.surrogates import gradient_keeping
from ..base import Batch, Control, Needs, Now, Several, Slots, State, Terms, chain, replace
from .aepo_branching import aepo_branching


@checked
def aepo(
    *,
    group: Several = 12,
    beta: Finite = 0.5,
    penalty: NonNegative = 0.05,
    scale: NonNegative = 0.2,
    vocabulary: Several = 151_936,
    variant: Variant = "paper",
) -> Control:
    """Return AEPO with all its parts; they can be had one by one."""
    branching = aepo_branching(
        group=group, beta=beta, penalty=penalty, vocabulary=vocabulary, variant=variant
    )
    return replace(
        chain(branching, aepo_clip(variant=variant), aepo_advantage(scale=scale)), name="aepo"
    )


@checked
def aepo_clip(*, variant: Variant = "paper") -> Control:
    """Return the clip that keeps gradients, within the run's bounds; as released, where A < 0, not below 3·A."""
    surrogate = gradient_keeping(inf if variant == "paper" else 3.0)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(terms, surrogate=surrogate)

    return Control(name="aepo-clip", sets=frozenset({"surrogate"}), shape=shape)


@checked
def aepo_advantage(*, scale: NonNegative = 0.2) -> Control:
    """Return the advantage that weighs uncertain tokens more; `scale` 0 changes nothing."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        factor = (1 + scale * standardized(now.entropy, batch)).clamp(min=0)
        return replace(terms, advantage=terms.advantage * factor)

    return Control(name="aepo-advantage", needs=Needs(now=scale > 0), shape=shape)


def standardized(values: Slots, batch: Batch) -> Slots:
    """Return (values - mean) / std, unbiased, over the step's tokens, each counted once; 0 where there is no spread.

    Tokens of paths that earned no score have no part in mean and std.
    """
    learned = earned(batch)
    if not learned.any():
        return torch.zeros_like(values)
    share = torch.where(learned, batch.share, 0.0)
    count, above = (
        share.sum(),
        values - values[learned].min(),
    )  # so that rounding cannot part equal values
    centred = above - (share * above).sum() / count
    std = ((share * centred.square()).sum() / (count - 1).clamp(min=1)).sqrt()
    return centred / torch.where(std > 0, std, 1.0)
