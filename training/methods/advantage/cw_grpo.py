"""CW-GRPO (arXiv 2605.11538): tokens of extreme covariance weigh less, by a Gaussian kernel.

Knob: advantage. What moves entropy the most is damped smoothly, where Clip-Cov cuts a few off.

    c = (logp - mean)·(A - mean);   w = exp(-c²/(2σ²)), σ the std of c;   A ← A·w·N/Σ w

Defaults: width 1, of σ: paper.
Evidence: B, paper text; whether σ is unbiased could not be established, here it is not.
Deviations: means are over the optimizer step's tokens of paths that earned a score. Name it behind grpo.
Off: width inf.
"""

import torch

from ...control.parameters import checked
from ...loss.credit import earned
from ..base import Batch, Control, Needs, Now, State, Terms, Width, replace


@checked
def cw_grpo(*, width: Width = 1.0) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned = earned(batch)
        logp, advantage = now.logp[learned].double(), terms.advantage[learned].double()
        if not len(logp):
            return terms
        c = (logp - logp.mean()) * (advantage - advantage.mean())
        sigma = c.std(correction=0)
        w = torch.exp(-((c / (width * sigma)) ** 2) / 2) if sigma > 0 else torch.ones_like(c)
        damped = (advantage * (w / w.mean())).to(terms.advantage)
        return replace(terms, advantage=terms.advantage.masked_scatter(learned, damped))

    return Control(name="cw-grpo", needs=Needs(now=True), shape=shape)
