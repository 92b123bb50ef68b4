"""One-shot entropy minimisation (arXiv 2505.20282): ten steps that only sharpen the policy.

Knob: objective. No reward: the loss is the entropy of the policy's own samples at a low temperature.

    L = mean_t H(softmax(z_t / temperature))

Defaults: temperature 0.5: released code, with one prompt, sampled at 0.5 and top-p 0.95.
Evidence: A, read in released code (zitian-gao/one-shot-em), whose logits are one token late.
Deviations: token t is judged by the logits that predict it.
"""

from functools import partial

import torch

from ...control.parameters import Positive, checked
from ..base import (
    Batch,
    Before,
    Control,
    Ids,
    Logits,
    Needs,
    Now,
    Penalty,
    State,
    Terms,
    Values,
    replace,
)

SHARP = "one-shot-em"


@checked
def one_shot_em(*, temperature: Positive = 0.5) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        scale = terms.scale / max(batch.n_slots, 1)
        cost = Penalty(SHARP, scale, lambda current, batch, terms: current.extras[SHARP])
        return replace(
            terms, weight=torch.zeros_like(terms.weight), penalties=(*terms.penalties, cost)
        )

    needs = Needs(functionals={SHARP: partial(sharpened, temperature)})
    return Control(name="one-shot-em", needs=needs, sets=frozenset({"surrogate"}), shape=shape)


def sharpened(temperature: float, logits: Logits, token: Ids, before: Before) -> Values:
    """Return the entropy (nats) of the distribution at a temperature."""
    logp = (logits / temperature).log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)
