"""80/20 forking tokens (arXiv 2506.01939): only the most uncertain tokens are learned from.

Knob: objective (loss mask). Where a text forks its entropy is high; the other tokens follow.

    learned from: the max(1, ⌊N·share + 0.9999⌋) tokens of the highest entropy;   the mean is over these

Defaults: share 0.2: paper, on DAPO.
Evidence: A, read in released code (Shenzhi-Wang/Beyond-the-80-20-Rule-RLVR; TRL's `top_entropy_quantile`).
Deviations: ranked over the optimizer step, the code's over the micro-batch; equal entropies at the threshold are all
taken. Paths that earned no score take no part. It sets no credit, so name it with grpo.
Off: share 1, where all paths earned a score.
"""

import torch

from ...control.parameters import checked
from ...loss.credit import earned
from ..base import Batch, Control, Needs, Now, Part, State, Terms, replace


@checked
def forking_tokens(*, share: Part = 0.2) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned = earned(batch)
        count = int(learned.sum())
        if not count or share == 1:
            return terms
        kept = min(max(1, int(count * share + 0.9999)), count)
        chosen = learned & (now.entropy >= now.entropy[learned].topk(kept).values[-1])
        grown = batch.n_slots / int(chosen.sum())
        return replace(terms, weight=torch.where(chosen, grown * terms.weight, 0.0))

    return Control(name="forking-tokens", needs=Needs(now=True), shape=shape)
