"""DCPO (arXiv 2509.02333): clip bounds by the old probability, and advantages smoothed over a task's visits.

Knob: clip, advantage. Unlikely tokens may move further; a task's scores of earlier visits count.

    lo = 1/2 + 1/2·√max(1 - 4·low/q, 0);   hi = min(1/2 + 1/2·√(1 + 4·high/q), max(limit, 10));   q = π_old(token)
    i-th visit: A = the smaller in size of cum/i + (1 - 1/i)·new and new/i + (1 - 1/i)·cum
    new: standardised by the group's scores, cum: by those of all visits

Defaults: low 0.2, high 0.28, limit 10: released scripts.
Evidence: A, read in released code (lime-RL/DCPO, `core_algos`). Whether it means a token mean by micro-batch could
not be established; here it is the run's aggregation.
Deviations: a group of one has std 0, and so advantage 0 on its first visit; the code raises.
"""

from collections import defaultdict
from statistics import mean, stdev

import torch

from ...control.parameters import Limit, NonNegative, checked
from ...loss.credit import Paths
from ...loss.surrogates import dual_clip
from ..base import Batch, Control, Now, Requests, Sets, Slots, State, Stats, Terms, replace


@checked
def dcpo(
    *, low: NonNegative = 0.2, high: NonNegative = 0.28, limit: Limit = 10.0, smooth: bool = True
) -> Control:
    """Return DCPO. State: of each task mean and std of its scores, and its visits."""

    def credit(batch: Batch, state: State) -> Slots:
        paths = Paths.of(batch)
        task = batch.turns.task.new_zeros(len(paths.score))
        task[paths.place] = batch.turns.task[batch.row[paths.learned]]
        found = torch.zeros_like(paths.score)
        for group in torch.unique(paths.group):
            mine = paths.group == group
            past = state.get(str(int(task[mine][0]))) if smooth else None
            found[mine] = found.new_tensor(advantage(paths.score[mine].tolist(), past))
        return paths.slots(found, batch.logp_old)

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "update" or not stats.last or not smooth:
            return state, Requests()
        scores = defaultdict[str, list[float]](list)  # by task
        for key, score in stats.scores.items():
            scores[str(key[2])].append(score)
        return {
            **state,
            **{task: visited(own, state.get(task)) for task, own in scores.items()},
        }, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        lo, hi = bounds(batch.logp_old.exp(), low, high, limit)
        return replace(terms, clip_low=1 - lo, clip_high=hi - 1, surrogate=dual_clip(limit))

    sets = frozenset[Sets]({"credit", "clip", "surrogate"})
    return Control(name="dcpo", sets=sets, credit=credit, observe=observe, shape=shape)


def bounds(q: Slots, low: float, high: float, limit: float) -> tuple[Slots, Slots]:
    """Return the least and the largest ratio of tokens of old probability `q`."""
    cap = max(limit, 10.0)
    q = q.clamp(min=torch.finfo(q.dtype).tiny)
    lo = 0.5 + 0.5 * (1 - 4 * low / q).clamp(min=0).sqrt()
    return lo, (0.5 + 0.5 * (1 + 4 * high / q).sqrt()).clamp(max=cap)


def visited(scores: list[float], past: list[float] | None) -> list[float]:
    """Return mean, std and count after a visit with these scores."""
    m, s = mean(scores), stdev(scores) if len(scores) > 1 else 0.0
    if past is None:
        return [m, s, 1]
    old, spread, n = past
    i = n + 1
    variance = (n * spread**2 + s**2 + n / i * (m - old) ** 2) / i
    return [(n * old + m) / i, variance**0.5, i]


def advantage(scores: list[float], past: list[float] | None) -> list[float]:
    """Return the advantages of a visit's scores."""
    (m, s, _), (whole, spread, i) = visited(scores, None), visited(scores, past)
    result = []
    for x in scores:
        new, cum = ((x - at) / wide if wide else 0.0 for at, wide in ((m, s), (whole, spread)))
        one, other = cum / i + (1 - 1 / i) * new, new / i + (1 - 1 / i) * cum
        result.append(one if abs(one) < abs(other) else other)
    return result
