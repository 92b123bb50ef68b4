"""REINFORCE++ (Hu et al., arXiv 2501.03262).

Knob: advantage. Returns from each token on, standardised over the tokens of the whole batch instead of within groups.

    G_t = R_t + gamma·G_{t+1},   R_t = -kl_reward·(logp_old - logp_ref)_t, plus the score on the path's last token
    A = (G - mean)/√(var + 1e-8)                     over all tokens of the step, in PPO's clipped term
    baseline "group": G_t = s_i - mean_g s on every token of path i, standardised the same way

Defaults: gamma 1; no KL; clip and token mean are the run's.
Evidence: A, read in released code (verl).
Deviations: verl fails where fewer than two tokens are there to standardise; here A is 0. Equal returns give exactly 0.
A group of one keeps its raw score. Paths that an infrastructure failure ended leave mean and variance and get 0.
Axis: slots. A token that paths share has each path's return and counts once for each, and long paths count more.
"""

from typing import Literal

from ...control.parameters import NonNegative, Share, checked, require
from ...loss.aggregation import whiten
from ...loss.credit import by_path, centred, earned, final_reward
from ...loss.gae import discounted
from ...loss.kl import k1
from ..base import Batch, Control, Needs, Slots, State


@checked
def reinforce_pp(
    *, baseline: Literal["none", "group"] = "none", gamma: Share = 1.0, kl_reward: NonNegative = 0.0
) -> Control:
    """Return REINFORCE++, or its baseline variant; `kl_reward` is per nat."""
    alone = baseline == "none" or (gamma, kl_reward) == (1.0, 0.0)
    require(
        alone,
        "reinforce-pp",
        "gamma, kl_reward",
        (gamma, kl_reward),
        "1, 0 with baseline group: it has no steps",
    )

    def credit(batch: Batch, state: State) -> Slots:
        if baseline == "group":
            return whiten(by_path(centred, batch), earned(batch))
        reward = final_reward(batch)
        if kl_reward:
            reward = reward - kl_reward * _drift(batch)
        return whiten(discounted(reward, batch.path, gamma), earned(batch))

    needs = Needs(logp_ref=kl_reward > 0)
    return Control(name="reinforce-pp", needs=needs, sets=frozenset({"credit"}), credit=credit)


def _drift(batch: Batch) -> Slots:
    if batch.logp_ref is None:
        raise ValueError(
            "reinforce-pp: Batch.logp_ref is None, but kl_reward is set; compute what the control needs"
        )
    return k1(batch.logp_old, batch.logp_ref)
