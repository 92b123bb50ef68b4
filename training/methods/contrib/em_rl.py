"""EM-RL (arXiv 2505.15134): the reward is the policy's own certainty; no labels.

Knob: reward. It lowers entropy on purpose: for policies that know the answer and do not say it.

    token:    s_i = -Σ_t H_t;      sequence: s_i = Σ_t log p_old(token)       in place of the environment's score

Defaults: of "token"; the paper's baseline is RLOO's.
Evidence: C. The rewards are the paper's; its training code is not released.
Deviations: paths that earned no score stay without one.
Off: mix 0 keeps the environment's score.
"""

from typing import Literal

from ...control.parameters import Share, checked
from ...loss.aggregation import sum_by
from ..base import Batch, Control, Rows, State


@checked
def em_rl(*, of: Literal["token", "sequence"] = "token", mix: Share = 1.0) -> Control:
    """Return EM-RL's score in place of the environment's, `mix` of it; nats."""

    def reward(batch: Batch, state: State) -> Rows:
        certain = sum_by(
            batch.path, -batch.entropy if of == "token" else batch.logp_old, batch.n_paths
        )
        score = batch.turns.score
        return (1 - mix) * score + mix * certain[batch.turns.path].to(score)

    return Control(name="em-rl", reward=reward)
