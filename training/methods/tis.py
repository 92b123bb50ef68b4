"""Truncated importance sampling (Ionides 2008; Espeholt et al., arXiv 1802.01561, Sec. 4.1).

Knob: weight. Tokens are drawn by the sampler's numbers and learned from by the learner's; where the two disagree, the
policy term is weighted by their ratio, which is bounded.

    ρ = exp( logp_old - logp_roll ) of the token; of the path ("sequence": Σ; "geometric": mean, in the exponent)
    outside "truncate": clip(ρ, low, high);  "mask": ρ, or 0 outside [low, high];  "reject": not in the loss at all

Defaults: token, truncated at 2: verl (2 to 5 are usual). `by` is what the bounds are put to, ρ itself unless named.
Evidence: A, read in released code (verl, NeMo-RL, TRL).
Deviations: none. IcePop: mask, low 0.5, high 5. seq-mask-TIS: mask, by geometric, low 0.999, high 1.002. A rejected
token leaves the number of tokens, too, which is exact under the token mean alone; with none left the loss is 0.
normalize: weights are divided by their mean, over tokens, or over paths where they are of paths.
With the embedded engine logp_roll is logp_old, and every weight is 1.
Axis: slots. A token that paths share has one ratio of its own, and each path's where they are of paths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ..columns import Batch, Now, Terms
from ..control import Control, State
from ..credit import average, path_mean, path_sum
from ..objective import LOG_RATIO_LIMIT
from ..parameters import require

Level = Literal["token", "sequence", "geometric"]
By = Literal["own", "token", "sequence", "geometric"]
Outside = Literal["truncate", "mask", "reject"]
SMALLEST = 1e-8  # mean weight that is divided by


def tis(
    *,
    level: Level = "token",
    low: float = 0.0,
    high: float = 2.0,
    outside: Outside = "truncate",
    by: By = "own",
    normalize: bool = False,
) -> Control:
    """Return the correction; low and high 1 change nothing. Raises ValueError on a bad parameter."""
    require(level in get_args(Level), "tis", "level", level, "token, sequence or geometric")
    require(0 <= low <= high, "tis", "low", low, f"between 0 and high, which is {high}")
    require(high > 0, "tis", "high", high, "above 0 (inf bounds nothing)")
    require(outside in get_args(Outside), "tis", "outside", outside, "truncate, mask or reject")
    require(by in get_args(By), "tis", "by", by, "own, token, sequence or geometric")
    require(not normalize or outside != "reject", "tis", "normalize", normalize, "false where tokens are rejected")
    require(by == "own" or outside != "truncate", "tis", "by", by, "own where weights are truncated")

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        ratio = mismatch(level, batch)
        judged = ratio if by == "own" else mismatch(by, batch)
        inside = (judged >= low) & (judged <= high)
        weight = ratio.clamp(low, high) if outside == "truncate" else torch.where(inside, ratio, 0.0)
        if normalize:
            weight = normalized(weight, level, batch)
        terms = replace(terms, weight=terms.weight * weight)
        if outside == "reject":
            kept = inside.to(weight) * (batch.n_slots / max(int(inside.sum()), 1))
            terms = replace(terms, scale=terms.scale * kept)
        return terms

    return Control(name="tis", shape=shape)


def mismatch(level: Level, batch: Batch) -> Float[Tensor, "s"]:
    """Return the learner's probability over the sampler's, of each slot's token or path; its logarithm is in ±20."""
    gap = batch.logp_old - batch.logp_roll
    if level != "token":
        gap = path_sum(gap, batch) if level == "sequence" else path_mean(gap, batch)
    return gap.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def normalized(weight: Float[Tensor, "s"], level: Level, batch: Batch) -> Float[Tensor, "s"]:
    """Return the weights divided by their mean over tokens, or over paths where they are of paths; all 0 stays so."""
    mean = average("token-mean" if level == "token" else "seq-mean-token-mean", weight, batch)
    return weight / mean if mean > SMALLEST else weight
