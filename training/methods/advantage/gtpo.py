"""GTPO and GRPO-S (arXiv 2508.04349): a right path's tokens share its reward by entropy, a wrong one's by certainty.

Knob: advantage. d_t, h_t: how many right and wrong paths are long enough to have a token t; n⁺, n⁻: how many there are.

    gtpo:   right 1 + share·d_t·H_it/Σ_k H_kt;     wrong -1 - share·h_t·(1/H_it)/Σ_k(1/H_kt)
    grpo-s: right 1 + share·n⁺·H̄_i/Σ H̄;                   wrong -1 - share·n⁻·(1/H̄_i)/Σ(1/H̄)
    A = (r - mean)/(std + 1e-8), right and wrong apart; grpo-s has the mean of a path's token ratios as its ratio

Defaults: share 0.1, clip 0.2 / 0.28: paper.
Evidence: B, paper text; whether its std is unbiased could not be established, the sheet's is not.
Deviations: right is a score of 1 or more. Tokens are counted along all turns of a path; groups apart.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from ...control.parameters import Bound, NonNegative, checked
from ...loss.aggregation import mean_by, path_mean
from ...loss.credit import Paths
from ...loss.objective import CLIP
from ...loss.surrogates import clipped, hold, ratio
from ..base import Batch, Control, Current, Flags, Labels, Now, Slots, State, Terms, Vector, replace
from ..clip.clip import bounded

LEAST = 1e-8  # nats


@checked
def gtpo(*, share: NonNegative = 0.1, clip_low: Bound = CLIP, clip_high: Bound = 0.28) -> Control:
    """Return GTPO's advantage of tokens, and its clip."""

    def credit(batch: Batch, state: State) -> Slots:
        paths = Paths.of(batch)
        length = torch.bincount(paths.place)
        place = torch.arange(len(paths.place)) - (length.cumsum(0) - length)[paths.place]
        group, right = paths.group[paths.place], paths.right[paths.place]
        found = standardised(
            batch.entropy[paths.learned], torch.stack((group, place)), group, right, share
        )
        return torch.zeros_like(batch.logp_old).masked_scatter(
            paths.learned, found.to(batch.logp_old)
        )

    bounds = bounded("gtpo", clip_low, clip_high)
    return replace(bounds, sets=bounds.sets | {"credit"}, credit=credit)


@checked
def grpo_s(*, share: NonNegative = 0.1, clip_low: Bound = CLIP, clip_high: Bound = 0.28) -> Control:
    """Return GRPO-S's advantage of paths, its ratio and its clip."""

    def credit(batch: Batch, state: State) -> Slots:
        paths = Paths.of(batch)
        mean = paths.mean(batch.entropy)
        found = standardised(mean, paths.group[None], paths.group, paths.right, share)
        return paths.slots(found, batch.logp_old)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(hold(terms, clip_low, clip_high), surrogate=mean_ratio)

    return Control(
        name="grpo-s", sets=frozenset({"credit", "clip", "surrogate"}), credit=credit, shape=shape
    )


def standardised(
    entropy: Vector, peers: Int[Tensor, "k n"], group: Labels, right: Flags, share: float
) -> Vector:
    """Return the advantages of tokens or paths, each side of each group apart."""
    reward = shaped(entropy, peers, right, share)
    _, side = torch.unique(torch.stack((group, right.long())), dim=1, return_inverse=True)
    above = reward - mean_by(side, reward)[side]
    return above / (mean_by(side, above.square()).sqrt()[side] + 1e-8)


def shaped(entropy: Vector, peers: Int[Tensor, "k n"], right: Flags, share: float) -> Vector:
    """Return the rewards: those of one label in `peers` on one side divide what `share` adds."""
    held = entropy.double().clamp(min=LEAST)
    part = torch.where(right, held, 1 / held)
    _, peer = torch.unique(torch.cat([peers, right[None].long()]), dim=1, return_inverse=True)
    return torch.where(right, 1.0, -1.0) * (1 + share * part / mean_by(peer, part)[peer])


def mean_ratio(current: Current, batch: Batch, terms: Terms) -> Slots:
    """Return PPO's term of the mean of the path's ratios."""
    return clipped(path_mean(ratio(current, batch), batch), terms)
