"""RL-ZVP (arXiv 2509.21880): tasks whose paths all scored the same are learned from, too, weighed by entropy.

Knob: advantage. Zero-variance groups are not silent: right ones are strengthened, wrong ones weakened.

    scores differ: GRPO's advantage.   All right: A_t = alpha·H_t.   All wrong: A_t = -alpha·(max H of the path - H_t)

Defaults: alpha 0.1 (0.2 for other models; 0.3 is unstable): paper, Eq. 5.
Evidence: B, paper text; no code is released.
Deviations: right is a score of 1 or more; equal partial scores count as wrong. Do not name it with dynamic-sampling.
Off: alpha 0.
"""

import torch

from ...control.parameters import NonNegative, checked
from ...loss.credit import Paths, standard
from ..base import Batch, Control, Slots, State


@checked
def rl_zvp(*, alpha: NonNegative = 0.1) -> Control:
    """Return RL-ZVP's advantage; `alpha` is per nat."""

    def credit(batch: Batch, state: State) -> Slots:
        paths, entropy = Paths.of(batch), batch.entropy
        group = paths.group
        zeros = paths.score.new_zeros(int(group.max()) + 1 if len(group) else 0)
        ends = (
            zeros.scatter_reduce(0, group, paths.score, how, include_self=False)
            for how in ("amin", "amax")
        )
        low, high = (end[group] for end in ends)
        peak = entropy.new_zeros(len(paths.score)).scatter_reduce(
            0, paths.place, entropy[paths.learned], "amax"
        )
        same, right = (paths.slots(flag, entropy) > 0 for flag in (low == high, paths.right))
        equal = alpha * torch.where(right, entropy, entropy - paths.slots(peak, entropy))
        return torch.where(same, equal, paths.slots(standard(paths.score, paths.group), entropy))

    return Control(name="rl-zvp", sets=frozenset({"credit"}), credit=credit)
