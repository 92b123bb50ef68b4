"""DART-GUI: training on the more uncertain steps of long trajectories (arXiv 2509.23866).

Knob: advantage, objective (step mask), clip and KL. A step is a turn of a path; each step has the score of its path.

    A = (R - mean R) / std R                  over all steps of the group, population std: long paths weigh more
    a step is learned from if its mean token entropy is at least the `skip` quantile of its group's steps
    L: PPO-clip(clip_low, clip_high) · min(exp(logp_old - logp_roll), limit) + kl_coef·k3

Defaults: skip 0.2 (linear interpolation), clip 0.2 / 0.28, limit 1, kl_coef 0.1; 8 paths of at most 30 turns at
temperature 1 and lr 1e-6 are the run's.
Evidence: B, a full note of the paper; the official code could not be had.
Deviations: where the source is silent these are choices. Mean and std are over all steps, also those that are then
skipped ("over" "kept": only the others). Groups of equal scores are left out (`drop`). A skipped step leaves policy
term and KL, and still counts in the number of tokens that the loss is divided by; the KL estimate is k3; the importance
weight is by token. The curation of tasks (fewer rollouts of easy ones, a longest length and a stored success by task)
is left out.
Axis: rows. A step that paths share counts once for each.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch

from ...control.parameters import Bound, NonNegative, Range, checked
from ...loss.aggregation import mean_by
from ...loss.credit import steps
from ...loss.objective import CLIP
from ...loss.surrogates import hold, mismatch
from ..base import (
    Batch,
    Control,
    Flags,
    Labels,
    Needs,
    Now,
    Sets,
    Slots,
    State,
    Terms,
    Tree,
    Vector,
    Verdict,
    replace,
)


@checked
def dart(
    *,
    skip: Annotated[float, Range(0, 1, below=True)] = 0.2,
    clip_low: Bound = CLIP,
    clip_high: Bound = 0.28,
    limit: Bound = 1.0,
    kl_coef: NonNegative = 0.1,
    over: Literal["all", "kept"] = "all",
    drop: bool = True,
) -> Control:
    """Return DART; `skip`, `limit` and `kl_coef` 0 and clip bounds of 0.2 change nothing but the advantage."""
    sets: set[Sets] = {"credit"} if clip_low == clip_high == CLIP else {"credit", "clip"}

    def select(trees: Sequence[Tree], state: State) -> list[Verdict]:
        return [Verdict.DROP if drop and _alike(tree) else Verdict.KEEP for tree in trees]

    def credit(batch: Batch, state: State) -> Slots:
        learned, rows, step = steps(batch)
        score, group = batch.turns.score[rows], batch.turns.group[rows]
        voters = _kept(batch, skip) if over == "kept" else torch.ones_like(rows, dtype=torch.bool)
        advantage = step_advantage(score, group, voters).to(score)
        return score.new_zeros(batch.n_slots).masked_scatter(learned, advantage[step])

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned, _, step = steps(batch)
        trained = torch.ones_like(terms.weight).masked_scatter(
            learned, _kept(batch, skip)[step].to(terms.weight)
        )
        weight = mismatch("token", batch).clamp(max=limit).to(terms.weight) if limit else 1.0
        if "clip" in sets:
            terms = hold(terms, clip_low, clip_high)
        kl = terms.kl_coef + kl_coef * trained
        return replace(terms, weight=terms.weight * trained * weight, kl_coef=kl)

    needs = Needs(logp_ref=kl_coef > 0)
    return Control(
        name="dart", needs=needs, sets=frozenset(sets), select=select, credit=credit, shape=shape
    )


def step_advantage(score: Vector, group: Labels, voters: Flags) -> Vector:
    """Return (score - mean) / std over the group's `voters`, population std, in float64; 0 where they are equal."""
    result = torch.zeros_like(score, dtype=torch.float64)
    for number in torch.unique(group).tolist():
        mine = group == number
        votes = score[mine & voters].double()
        if bool((votes != votes[0]).any()):
            result[mine] = (score[mine].double() - votes.mean()) / votes.std(correction=0)
    return result


def uncertain(entropy: Vector, group: Labels, skip: float) -> Flags:
    """Return which steps have at least the `skip` quantile (linear interpolation) of their group's entropies."""
    kept = torch.ones_like(group, dtype=torch.bool)
    for number in torch.unique(group).tolist():
        mine = group == number
        kept[mine] = entropy[mine] >= torch.quantile(entropy[mine], skip)
    return kept


def _kept(batch: Batch, skip: float) -> Flags:
    learned, rows, step = steps(batch)
    return uncertain(mean_by(step, batch.entropy[learned]), batch.turns.group[rows], skip)


def _alike(tree: Tree) -> bool:
    """Return whether all paths that are learned from earned the same."""
    return len({leaf.score for leaf in tree.leaves if leaf.learned}) < 2
