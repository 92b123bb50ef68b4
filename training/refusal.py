"""Why an update is refused: something in it is not finite, and the sample that brought it in."""

from __future__ import annotations

from math import inf

import torch

from .columns import Terms
from .packing import Packed


class Refused(Exception):
    """An update is not to be taken: why, and the key (seed, step, task, branch) of the sample where one is known."""

    def __init__(self, why: str, key: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.key = key


def check(terms: Terms, packed: Packed) -> None:
    """Raise Refused with the first sample that has a number that is not finite. A score spoils its whole group."""
    batch, turns = packed.batch, packed.batch.turns
    columns = {
        "score": torch.where(turns.rewarded, turns.score, 0.0)[batch.row],
        "reward of a turn": torch.where(turns.rewarded, turns.reward, 0.0)[batch.row],
        "sampler's log-probability": batch.logp_old,
        "sampler's entropy": batch.entropy,
        "reference's log-probability": torch.zeros(0) if batch.logp_ref is None else batch.logp_ref,
        "advantage": terms.advantage,
        "weight": terms.weight,
        "KL coefficient": terms.kl_coef,
        "entropy coefficient": terms.entropy_coef,
        "scale": terms.scale,
        "lower clip": torch.where(terms.clip_low == inf, 0.0, terms.clip_low),  # inf holds nothing
        "upper clip": torch.where(terms.clip_high == inf, 0.0, terms.clip_high),
        **{f"coefficient of {penalty.name}": penalty.coef for penalty in terms.penalties},
    }
    for what, column in columns.items():
        for slot in (~torch.isfinite(column)).nonzero()[:1, 0].tolist():
            path = int(batch.path[slot])
            raise Refused(f"{packed.names[path]}: the {what} is {float(column[slot])}", packed.keys[path])
