"""TreeRL (arXiv 2506.11902): trees forked at the least certain tokens, and rewards for each part of a path.

Knob: sampling, advantage. What leaves behind a fork earn says what the tokens before it are worth.

    of `initial` paths, `places` tokens of highest -log p are each followed by `copies` new paths from just before them
    R̃: the leaf's score less the mean of the others';   V(n): mean of R̃ over the leaves below a segment, V(root) 0
    A = (V(n) + V(n) - V(parent))/√leaves(n) on every token of segment n

Defaults: places 2, copies 2, initial what the group leaves room for (6 of 30): released script.
Evidence: A, read in released code (THUDM/TreeRL, `entropy_chain_local_manager.py`, `parallel_mcts.py`).
Deviations: one iteration (L 1); all leaves are learned from, the script takes 16 of 30. Tokens behind "answer" count.
The first token of a turn does not. Paths that earned no score count nowhere.
Variant "code": values are divided by √leaves before they are subtracted.
"""

import torch

from ...control.parameters import Count, Variant, checked
from ...loss.aggregation import mean_by
from ...loss.credit import by_path, earned
from ..base import Batch, Control, Key, Slots, State, Tree
from ..base_algorithms.rloo import leave_one_out
from .cure import Place, begin_again, ranked


@checked
def treerl(
    *, group: Count = 30, places: Count = 2, copies: Count = 2, variant: Variant = "paper"
) -> Control:
    """Return TreeRL; `group` is the run's."""
    initial = max(group // (1 + places * copies), 1)

    def choose(tree: Tree, turns: list[int], key: Key) -> list[Place]:
        return ranked(tree, turns, lambda turn: -turn.logp_roll)[:places]

    def credit(batch: Batch, state: State) -> Slots:
        learned = earned(batch)
        score, path = by_path(leave_one_out, batch)[learned], batch.path[learned]
        _, token = torch.unique(batch.token[learned], return_inverse=True)
        value, leaves = mean_by(token, score)[token], torch.bincount(token)[token]
        if variant == "code":
            value = value / leaves.sqrt()
        begins = torch.ones_like(path, dtype=torch.bool)  # a segment
        begins[1:] = (path.diff() != 0) | (leaves.diff() != 0)
        before = torch.where(path == path.roll(1), value.roll(1), 0.0)[begins]
        before[:1] = 0.0
        gain = 2 * value - before[begins.cumsum(0) - 1]
        gain = gain if variant == "code" else gain / leaves.sqrt()
        return torch.zeros_like(batch.logp_old).masked_scatter(learned, gain.to(batch.logp_old))

    plan = begin_again(group, initial, copies, choose) if initial < group else None
    return Control(name="treerl", sets=frozenset({"branching", "credit"}), plan=plan, credit=credit)
