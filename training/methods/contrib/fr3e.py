"""FR3E (arXiv 2507.07017): rollouts from the uncertain places of a first path, each group judged by itself.

Knob: sampling, advantage, clip. First return to where a decision was made, then explore from there.

    S_0 is the prompt, S_1 … S_K the K tokens of highest entropy of the first path, in its order;  M rollouts from each
    A: GRPO's within the rollouts of one S_j, times α_j = exp(V(S_{j-1}) - V(S_j)), V their mean score, α_0 = 1

Defaults: M 4, K what the group leaves room for, clip 0.22 / 0.28: text; M is a reader's guess.
Evidence: C. The repository has no code, and α could not be established.
Deviations: rollouts from S_0 are the paths that begin at the prompt, the first of them the base.
"""

import torch
from torch import Tensor

from ...control.parameters import Bound, Count, checked
from ...loss.aggregation import mean_by
from ...loss.credit import Paths, standard
from ..base import Batch, Control, Key, Needs, Sets, Slots, State, Tree, Vector, replace
from ..clip.clip import bounded
from ..sampling.cure import Place, begin_again, ranked

STATE = "fr3e"


@checked
def fr3e(
    *, group: Count = 16, rollouts: Count = 4, clip_low: Bound = 0.22, clip_high: Bound = 0.28
) -> Control:
    """Return FR3E; `group` is the run's, `rollouts` is M."""
    first = min(rollouts, group)

    def choose(tree: Tree, turns: list[int], key: Key) -> list[Place]:
        return (
            ranked(tree, turns, lambda turn: turn.entropy)[: group // first - 1]
            if key[-1] == 0
            else []
        )

    def credit(batch: Batch, state: State) -> Slots:
        paths = Paths.of(batch)
        own = batch.turns.columns[STATE][batch.row[paths.learned]].to(paths.score)
        begun = torch.zeros_like(paths.score).index_put((paths.place,), own)
        _, group_of = torch.unique(
            torch.stack((paths.group, begun.long())), dim=1, return_inverse=True
        )
        advantage = standard(paths.score, group_of) * tempered(paths.score, paths.group, begun)
        return paths.slots(advantage, batch.logp_old)

    plan = begin_again(group, first, first, choose) if first < group else None
    needs, sets = Needs(columns={STATE: begun_at}), frozenset[Sets]({"branching", "credit", "clip"})
    bounds = bounded("fr3e", clip_low, clip_high)
    return replace(bounds, needs=needs, sets=sets, plan=plan, credit=credit)


def begun_at(tree: Tree) -> list[float]:
    """Return for each leaf j of S_j: 0 for the prompt, then places in the order of the first path."""
    places = sorted(
        {(leaf.fork, leaf.token) for leaf in tree.leaves if leaf.parent >= 0 and leaf.token}
    )
    number = {place: at for at, place in enumerate(places, 1)}
    return [float(number.get((leaf.fork, leaf.token), 0)) for leaf in tree.leaves]


def tempered(score: Vector, group: Tensor, begun: Vector) -> Vector:
    """Return α of each path."""
    keys, at = torch.unique(torch.stack((group, begun.long())), dim=1, return_inverse=True)
    mean = mean_by(at, score)
    gain = torch.zeros_like(mean)
    gain[1:] = torch.where(keys[0].diff() == 0, mean.diff(), 0.0)
    return torch.exp(-gain)[at].to(score)
