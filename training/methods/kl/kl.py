"""KL to the reference: the estimators, their gradients, in the loss or the reward, with a fixed or adaptive weight.

Knob: KL. x = logp - logp_ref of the drawn token.

    k1 = x;   abs = |x|;   k2 = x²/2;   k3 = exp(-x) + x - 1          (Schulman 2020, arXiv 1707.06347 for the use)
    slope k2: the value of the estimator with the gradient of k2, which is that of the reverse KL ("k1+", "k3+")
    loss:   + coef · mean k;      reward: s_i ← s_i - coef·Σ_t k_t of the path, at the start of the update
    adaptive: coef ← coef·(1 + clip(KL/target - 1, ±0.2)·rate)                    (Ziegler et al., arXiv 1909.08593)

Defaults: coef 0.001, k3 with its own gradient, target 0, which keeps coef; rate 0.0256: 256 samples, horizon 10000.
Evidence: A, read in released code (verl `kl_penalty`, `AdaptiveKLController`).
Deviations: x is held in ±20; k3 is not held. KL of the controller is k3's mean over the rollout's tokens.
Note: as a loss k1 has no gradient in expectation; it belongs in the reward.
Off: coef 0.
"""

from math import isfinite
from typing import Literal

import torch

from ...control.parameters import NonNegative, checked
from ...loss.aggregation import sum_by
from ...loss.credit import earned
from ...loss.kl import k3, log_ratio
from ..base import (
    Batch,
    Control,
    Current,
    Needs,
    Now,
    Penalty,
    Requests,
    Rows,
    Slots,
    State,
    Stats,
    Terms,
    replace,
)

Estimator = Literal["k1", "abs", "k2", "k3"]
LARGEST = 0.2  # relative error that the controller reacts to


@checked
def kl(
    *,
    coef: NonNegative = 0.001,
    estimator: Estimator = "k3",
    slope: Literal["own", "k2"] = "own",
    place: Literal["loss", "reward"] = "loss",
    target: NonNegative = 0.0,
    rate: NonNegative = 0.0256,
) -> Control:
    """Return the penalty; `target` is in nats a token, 0 keeps `coef`. State: coef."""

    def reward(batch: Batch, state: State) -> Rows:
        score = batch.turns.score
        if place == "loss" or not coef:
            return score
        cost = state.get("coef", coef) * estimate(estimator, batch.logp_old, reference(batch))
        return score - sum_by(batch.path, cost, batch.n_paths)[batch.turns.path].to(score)

    def penalty(current: Current, batch: Batch, terms: Terms) -> Slots:
        value = estimate(estimator, current.logp, reference(batch))
        if slope == "own":
            return value
        through = estimate("k2", current.logp, reference(batch))
        return value.detach() + through - through.detach()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        if place == "reward" or not coef:
            return terms
        cost = torch.where(
            earned(batch), state.get("coef", coef) * terms.scale / max(batch.n_slots, 1), 0.0
        )
        return replace(terms, penalties=(*terms.penalties, Penalty("kl", cost, penalty)))

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if not (target and stats.phase == "update" and stats.last and isfinite(stats.kl)):
            return state, Requests()
        error = min(max(stats.kl / target - 1, -LARGEST), LARGEST)
        return {"coef": state.get("coef", coef) * (1 + error * rate)}, Requests()

    return Control(
        name="kl", needs=Needs(logp_ref=coef > 0), reward=reward, shape=shape, observe=observe
    )


def estimate(name: Estimator, logp: Slots, other: Slots) -> Slots:
    """Return an estimator of KL(current ‖ reference) by token."""
    x = log_ratio(logp, other)
    if name == "k3":
        return k3(logp, other)
    return x.square() / 2 if name == "k2" else x.abs() if name == "abs" else x


def reference(batch: Batch) -> Slots:
    """Return the reference's log-probabilities, which `Needs` has asked for."""
    assert batch.logp_ref is not None
    return batch.logp_ref
