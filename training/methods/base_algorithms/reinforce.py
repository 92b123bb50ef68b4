"""REINFORCE (Williams 1992; for language models Ahmadian et al., arXiv 2402.14740).

Knob: advantage and surrogate. The plain policy gradient of a path's score, less a baseline where one is asked for.

    maximise (s_i - b_i)·Σ_t logp_t, averaged over paths

Defaults: no baseline; sequence log-probability ("seq-mean-token-sum"), as in the papers.
Evidence: A, textbook equation.
Deviations: baseline "batch" is the mean over the step's paths, "group" over those of the group, the path itself among
them; a group of one keeps its raw score. There is no ratio, so that every optimizer step but the first of an update is
off-policy without correction. Without a baseline it sets no credit: the credit of another method may be named with it.
Axis: means over paths; a token that paths share has a term for each of them.
"""

from typing import Literal

import torch

from ...control.parameters import Count, checked
from ...loss.aggregation import Aggregation, scale
from ...loss.credit import by_path, centred
from ...loss.surrogates import score_function
from ..base import Batch, Control, Labels, Now, Sets, Slots, State, Terms, Vector, replace


@checked
def reinforce(
    *,
    baseline: Literal["none", "batch", "group"] = "none",
    aggregation: Aggregation = "seq-mean-token-sum",
    size: Count = 1,
) -> Control:
    """Return REINFORCE; `size` (tokens) is the divisor of the *-norm aggregations."""

    def judge(score: Vector, group: Labels) -> Vector:
        return centred(score, group if baseline == "group" else torch.zeros_like(group))

    def credit(batch: Batch, state: State) -> Slots:
        return by_path(judge, batch)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(
            terms, surrogate=score_function, scale=terms.scale * scale(aggregation, batch, size)
        )

    sets: set[Sets] = {"surrogate"}
    if baseline != "none":
        sets.add("credit")
    if aggregation != "token-mean":
        sets.add("aggregation")
    return Control(
        name="reinforce",
        sets=frozenset(sets),
        credit=None if baseline == "none" else credit,
        shape=shape,
    )
