"""ActFocus: gradient moved from what is thought to what is done (arXiv 2605.14558).

Knob: objective (token weight). Tokens of thought get less of the policy's gradient; those of a turn's action, its call
or answer, share theirs by how uncertain they are.

    w = thought                                           on tokens of thought
    w = n·softmax(E / tau) over the n action tokens of the turn, so their mean weight is 1
    energy "entropy": E = H;     energy "free": E = -logsumexp(logits)

Defaults: thought 0.5, tau 1, energy "entropy": ours; the paper's are not known.
Evidence: C. Only the idea is established; weights, energy and normalisation are a plausible reading.
Deviations: everything above may be one. E has no gradient and is at temperature 1. The loss is divided by the number of
all tokens. `Batch.phase` says what is thought and what is action.
"""

from typing import Literal

import torch

from ....agents.trajectory import PHASES
from ...control.parameters import Share, checked
from ...loss.aggregation import softmax_by
from ..base import (
    Batch,
    Before,
    Control,
    Ids,
    Logits,
    Needs,
    Now,
    State,
    Terms,
    Values,
    Width,
    replace,
)

THINK = PHASES.index("think")


@checked
def actfocus(
    *, thought: Share = 0.5, tau: Width = 1.0, energy: Literal["entropy", "free"] = "entropy"
) -> Control:
    """Return ActFocus; `thought` 1 and `tau` inf (nats) change nothing."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        level = batch.entropy if energy == "entropy" else batch.extras["free-energy"]
        acting = batch.phase != THINK
        weight = torch.full_like(terms.weight, thought)
        weight = weight.masked_scatter(
            acting, softmax_by(batch.row[acting], level[acting] / tau).to(weight.dtype)
        )
        return replace(terms, weight=terms.weight * weight)

    needs = Needs(functionals={"free-energy": free_energy}) if energy == "free" else Needs()
    return Control(name="actfocus", needs=needs, shape=shape)


def free_energy(logits: Logits, token: Ids, before: Before) -> Values:
    """Return -logsumexp(logits): high where no token is likely before they are normalised."""
    return -torch.logsumexp(logits, -1)
