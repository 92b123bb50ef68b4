"""DLER (arXiv 2510.15110): what is cut at the limit earns nothing, under a plain and stable recipe.

Knob: reward. With REINFORCE++'s baseline, clip-higher and dynamic sampling, truncation alone shortens answers.

    s_i ← left·s_i where path i was cut;   and where A < 0 the policy term is not allowed below limit·A

Defaults: left 0, limit 10, clip 0.2 / 0.28: released script; `turngym train dler` has all of its parts.
Evidence: A, read in the released script (NVlabs/DLER, `dler_slurm.sh`).
Deviations: cut is what the environment or the token limit truncated. The script's reference KL of 0.0005 is left out,
as in the paper; `kl:coef=0.0005` adds it.
Off: left 1 and limit inf.
"""

import torch

from ....envs import Outcome
from ...control.parameters import Limit, Share, checked
from ...data.batch import OUTCOMES
from ...loss.surrogates import dual_clip
from ..base import Batch, Control, Now, Rows, State, Terms, replace


@checked
def dler(*, left: Share = 0.0, limit: Limit = 10.0) -> Control:
    def reward(batch: Batch, state: State) -> Rows:
        turns = batch.turns
        cut = turns.outcome == OUTCOMES.index(Outcome.TRUNCATED)
        return torch.where(cut, left * turns.score, turns.score)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(terms, surrogate=dual_clip(limit))

    return Control(name="dler", sets=frozenset({"surrogate"}), reward=reward, shape=shape)
