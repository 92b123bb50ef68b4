"""One-shot entropy minimisation (arXiv 2505.20282): ten steps that only sharpen the policy.

Knob: objective. No reward: the loss is the entropy of the policy's own samples at a low temperature.

    L = mean_t H(softmax(z_t / temperature))

Defaults: temperature 0.5: released code, with one prompt, sampled at 0.5 and top-p 0.95.
Evidence: A, read in released code (zitian-gao/one-shot-em), whose logits are one token late.
Deviations: token t is judged by the logits that predict it.
"""

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..columns import Batch, Current, Now, Penalty, Terms
from ..control import Control, Needs, State
from ..parameters import Positive, checked

SHARP = "one-shot-em"


@checked
def one_shot_em(*, temperature: Positive = 0.5) -> Control:
    """Return the loss in place of the policy term."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        cost = Penalty(SHARP, terms.scale / max(batch.n_slots, 1), _of)
        return replace(terms, weight=torch.zeros_like(terms.weight), penalties=(*terms.penalties, cost))

    needs = Needs(functionals={SHARP: partial(sharpened, temperature)})
    return Control(name="one-shot-em", needs=needs, sets=frozenset({"surrogate"}), shape=shape)


def sharpened(
    temperature: float, logits: Float[Tensor, "c v"], token: Int[Tensor, "c"], before: Tensor | None
) -> Float[Tensor, "c"]:
    """Return the entropy (nats) of the distribution at a temperature."""
    logp = (logits / temperature).log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)


def _of(current: Current, batch: Batch, terms: Terms) -> Float[Tensor, "s"]:
    return current.extras[SHARP]
