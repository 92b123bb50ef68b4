"""SENT (arXiv 2512.04359), the part on tokens: certain tokens of extreme covariance are held where they were.

Knob: KL. Among the `low` share of tokens of the lowest entropy, K = max(1, ⌊share·n⌋):

    loss = -r·A + coef·2·|logp - logp_old| on the K of highest covariance, + coef·0.5·… on the K of lowest;  no clip
    cov = (A - mean A)·(logp - mean logp) over these tokens; a token that is both counts as lowest

Defaults: low 0.8, share 0.0002, coef 0.1: released configuration (the function's own default is 1).
Evidence: A, read in released code (zldscr0/SENT, `compute_policy_loss_low_entropy_kl_cov_v2`); its paper holds all
low-entropy tokens.
Deviations: ranks are those of the optimizer step. The curriculum by semantic entropy is not here.
Note: |logp - logp_old| has no slope in the first optimizer step on a rollout, so it needs --updates 2 or more.
"""

from dataclasses import replace

import torch

from ..columns import Batch, Now, Penalty, Terms
from ..control import Control, Needs, State
from ..credit import earned
from ..objective import covariance, moved, unclipped
from ..parameters import NonNegative, Share, checked

HIGHEST, LOWEST = 2.0, 0.5


@checked
def sent(*, low: Share = 0.8, share: Share = 0.0002, coef: NonNegative = 0.1) -> Control:
    """Return SENT's token loss."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned = earned(batch)
        kept = min(max(1, int(low * int(learned.sum()))), int(learned.sum()))
        certain = torch.zeros_like(learned)
        certain[torch.where(learned, now.entropy, torch.inf).topk(kept, largest=False).indices] = True
        cov, count = covariance(terms.advantage, now.logp, certain), min(max(1, int(share * kept)), kept)
        cost = torch.zeros_like(cov).index_fill(0, cov.topk(count).indices, coef * HIGHEST)
        lowest = torch.where(certain, cov, torch.inf).topk(count, largest=False).indices
        cost = cost.index_fill(0, lowest, coef * LOWEST) * terms.scale / max(batch.n_slots, 1)
        return replace(terms, surrogate=unclipped, penalties=(*terms.penalties, Penalty("sent", cost, moved)))

    return Control(name="sent", needs=Needs(now=True), sets=frozenset({"surrogate", "clip"}), shape=shape)
