"""Truncated importance sampling (Ionides 2008; Espeholt et al., arXiv 1802.01561, Sec. 4.1).

Knob: weight. Tokens are drawn by the sampler's numbers and learned from by the learner's; where the two disagree, the
policy term is weighted by their ratio, which is bounded.

    ρ = exp( logp_old - logp_roll ) of the token; of the path ("sequence": Σ; "geometric": mean, in the exponent)
    outside "truncate": clip(ρ, low, high);  "mask": ρ, or 0 outside [low, high];  "reject": not in the loss at all

Defaults: token, truncated at 2: verl (2 to 5 are usual). `by` is what the bounds are put to, ρ itself unless named.
Evidence: A, read in released code (verl, NeMo-RL, TRL).
Deviations: none. IcePop: mask, low 0.5, high 5. seq-mask-TIS: mask, by geometric, low 0.999, high 1.002. A rejected
token leaves the number of tokens, too, which is exact under the token mean alone; with none left the loss is 0.
normalize: weights are divided by their mean over tokens, or over paths; all 0 stays so. Embedded engine: all are 1.
Axis: slots. A token that paths share has one ratio of its own, and each path's where they are of paths.
"""

from typing import Literal

import torch

from ...control.parameters import NonNegative, checked, require
from ...loss.aggregation import average
from ...loss.surrogates import Level, mismatch
from ..base import Batch, Control, Now, State, Terms, Width, replace


@checked
def tis(
    *,
    level: Level = "token",
    low: NonNegative = 0.0,
    high: Width = 2.0,
    outside: Literal["truncate", "mask", "reject"] = "truncate",
    by: Literal["own", "token", "sequence", "geometric"] = "own",
    normalize: bool = False,
) -> Control:
    """Return the correction; low and high 1 change nothing."""
    require(low <= high, "tis", "low", low, f"at most high, which is {high}")
    require(
        not normalize or outside != "reject",
        "tis",
        "normalize",
        normalize,
        "false where tokens are rejected",
    )
    require(
        by == "own" or outside != "truncate", "tis", "by", by, "own where weights are truncated"
    )

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        ratio = mismatch(level, batch)
        judged = ratio if by == "own" else mismatch(by, batch)
        inside = (judged >= low) & (judged <= high)
        weight = (
            ratio.clamp(low, high) if outside == "truncate" else torch.where(inside, ratio, 0.0)
        )
        if normalize:
            mean = average(
                "token-mean" if level == "token" else "seq-mean-token-mean", weight, batch
            )
            weight = weight / mean if mean > 1e-8 else weight
        terms = replace(terms, weight=terms.weight * weight)
        if outside == "reject":
            terms = replace(
                terms, scale=terms.scale * inside * (batch.n_slots / max(int(inside.sum()), 1))
            )
        return terms

    return Control(name="tis", shape=shape)
