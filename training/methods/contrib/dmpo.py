"""DMPO (known from a survey; akin to FlowRL, arXiv 2509.15207): shares within a group that follow the rewards.

Knob: objective. A forward KL to a target keeps every good mode, where a policy gradient keeps one.

    target_i = softmax(s_i / beta) over the group;  L = -Σ_i target_i·log softmax_group(mean_t logp_i), mean over groups

Defaults: beta 0.5: ours.
Evidence: C. Target and direction are known from one line of a survey; the formula is ours.
Deviations: token t of path i gets (target_i - share_i)/T_i, the gradient of L, of the current shares.
"""

import torch

from ...control.parameters import Positive, checked
from ...loss.aggregation import softmax_by
from ...loss.credit import Paths
from ...loss.surrogates import score_function
from ..base import Batch, Control, Needs, Now, State, Terms, replace


@checked
def dmpo(*, beta: Positive = 0.5) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths = Paths.of(batch)
        if not len(paths.score):
            return terms
        size = torch.bincount(paths.group)
        wanted = softmax_by(paths.group, paths.score.double() / beta)
        held = softmax_by(paths.group, paths.mean(now.logp))
        pull = (
            (wanted - held)
            / size[paths.group]
            / torch.bincount(paths.place)
            * (batch.n_slots / len(size))
        )
        return replace(
            terms, advantage=paths.slots(pull, terms.advantage), surrogate=score_function
        )

    return Control(
        name="dmpo", needs=Needs(now=True), sets=frozenset({"surrogate", "clip"}), shape=shape
    )
