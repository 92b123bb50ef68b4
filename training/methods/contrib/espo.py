"""ESPO (arXiv 2512.00499): tokens of a path are grouped by entropy, each group with its own ratio and its own clip.

Knob: clip, surrogate. Certain and uncertain tokens of a path need not move together.

    groups: by the quantiles of the path's entropies, `groups` of them;   s_g = exp(mean log r over group g)
    clip of group g: clip·(1 + k·H̄_g/max H̄) around 1;   the gradient goes through each token alone, as in GSPO

Defaults: groups 2, clip 0.2, k 1: ours.
Evidence: C. Groups, their geometric mean and the wider clip are the paper's; its numbers could not be established.
Deviations: always averaged as the run's aggregation says. It sets no credit, so name it with grpo.
"""

import torch

from ...control.parameters import Count, NonNegative, checked
from ...loss.aggregation import mean_by, path_quantile
from ...loss.credit import earned
from ...loss.surrogates import SEQUENCE_LIMIT, clipped
from ..base import Batch, Control, Current, Now, Slots, State, Terms, replace

GROUP = "espo"


@checked
def espo(*, groups: Count = 2, clip: NonNegative = 0.2, k: NonNegative = 1.0) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        levels = [
            batch.entropy > path_quantile(batch.entropy, batch, at / groups)
            for at in range(1, groups)
        ]
        own = sum((level.long() for level in levels), torch.zeros_like(batch.path))
        _, member = torch.unique(batch.path * groups + own, return_inverse=True)
        learned = earned(batch)
        if not learned.any():
            return terms
        mean = mean_by(member, batch.entropy)
        most = mean[member[learned]].max()  # of the paths that earned a score
        bound = (clip * (1 + k * mean / most.clamp(min=1e-12)))[member].to(terms.clip_low)
        extras = {**terms.extras, GROUP: own.to(terms.weight)}
        return replace(terms, clip_low=bound, clip_high=bound, surrogate=group_ratio, extras=extras)

    return Control(name="espo", sets=frozenset({"clip", "surrogate"}), shape=shape)


def group_ratio(current: Current, batch: Batch, terms: Terms) -> Slots:
    """Return PPO's term of the ratio of each token's group."""
    label = torch.stack((batch.path, terms.extras[GROUP].long()))
    _, member = torch.unique(label, dim=1, return_inverse=True)
    mean = mean_by(member, (current.logp - batch.logp_old).detach())[member].to(current.logp)
    return clipped(
        (mean + current.logp - current.logp.detach()).clamp(max=SEQUENCE_LIMIT).exp(), terms
    )
