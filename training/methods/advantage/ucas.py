"""UCAS (arXiv 2510.10649): certain paths count less if right, more if wrong; certain tokens pay.

Knob: advantage. c_t = logsumexp(z) - mean z, which is KL(uniform ‖ p) + ln V.

    ĉ_i: Σ_t c_t of the path, standardised within its group;
    A ← A·exp(-right·ĉ) where A > 0, A·exp(wrong·ĉ) where A < 0
    A ← A - cost·(the drawn token's logit, brought to 0 … 1 over the batch), held above 0 where A > 0

Defaults: right 0.25, wrong 0.35, cost 0.05: released code.
Evidence: A, read in released code (xvolcano02/UCAS, `core_algos`), which sums where its documentation has a mean.
Deviations: least and largest logit are those of the optimizer step; tokens of paths without a score take no part.
Off: right, wrong and cost 0.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ...control.parameters import NonNegative, checked
from ...loss.aggregation import sum_by
from ...loss.credit import Paths, standard
from ..base import Batch, Before, Control, Ids, Logits, Needs, Now, State, Terms, replace

CERTAIN = "ucas"


@checked
def ucas(
    *, right: NonNegative = 0.25, wrong: NonNegative = 0.35, cost: NonNegative = 0.05
) -> Control:
    """Return UCAS, to be named behind grpo."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths, a = Paths.of(batch), terms.advantage
        certain, logit = batch.extras[CERTAIN][paths.learned].double().unbind(1)
        total = standard(sum_by(paths.place, certain, len(paths.score)), paths.group)
        c = paths.slots(total, a)
        first = a * torch.where(a > 0, -right * c, wrong * c).exp()
        scaled = (logit - logit.min()) / (logit.max() - logit.min() + 1e-6) if len(logit) else logit
        paid = first - cost * torch.zeros_like(a).masked_scatter(paths.learned, scaled.to(a))
        return replace(terms, advantage=torch.where(a > 0, paid.clamp(min=0), paid))

    return Control(name="ucas", needs=Needs(functionals={CERTAIN: certainty}), shape=shape)


def certainty(logits: Logits, token: Ids, before: Before) -> Float[Tensor, "c 2"]:
    """Return c and the drawn token's logit."""
    return torch.stack(
        (logits.logsumexp(-1) - logits.mean(-1), logits.gather(-1, token[:, None])[:, 0]), -1
    )
