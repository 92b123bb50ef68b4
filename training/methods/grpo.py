"""Group Relative Policy Optimization (Shao et al., arXiv 2402.03300).

Knob: advantage. A path is judged against the other paths of its group instead of by a value network.

    A_i = (s_i - mean_g s) / (std_g s + eps)    on every token of path i, in PPO's clipped term

Defaults: unbiased std (ddof 1) and eps 1e-6 as verl; clip 0.2 / 0.2 (PPO); token mean (DAPO and verl); no KL.
Evidence: A, read in released code (verl, TRL).
Deviations: the paper averages by path ("seq-mean-token-mean") and adds 0.04·k3; both are parameters here. A group of
one keeps its raw score, over 1 + eps, as in verl. Paths that an infrastructure failure ended leave mean and std and get
advantage 0. With normalize "none" and aggregation "seq-mean-token-sum-norm" it is Dr. GRPO (arXiv 2503.20783).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..columns import Batch, Now, Terms
from ..control import Control, Needs, Sets, State
from ..credit import Aggregation, by_path, scale
from ..objective import CLIP, hold
from ..parameters import require

Normalize = Literal["std", "none"]


def grpo(
    *,
    normalize: Normalize = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    clip_low: float = CLIP,
    clip_high: float = CLIP,
    kl_coef: float = 0.0,
    aggregation: Aggregation = "token-mean",
    size: int = 1,
) -> Control:
    """Return GRPO: advantage within the group, clip, KL to the reference and aggregation of the loss.

    It only claims to set clip and aggregation where they differ from the defaults, so that other methods may set them.
    `size` (tokens) is the divisor of the *-norm aggregations. Raises ValueError on a parameter out of range.
    """
    require(normalize in ("std", "none"), "grpo", "normalize", normalize, "std or none")
    require(ddof in (0, 1), "grpo", "ddof", ddof, "0 or 1")
    require(0 < eps < inf, "grpo", "eps", eps, "positive and finite")
    require(clip_low >= 0, "grpo", "clip_low", clip_low, "0 or more (1 or more holds nothing)")
    require(clip_high >= 0, "grpo", "clip_high", clip_high, "0 or more (inf holds nothing)")
    require(0 <= kl_coef < inf, "grpo", "kl_coef", kl_coef, "0 or more")
    require(aggregation in get_args(Aggregation), "grpo", "aggregation", aggregation, "one of its modes")
    require(size >= 1, "grpo", "size", size, "1 token or more")
    sets: set[Sets] = {"credit"}
    if (clip_low, clip_high) != (CLIP, CLIP):
        sets.add("clip")
    if aggregation != "token-mean":
        sets.add("aggregation")

    def credit(batch: Batch, state: State) -> Float[Tensor, "s"]:
        return by_path(partial(group_advantage, normalize=normalize, ddof=ddof, eps=eps), batch)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        if "clip" in sets:
            terms = hold(terms, clip_low, clip_high)
        return replace(terms, kl_coef=terms.kl_coef + kl_coef, scale=terms.scale * scale(aggregation, batch, size))

    return Control(name="grpo", needs=Needs(logp_ref=kl_coef > 0), sets=frozenset(sets), credit=credit, shape=shape)


def group_advantage(
    score: Float[Tensor, "p"], group: Int[Tensor, "p"], *, normalize: Normalize, ddof: int, eps: float
) -> Float[Tensor, "p"]:
    """Return each path's score relative to its group: minus its mean and, for "std", over its std + eps.

    Equal scores give exactly 0. A group of one has mean 0 and std 1.
    """
    groups, member = torch.unique(group, return_inverse=True)
    zeros = score.new_zeros(len(groups))
    count = torch.bincount(member, minlength=len(groups))
    # Above the group's least score, so that rounding cannot part equal scores.
    least = zeros.scatter_reduce(0, member, score, "amin", include_self=False)
    above = score - least[member]
    centred = above - (zeros.index_add(0, member, above) / count)[member]
    alone = count[member] == 1
    if normalize == "none":
        return torch.where(alone, score, centred)
    variance = zeros.index_add(0, member, centred.square()) / (count - ddof).clamp(min=1)
    return torch.where(alone, score, centred) / (torch.where(alone, 1.0, variance.sqrt()[member]) + eps)
