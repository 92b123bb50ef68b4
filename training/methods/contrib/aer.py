"""AER (arXiv 2510.10959): an entropy bonus by difficulty of the task, under a coefficient that seeks a target.

Knob: objective. Hard tasks may explore; the target is a share of the entropy that the run began with.

    L ← L - mean_t c·(1 - acc_g)·H_t;     c ← clip(c + eta·(tau·H_0 - H), 0, most)

Defaults: c 0.01, eta 0.005, tau 0.5, most 0.1: ours.
Evidence: C. The three parts are the paper's; its formulas could not be established.
Deviations: acc is the share of right paths (score ≥ 1) of the group; H_0 is that of the first rollout.
Off: most 0.
"""

from math import isfinite

from ...control.parameters import NonNegative, Share, checked
from ...loss.credit import Paths
from ..base import Batch, Control, Needs, Now, Requests, State, Stats, Terms, replace


@checked
def aer(
    *,
    first: NonNegative = 0.01,
    eta: NonNegative = 0.005,
    tau: Share = 0.5,
    most: NonNegative = 0.1,
) -> Control:
    """Return the bonus; coefficients are per nat. State: coefficient, and the first entropy (nats)."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout" or not isfinite(stats.entropy):
            return state, Requests()
        if state["start"] is None:
            return {**state, "start": stats.entropy}, Requests()
        error = tau * state["start"] - stats.entropy
        return {**state, "coef": min(max(state["coef"] + eta * error, 0.0), most)}, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths = Paths.of(batch)
        bonus = paths.slots(min(state["coef"], most) * (1 - paths.easy), terms.advantage)
        return replace(terms, entropy_coef=terms.entropy_coef + bonus)

    start = {"coef": first, "start": None}
    return Control(
        name="aer",
        needs=Needs(entropy_grad=most > 0),
        init=start.copy,
        observe=observe,
        shape=shape,
    )
