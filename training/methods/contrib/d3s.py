"""D3S (arXiv 2509.22115): the extreme paths of a group, and of these the tokens that matter.

Knob: objective (loss mask). Fewer, more telling samples; both shares shrink or grow with the run.

    paths:  of each group the subset of share·n with the largest variance of advantages
    tokens: of these the share with the largest |A|·H;   the mean is over what is left

Defaults: paths 0.5 to 1, tokens 0.2 to 1 at the end of the run: ours.
Evidence: C. The rules are the paper's; its numbers could not be established.
Deviations: ranks are those of the optimizer step. Advantages are not standardised again. Name it behind grpo.
Off: paths, tokens and their ends 1.
"""

from math import ceil

import torch

from ...control.parameters import Share, checked
from ...loss.credit import Paths
from ..base import Batch, Control, Now, State, Terms, Vector, replace


@checked
def d3s(
    *, paths: Share = 0.5, tokens: Share = 0.2, paths_end: Share = 1.0, tokens_end: Share = 1.0
) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        done = batch.at.step / max(batch.at.steps - 1, 1)
        of, among = paths + done * (paths_end - paths), tokens + done * (tokens_end - tokens)
        found = Paths.of(batch)
        mean = found.mean(terms.advantage)
        kept = torch.zeros_like(mean, dtype=torch.bool)
        for group in torch.unique(found.group):
            (mine,) = torch.nonzero(found.group == group, as_tuple=True)
            kept[mine[extremes(mean[mine], max(ceil(of * len(mine) - 1e-9), 1))]] = True
        slots = found.slots(kept, terms.weight) > 0
        worth = torch.where(slots, terms.advantage.abs() * batch.entropy, -1.0)
        count = max(ceil(among * int(slots.sum()) - 1e-9), 1)
        if not slots.any() or count == len(found.place):
            return terms
        chosen = torch.zeros_like(slots).index_fill(0, worth.topk(count).indices, True)
        return replace(
            terms, weight=torch.where(chosen, terms.weight * (batch.n_slots / count), 0.0)
        )

    return Control(name="d3s", shape=shape)


def extremes(values: Vector, count: int) -> list[int]:
    """Return the places of the `count` values with the largest variance: some of the largest, some of the smallest."""
    order = values.argsort(descending=True, stable=True)
    ways = [torch.cat([order[:top], order[len(order) - count + top :]]) for top in range(count + 1)]
    best = max(ways, key=lambda way: float(values[way].var(correction=0)))
    return sorted(best.tolist())
