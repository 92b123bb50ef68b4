"""Clip-Cov (Cui et al., arXiv 2505.22617): a few random tokens of high covariance are left out.

Knob: clip. A token's covariance says how much its update lowers the entropy; some of those in a band get no gradient.

    cov_t = (A_t - mean A)·(logp_t - mean logp)
    left out: max(⌊share·N⌋, 1) tokens drawn from those with low < cov_t < high that the clip does not hold
    loss_t = max(-r·A, -clip(r, 1 - clip_low, 1 + clip_high)·A), or 0 where left out; N stays

Defaults: share 0.0002, low 1, high 5, clip 1 / 1: released scripts.
Evidence: A, read in released code (PRIME-RL/Entropy-Mechanism-of-RL, verl).
Deviations: means and draws are those of the optimizer step, the code's of the micro-batch. Paths that earned no score
take no part. The band is in units of a standardised advantage. It sets no credit, so name it with grpo.
Off: share 0 and clip 0.2 / 0.2.
"""

import torch

from ...control.parameters import Bound, Finite, Share, checked, require
from ...loss.credit import earned
from ...loss.surrogates import clip_cov as left_out
from ...loss.surrogates import hold
from ..base import Batch, Control, Needs, Now, State, Terms, Unbounded, replace

SALT = 0xC0F  # parts these draws from others of the step


@checked
def clip_cov(
    *,
    share: Share = 0.0002,
    low: Finite = 1.0,
    high: Unbounded = 5.0,
    clip_low: Bound = 1.0,
    clip_high: Bound = 1.0,
) -> Control:
    require(low < high, "clip-cov", "high", high, f"above low, which is {low}")

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        at = (batch.at.seed, batch.at.step, batch.at.update, SALT)
        bounds = (clip_low, clip_high, share, low, high)
        left = left_out(terms.advantage, now.logp, batch.logp_old, *bounds, at, where=earned(batch))
        return replace(
            hold(terms, clip_low, clip_high), weight=torch.where(left, 0.0, terms.weight)
        )

    return Control(name="clip-cov", needs=Needs(now=True), sets=frozenset({"clip"}), shape=shape)
