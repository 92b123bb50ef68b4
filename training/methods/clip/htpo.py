"""HTPO (arXiv 2605.08283): a rule for each token by difficulty of the task, result of the path, and entropy.

Knob: clip, objective. Hard: less than `hard` of the group is right. High: the `high` share of highest entropy.

    low tokens:    PPO's clip;  hard and right: the lowest `lowest` share of them is left out
    high, hard and right: r·A, past the clip `back`·(bound)·A, which pulls the token back (below: A/r)
    high, wrong:   r·A, below the clip -(1 - clip_low)·A
    easy and right: clip on all; the highest `highest` share of the high tokens is left out
    where A < 0 at least limit·A

Defaults: hard 0.6, high 0.2, lowest 0.006, highest 0.02, clip 0.2 / 0.28, limit 10: released code.
Evidence: A, read in released code (xcyao00/HTPO, `core_algos`). Its pull on hard and right tokens below the clip lowers
them further, which may be a slip: back -1 turns that branch round.
Deviations: right is a score of 1 or more; entropies are those of the policy at the start of the update.
"""

from typing import Annotated

import torch

from ...control.parameters import Bound, Limit, Range, Share, checked
from ...loss.credit import Paths
from ...loss.objective import CLIP
from ...loss.surrogates import clipped, hold, ratio
from ..base import Batch, Control, Current, Now, Slots, State, Terms, replace

CODE, HARD_RIGHT, WRONG = "htpo", 1.0, 2.0  # how a high token is treated past the clip; 0: clipped


@checked
def htpo(
    *,
    hard: Share = 0.6,
    high: Share = 0.2,
    lowest: Share = 0.006,
    highest: Share = 0.02,
    clip_low: Bound = CLIP,
    clip_high: Bound = 0.28,
    limit: Limit = 10.0,
    back: Annotated[float, Range(-1, 1)] = 1.0,
) -> Control:
    def surrogate(current: Current, batch: Batch, terms: Terms) -> Slots:
        r, advantage, rule = ratio(current, batch), terms.advantage, terms.extras[CODE]
        low, top, through = 1 - terms.clip_low, 1 + terms.clip_high, r / r.detach()
        past = torch.where(
            r > top, -top * through, torch.where(r < low, -back * through / r.detach(), r)
        )
        wrong = torch.where(r < low, -low * through, r)
        plain = clipped(r, terms)
        value = torch.where(
            rule == HARD_RIGHT,
            past * advantage,
            torch.where(rule == WRONG, wrong * advantage, plain),
        )
        return torch.where(advantage < 0, torch.maximum(value, limit * advantage), value)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths, like = Paths.of(batch), terms.weight
        right, easy = paths.right, paths.easy >= hard
        rule, weight = torch.zeros_like(like), like.clone()
        where = torch.nonzero(paths.learned, as_tuple=True)[0]
        for path in range(len(right)):
            slots = where[paths.place == path]
            order = slots[batch.entropy[slots].argsort(descending=True, stable=True)]
            count = max(int(high * len(order)), 1)
            top, rest = order[:count], order[count:]
            if right[path] and easy[path]:
                weight[top[: max(int(highest * count), 1)]] = 0.0
                continue
            rule[top] = HARD_RIGHT if right[path] else WRONG
            if right[path] and len(rest):
                weight[rest[len(rest) - max(int(lowest * len(rest)), 1) + 1 :]] = 0.0
        extras = {**terms.extras, CODE: rule}
        return replace(
            hold(terms, clip_low, clip_high), weight=weight, surrogate=surrogate, extras=extras
        )

    return Control(name="htpo", sets=frozenset({"clip", "surrogate"}), shape=shape)
