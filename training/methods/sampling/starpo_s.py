"""StarPO-S of RAGEN (Wang et al., arXiv 2504.20073).

Knob: sampling and clip. Collapse shows first in groups whose paths all earn the same; only the groups that differ most
are learned from, with a higher upper clip bound and without KL (which no control adds unless it is asked to).

    U = std of the scores of a group's paths, unbiased
    top-k      the max(⌊share·G⌋, 1) groups of greatest U out of G
    top-k-abs  the `share` groups of greatest U
    top-p      the fewest groups of greatest U whose sum is at least share·ΣU - 0.01
    softmax    the fewest groups of greatest U whose softmax(U) adds up to `share`
    min-p      groups with U ≥ share·max U

Defaults: top-k 0.25 and clip 0.2 / 0.28 (paper). The entropy bonus of 0.001 is `entropy-bonus`.
Evidence: A, read in released code (mll-lab-nu/RAGEN, rollout filter).
Deviations: the repository's present configuration is rule=top-p, share=1, include_zero=true, which keeps all. As in the
code, groups with U ≤ 1e-10 are left out before any rule unless `include_zero`, and G counts them. A group with fewer
than two scores has U 0 (unbiased std knows none). Of equal U the earlier group is kept. After `patience` steps in a row
that kept nothing the run is asked to stop (5 in the code).
"""

from collections.abc import Sequence
from itertools import accumulate
from math import exp, isnan
from statistics import stdev
from typing import Literal

from ...control.parameters import Bound, Count, Positive, checked, require
from ...loss.objective import CLIP
from ...loss.surrogates import hold
from ..base import Batch, Control, Now, Request, Requests, Sets, State, Stats, Terms, Tree, Verdict

Rule = Literal["top-k", "top-k-abs", "top-p", "softmax", "min-p"]
SLACK = 0.01  # of the sum that top-p asks for
ZERO = 1e-10


@checked
def starpo_s(
    *,
    rule: Rule = "top-k",
    share: Positive = 0.25,
    include_zero: bool = False,
    clip_low: Bound = CLIP,
    clip_high: Bound = 0.28,
    patience: Count = 5,
) -> Control:
    """Return StarPO-S; top-p with `share` 1 and `include_zero`, and clip bounds of 0.2, changes nothing.

    State: how many steps in a row kept nothing.
    """
    if rule == "top-k-abs":
        require(
            share >= 1 and share % 1 == 0,
            "starpo-s",
            "share",
            share,
            "a number of groups for top-k-abs",
        )
    else:
        require(share <= 1, "starpo-s", "share", share, "above 0 and at most 1")
    sets: frozenset[Sets] = frozenset() if clip_low == clip_high == CLIP else frozenset({"clip"})

    def select(trees: Sequence[Tree], state: State) -> list[Verdict]:
        kept = kept_groups([spread(tree) for tree in trees], rule, share, include_zero)
        return [Verdict.KEEP if place in kept else Verdict.DROP for place in range(len(trees))]

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return hold(terms, clip_low, clip_high) if sets else terms

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        empty = (
            state["empty"] + 1 if isnan(stats.reward) else 0
        )  # nothing was measured where nothing was kept
        return {"empty": empty}, Requests({Request.STOP} if empty >= patience else ())

    return Control(
        name="starpo-s",
        sets=sets,
        init=lambda: {"empty": 0},
        select=select,
        shape=shape,
        observe=observe,
    )


def spread(tree: Tree) -> float:
    """Return U: the unbiased std of the scores that are learned from, 0 where there are fewer than two."""
    scores = [leaf.score for leaf in tree.leaves if leaf.learned]
    return stdev(scores) if len(scores) > 1 else 0.0


def kept_groups(spreads: Sequence[float], rule: Rule, share: float, include_zero: bool) -> set[int]:
    """Return the places of the groups to learn from, given how far the scores of each spread."""
    places = [place for place, value in enumerate(spreads) if include_zero or value > ZERO]
    places.sort(key=lambda place: -spreads[place])
    values = [spreads[place] for place in places]
    if rule == "min-p":
        return {place for place in places if spreads[place] >= share * values[0] - ZERO}
    if rule == "top-k":
        return set(places[: max(int(share * len(spreads)), 1)])
    if rule == "top-k-abs":
        return set(places[: int(share)])
    if share == 1:
        return set(places)
    if rule == "softmax":
        weights = [exp(value - values[0]) for value in values]
        return set(places[: _reaching(weights, share * sum(weights))])
    return set(places[: _reaching(values, share * sum(values) - SLACK)])


def _reaching(values: Sequence[float], threshold: float) -> int:
    """Return how many `values` it takes for their sum to be at least `threshold`; all of them where it never is."""
    totals = enumerate(accumulate(values, initial=0.0))
    return next((count for count, total in totals if total >= threshold), len(values))
