"""KL-Cov (Cui et al., arXiv 2505.22617): the few tokens that cost the most entropy are held where they were.

Knob: KL. Of N tokens those of the highest covariance of log-probability and advantage pay for how far they move.

    cov_t = (A_t - mean A)·(logp_t - mean logp);   K = max(1, ⌊share·N⌋) tokens of the highest
    loss_t = -r·A + coef·|logp - logp_old| on these, -r·A elsewhere: nothing is clipped

Defaults: coef 1, share 0.002 (7B; 32B: 0.0002): released scripts, where `k_percent` is in percent.
Evidence: A, read in released code (PRIME-RL/Entropy-Mechanism-of-RL, verl).
Deviations: means and ranks are those of the optimizer step, the code's of the micro-batch. Paths that earned no score
take no part. It sets no credit, so name it with grpo.
Note: |logp - logp_old| has no slope in the first optimizer step on a rollout, so it needs --updates 2 or more.
Off: coef 0 leaves the policy term without its clip.
"""

import torch

from ...control.parameters import NonNegative, Share, checked
from ...loss.credit import earned
from ...loss.objective import moved
from ...loss.surrogates import covariance, unclipped
from ..base import Batch, Control, Needs, Now, Penalty, State, Terms, replace


@checked
def kl_cov(*, coef: NonNegative = 1.0, share: Share = 0.002) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        cov, learned = (
            covariance(terms.advantage, now.logp, earned(batch)),
            int(earned(batch).sum()),
        )
        held = cov.topk(min(max(1, int(share * learned)), learned)).indices
        cost = torch.zeros_like(cov).index_fill(0, held, coef / max(batch.n_slots, 1)) * terms.scale
        penalties = (*terms.penalties, Penalty("kl-cov", cost, moved))
        return replace(terms, surrogate=unclipped, penalties=penalties)

    return Control(
        name="kl-cov", needs=Needs(now=True), sets=frozenset({"surrogate", "clip"}), shape=shape
    )
