"""QAE (arXiv 2509.22611): the baseline is a quantile of the group, not its mean.

Knob: advantage. Of hard tasks only what is right moves the policy, of easy ones only what is wrong.

    A_i = (s_i - b)/(std + eps),   b = inf{x : F(x) ≥ k} of the group's scores

Defaults: k 0.4 (0.6 where entropy collapses), eps 1e-6, std unbiased: paper.
Evidence: B, paper text; the released code interpolates the quantile, which is another baseline.
Deviations: none. Groups without spread get 0.
"""

from math import ceil

import torch

from ...control.parameters import Positive, checked
from ...loss.credit import by_path
from ..base import Control, Labels, Part, Vector


@checked
def qae(*, k: Part = 0.4, eps: Positive = 1e-6) -> Control:
    def judge(score: Vector, group: Labels) -> Vector:
        found = torch.zeros_like(score)
        for own in torch.unique(group):
            mine = score[group == own]
            if len(mine) > 1 and mine.max() > mine.min():
                base = mine.sort().values[max(ceil(k * len(mine) - 1e-9), 1) - 1]
                found[group == own] = (mine - base) / (mine.std() + eps)
        return found

    return Control(
        name="qae", sets=frozenset({"credit"}), credit=lambda batch, state: by_path(judge, batch)
    )
