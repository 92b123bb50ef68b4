"""ETTRL (arXiv 2508.11356): labels by vote, and advantages that are smaller for uncertain paths.

Knob: sampling (the reward), advantage.

    s_i = 1 where the answer is the majority's, by the environment's grader, else 0
    A_i ← max(0, 1 + (H̄ - H_i)/H̄)·A_i, H_i: mean entropy of the path, H̄: of its group;   then A held in ±most

Defaults: most 2: paper.
Evidence: B, notes of the paper's text; no code seen.
Deviations: the factor is held above 0, so that no sign flips. Branching at uncertain tokens is that of `arpo` and
`aepo-branching`, which fork at turns. Without labels: name it behind grpo.
Off: vote false, most inf, damp 0.
"""

from collections import Counter

import torch

from ....agents.evaluation.votes import Same
from ...control.parameters import Bound, Share, checked
from ...data.packing import Vote
from ...loss.aggregation import mean_by
from ...loss.credit import Paths
from ..base import Batch, Control, Needs, Now, Rows, State, Terms, Tree, replace
from .empo import answers

COLUMN = "ettrl"


@checked
def ettrl(*, most: Bound = 2.0, damp: Share = 1.0, vote: bool = True) -> Control:
    """Return ETTRL's vote and its advantages; `damp` is how much of the factor counts."""

    def reward(batch: Batch, state: State) -> Rows:
        return batch.turns.columns[COLUMN].to(batch.turns.score) if vote else batch.turns.score

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths = Paths.of(batch)
        own = paths.mean(batch.entropy)
        whole = mean_by(paths.group, own)[paths.group]
        factor = torch.where(
            whole > 0, (1 + damp * (whole - own) / whole.clamp(min=1e-12)).clamp(min=0), 1.0
        )
        advantage = terms.advantage * paths.slots(factor, terms.advantage, 1.0)
        return replace(terms, advantage=advantage.clamp(-most, most))

    needs = Needs(columns={COLUMN: voted} if vote else {})
    return Control(name="ettrl", needs=needs, reward=reward, shape=shape)


@Vote
def voted(tree: Tree, same: Same) -> list[float]:
    """Return 1 for leaves with the majority's answer, of equal ones the first's; without any answer all get 0."""
    found = [(place, answer) for place, answer in answers(tree, same) if isinstance(answer, str)]
    chosen = Counter(answer for _, answer in found).most_common(1)
    right = {place for place, answer in found if answer == chosen[0][0]}
    return [float(place in right) for place in range(len(tree.leaves))]
