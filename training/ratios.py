"""What an update finds the policy to have moved since the rollout: importance ratios, clips and divergences.

Invariant: computed once an optimizer step, from all its slots, so how they were cut into micro-batches does not show.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .columns import Batch, Terms
from .kl import k3, log_ratio

PERCENTILES = (5, 50, 95)


@torch.no_grad()
def diagnose(logp: Float[Tensor, "s"], batch: Batch, terms: Terms) -> dict[str, float]:
    """Return statistics of an update whose policy gives the slots `logp` nats, NaN where that was not computed.

    clip_low, clip_high: share of slots whose token's ratio lies past the bound that would hold it; paths that were not
        computed have nothing to hold
    kl_old, kl: mean over slots of logp_old - logp, and of k3 to the reference where there is one, nats
    ratio_p05, ratio_p50, ratio_p95: of exp(logp - logp_old) of the computed tokens, shared ones counted once
    log_ratio_max: largest |logp - logp_old|, nats
    mismatch, mismatch_max: mean (tokens once) and largest |logp_old - logp_roll|, nats; absent where they are equal

    Clips and ratios also by the agent's turn, as in `clip_low_turn/0`; absent where no slot of it was computed.
    """
    return {**dict(_moved(logp, batch, terms)), **_mismatch(batch)}


def _moved(logp: Float[Tensor, "s"], batch: Batch, terms: Terms) -> Iterator[tuple[str, float]]:
    known = ~logp.isnan()
    if not bool(known.any()):
        return
    yield "kl_old", float((batch.logp_old - logp)[known].sum()) / batch.n_slots
    if batch.logp_ref is not None:
        yield "kl", float(k3(logp, batch.logp_ref)[known].sum()) / batch.n_slots
    x = log_ratio(logp, batch.logp_old)
    low = (terms.advantage < 0) & (x.exp() < 1 - terms.clip_low)
    high = (terms.advantage > 0) & (x.exp() > 1 + terms.clip_high)
    once = _once(known, batch)
    turn = batch.turn
    turns = ((f"_turn/{number}", turn == number) for number in torch.unique(turn[known]).tolist())
    for end, where in (("", torch.ones_like(known)), *turns):
        yield f"clip_low{end}", float(low[where].double().mean())
        yield f"clip_high{end}", float(high[where].double().mean())
        moved = (logp - batch.logp_old)[once & where].double()
        ratios = np.percentile(x[once & where].double().exp().numpy(), PERCENTILES)
        yield from ((f"ratio_p{p:02}{end}", float(ratio)) for p, ratio in zip(PERCENTILES, ratios, strict=True))
        yield f"log_ratio_max{end}", float(moved.abs().max())


def _mismatch(batch: Batch) -> dict[str, float]:
    gap = (batch.logp_old - batch.logp_roll).abs()
    if not bool((gap > 0).any()):
        return {}
    return {"mismatch": float((batch.share * gap).sum() / batch.share.sum()), "mismatch_max": float(gap.max())}


def _once(known: Bool[Tensor, "s"], batch: Batch) -> Bool[Tensor, "s"]:
    """Return which `known` slots are the first of their token."""
    _, first = np.unique(batch.token[known].numpy(), return_index=True)
    once = torch.zeros_like(known)
    once[known.nonzero()[:, 0][torch.from_numpy(first)]] = True
    return once
