"""REINFORCE leave-one-out (RLOO, Ahmadian et al., arXiv 2402.14740; Kool et al. 2019).

Knob: advantage. A path is judged against the mean of the other paths of its group, so that its baseline does not
depend on it.

    A_i = s_i - mean_{j≠i} s_j = n/(n - 1)·(s_i - mean_g s)

Defaults: REINFORCE on the sequence's log-probability, as in the paper.
Evidence: A, read in released code (verl, TRL).
Deviations: variant "code" leaves surrogate and aggregation to the run: PPO's clipped term and the token mean, as verl.
A group of one keeps its raw score. Paths that an infrastructure failure ended are not counted in n.
Axis: paths of a group; a token that paths share has a term for each of them.
"""

import torch

from ...control.parameters import Variant, checked
from ...loss.credit import by_path, centred
from ..base import Control, Labels, Sets, Vector, replace
from .reinforce import reinforce


@checked
def rloo(*, variant: Variant = "paper") -> Control:
    base, sets = (
        reinforce() if variant == "paper" else Control(name="rloo"),
        frozenset[Sets]({"credit"}),
    )
    return replace(
        base,
        name="rloo",
        sets=base.sets | sets,
        credit=lambda batch, state: by_path(leave_one_out, batch),
    )


def leave_one_out(score: Vector, group: Labels) -> Vector:
    """Return each path's score less the mean of the others of its group; alone, the score itself."""
    _, member, size = torch.unique(group, return_inverse=True, return_counts=True)
    others = (size - 1).clamp(min=1)
    return torch.mul(centred(score, group), (size / others)[member])
