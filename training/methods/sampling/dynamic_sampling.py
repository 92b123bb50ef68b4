"""Dynamic sampling (DAPO, Yu et al., arXiv 2503.14476, Sec. 3.2) as a part of its own.

Knob: sampling. A task whose paths all have the same score teaches nothing; another one is drawn in its place.

Defaults: none to set.
Evidence: A, read in released code (verl recipe/dapo, `filter_groups`).
Deviations: a task of which one path alone earned a score is kept, as in the code. A step asks a bounded number of times
(`REFILLS`) and then learns from what there is; the code raises.
"""

from collections.abc import Sequence

from ...control.parameters import checked
from ..base import Control, State, Tree, Verdict


@checked
def dynamic_sampling() -> Control:
    def select(trees: Sequence[Tree], state: State) -> list[Verdict]:
        return [Verdict.KEEP if tells(tree) else Verdict.MORE for tree in trees]

    return Control(name="dynamic-sampling", select=select)


def tells(tree: Tree) -> bool:
    """Return whether a tree teaches anything: its paths' scores differ, or one path alone has one."""
    scores = [leaf.score for leaf in tree.leaves if leaf.learned]
    return len(scores) == 1 or len(set(scores)) > 1
