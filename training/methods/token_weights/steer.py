"""STEER (arXiv 2510.10150): tokens that change entropy the most weigh the least.

Knob: objective (token weights). Ω is the first-order change of entropy that a token's gradient makes.

    Ω = |A/π_old · π(1 - π)·(log π + H)|,   π and π_old of the drawn token
    exponential: w = max(exp(-k·Ω), least), k = -ln(least)/max(max Ω, 0.02)
    linear:      w = most - (Ω - min Ω)·(most - least)/(max Ω - min Ω);   all equal: (least + most)/2

Defaults: exponential, least 0.8, most 1.2: released scripts, which have clip 0.2 / 0.28 and a dual clip of 10.
Evidence: A, read in released code (zz-haooo/STEER, `compute_token_weights`).
Deviations: largest and smallest Ω are those of the optimizer step, the code's of the micro-batch. It sets no credit.
Off: least 1 and, if linear, most 1.
"""

from math import log
from typing import Literal

import torch

from ...control.parameters import checked
from ...loss.credit import earned
from ..base import Batch, Control, Factor, Needs, Now, Part, State, Terms, replace


@checked
def steer(
    *,
    weight: Literal["exponential", "linear"] = "exponential",
    least: Part = 0.8,
    most: Factor = 1.2,
) -> Control:
    """Return STEER's weights; `most` is of the linear ones."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned = earned(batch)
        p = now.logp[learned].double().exp().clamp(1e-8, 1 - 1e-8)
        old = batch.logp_old[learned].double().exp().clamp(1e-8, 1)
        change = terms.advantage[learned] / old * p * (1 - p) * (p.log() + now.entropy[learned])
        omega = change.abs().nan_to_num(0.0, 0.0, 0.0)
        if not len(omega):
            return terms
        low, high = omega.min(), omega.max()
        if weight == "exponential":
            w = (log(least) / high.clamp(min=0.02) * omega).exp().clamp(least, 1)
        elif high > low:
            w = most - (omega - low) * (most - least) / (high - low)
        else:
            w = torch.full_like(omega, (least + most) / 2)
        weighed = (terms.weight[learned] * w).to(terms.weight.dtype)
        return replace(terms, weight=terms.weight.masked_scatter(learned, weighed))

    return Control(name="steer", needs=Needs(now=True), shape=shape)
