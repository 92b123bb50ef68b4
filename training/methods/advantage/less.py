"""LESS (arXiv 2512.00908): certain passages that right and wrong paths share are silenced, those of one side kept.

Knob: advantage. What all paths say with certainty cannot be why one of them failed.

    certain: H ≤ thr, the path's entropy at place min(round(quantile·n), n - 1) of the sorted ones
    A_t ← A_t·m_t;  m = 1/N_side on certain tokens (N right or wrong paths of the group), 1 on the others
    a run of at least `least` tokens with H < thr that is also part of a run of another path: m = 0 where paths of both
    sides have it, else the larger of m and the share of its side that has it

Defaults: quantile 0.8, least 5: released code.
Evidence: A, read in released code (QWE-CXZ/LESS, `revise_advantage.py`).
Deviations: right is a score of 1 or more; a run does not go on from one turn into the next. A passage of both sides
stays silent, whatever else it belongs to. Name it behind grpo.
Off: weight 0.
"""

import torch
from torch import Tensor

from ...control.parameters import Count, Share, checked
from ...loss.credit import Paths
from ..base import (
    Batch,
    Before,
    Control,
    Ids,
    Labels,
    Logits,
    Needs,
    Now,
    Slots,
    State,
    Terms,
    Values,
    replace,
)

TOKEN = "less-token"
Run = tuple[int, list[int], str]  # its path, its slots, its tokens as text


@checked
def less(*, quantile: Share = 0.8, least: Count = 5, weight: Share = 1.0) -> Control:
    """Return LESS's factors, `weight` of them."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths, factor = Paths.of(batch), torch.ones_like(terms.advantage)
        slots, right = paths.learned.nonzero()[:, 0], paths.right.tolist()
        for group in torch.unique(paths.group):
            members = (paths.group == group).nonzero()[:, 0].tolist()
            sides = {side: sum(right[path] == side for path in members) for side in (True, False)}
            runs = list[Run]()
            for path in members:
                mine = slots[paths.place == path]
                entropy = batch.entropy[mine]
                level = entropy.sort().values[min(round(quantile * len(mine)), len(mine) - 1)]
                factor[mine[entropy <= level]] = 1 / sides[right[path]]
                runs += [(path, *one) for one in certain(batch, mine, entropy < level, least)]
            _share(runs, right, sides, factor)
        return (
            replace(terms, advantage=terms.advantage * (1 + weight * (factor - 1)))
            if weight
            else terms
        )

    return Control(
        name="less", needs=Needs(functionals={TOKEN: drawn} if weight else {}), shape=shape
    )


def certain(batch: Batch, slots: Labels, low: Tensor, least: int) -> list[tuple[list[int], str]]:
    """Return the runs of at least `least` certain tokens of a path: their slots, and their tokens as text."""
    runs, current = list[list[int]](), list[int]()
    for slot, sure in zip(slots.tolist(), low.tolist()):
        if current and not (sure and batch.row[slot] == batch.row[current[-1]]):
            runs.append(current)
            current = []
        current += [slot] * sure
    tokens = batch.extras[TOKEN]
    long = [run for run in [*runs, current] if len(run) >= least]
    # With a blank before, between and behind the ids, parts of numbers are no matches.
    return [(run, " ".join(["", *(str(int(token)) for token in tokens[run]), ""])) for run in long]


def _share(runs: list[Run], right: list[bool], sides: dict[bool, int], factor: Slots) -> None:
    """Write the factors of runs of a group that several paths have into `factor`."""
    silent = list[int]()
    for text in {text for _, _, text in runs}:
        found = [
            (path, slots, whole[: whole.find(text)].count(" "))
            for path, slots, whole in runs
            if text in whole
        ]
        having = {path for path, _, _ in found}
        if len(having) < 2:
            continue
        has = {side: sum(right[path] == side for path in having) for side in (True, False)}
        for path, slots, begin in found:
            part = slots[begin : begin + text.count(" ") - 1]
            if all(has.values()):
                silent += part
            else:
                factor[part] = factor[part].clamp(min=has[right[path]] / sides[right[path]])
    factor[silent] = 0.0


def drawn(logits: Logits, token: Ids, before: Before) -> Values:
    """Return the ids of the drawn tokens, which are exact below 16 million."""
    return token.to(logits.dtype)
