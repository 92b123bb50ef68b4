"""Proximal Policy Optimization with a value head (Schulman et al., arXiv 1707.06347; GAE, arXiv 1506.02438).

Knob: advantage and objective. A head on the policy's hidden states learns what a path will earn; a token is judged by
how much better things stand behind it than the head had expected.

    δ_t = R_t + gamma·V_{t+1} - V_t,   A_t = δ_t + gamma·lam·A_{t+1},   R = the score on the path's last token
    returns A + V;   then A is standardised over all tokens of the step
    L ← L + value_coef · ½ mean max( (v - returns)², (V + clip(v - V, ±value_clip) - returns)² )
    policy term: PPO's, and where A < 0 not below limit·A

Defaults: gamma 1, lam 1, value_clip 0.5, limit 3: verl (lam 0.95 is usual elsewhere); value_coef 1; the run's clip.
Evidence: A, read in released code (verl).
Deviations: the head reads the policy's own hidden states and does not move them, where verl trains a network apart. It
begins at 0. The norm of its gradient counts in the clipping of the whole. Time runs over sampled tokens alone: what the
environment says in between has no reward and no value. The value term is a token mean, whatever else is averaged.
Axis: slots. A token that paths share has one V, but an advantage and a return on each path, and counts once for each.
"""

from collections.abc import Callable
from functools import partial
from math import inf

import torch
from torch import nn

from ...control.parameters import Bound, Limit, NonNegative, Share, checked
from ...loss.aggregation import whiten
from ...loss.credit import earned, final_reward
from ...loss.gae import gae
from ...loss.surrogates import dual_clip
from ..base import Batch, Control, Current, Needs, Now, Penalty, Slots, State, Terms, replace

VALUE = "value"  # in `extras`


@checked
def ppo(
    *,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    value_coef: NonNegative = 1.0,
    value_clip: Bound = 0.5,
    limit: Limit = 3.0,
) -> Control:
    """Return PPO's value head, advantage, value loss and dual clip; `limit` inf is without one."""
    base = with_value("ppo", partial(value_advantage, gamma=gamma, lam=lam), value_coef, value_clip)
    surrogate = dual_clip(limit)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(base.shape(terms, batch, now, state), surrogate=surrogate)

    return base if limit == inf else replace(base, sets=base.sets | {"surrogate"}, shape=shape)


def with_value(name: str, advantage: Callable[[Batch], Slots], coef: float, clip: float) -> Control:
    """Return a control with a value head, its loss, and an advantage that rests on it and is then standardised."""

    def credit(batch: Batch, state: State) -> Slots:
        return whiten(advantage(batch), earned(batch))

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        mean = torch.ones_like(terms.advantage) / max(batch.n_slots, 1)
        cost = torch.where(earned(batch), 0.5 * coef * mean, 0.0)
        penalty = Penalty(f"{name}-value", cost, partial(value_loss, advantage, clip))
        return replace(terms, penalties=(*terms.penalties, penalty))

    needs = Needs(modules={VALUE: value_head})
    return Control(name=name, needs=needs, sets=frozenset({"credit"}), credit=credit, shape=shape)


def value_head(width: int) -> nn.Module:
    """Return a linear head `[s, width]` → `[s]` that says 0 at first, so that the first advantage is the return."""
    linear = nn.Linear(width, 1)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Flatten(0))


def value_advantage(batch: Batch, gamma: float, lam: float) -> Slots:
    """Return the advantage of each slot before it is standardised."""
    return gae(final_reward(batch), batch.extras[VALUE], batch.path, gamma, lam)


def value_loss(
    advantage: Callable[[Batch], Slots], clip: float, current: Current, batch: Batch, terms: Terms
) -> Slots:
    """Return twice each slot's loss: the greater squared error of its value and of one within `clip` of the old."""
    value, old = current.extras[VALUE], batch.extras[VALUE]
    returns, held = old + advantage(batch), old + (value - old).clamp(-clip, clip)
    return torch.maximum((value - returns).square(), (held - returns).square())
