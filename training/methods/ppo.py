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

from dataclasses import replace
from functools import partial
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..columns import Batch, Current, Now, Penalty, Terms
from ..control import Control, Needs, Sets, State
from ..credit import earned, final_reward, gae, whiten
from ..objective import dual_clip
from ..parameters import Bound, Limit, NonNegative, Share, checked

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
    surrogate = dual_clip(limit)

    def credit(batch: Batch, state: State) -> Float[Tensor, "s"]:
        return whiten(value_advantage(batch, gamma, lam), earned(batch))

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        mean = torch.ones_like(terms.advantage) / max(batch.n_slots, 1)
        coef = torch.where(earned(batch), 0.5 * value_coef * mean, 0.0)
        penalty = Penalty("ppo-value", coef, partial(value_loss, gamma, lam, value_clip))
        terms = replace(terms, penalties=(*terms.penalties, penalty))
        return terms if limit == inf else replace(terms, surrogate=surrogate)

    sets: set[Sets] = {"credit"} if limit == inf else {"credit", "surrogate"}
    needs = Needs(modules={VALUE: value_head})
    return Control(name="ppo", needs=needs, sets=frozenset(sets), credit=credit, shape=shape)


def value_head(width: int) -> nn.Module:
    """Return a linear head `[s, width]` → `[s]` that says 0 at first, so that the first advantage is the return."""
    linear = nn.Linear(width, 1)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Flatten(0))


def value_advantage(batch: Batch, gamma: float, lam: float) -> Float[Tensor, "s"]:
    """Return the advantage of each slot before it is standardised."""
    return gae(final_reward(batch), batch.extras[VALUE], batch.path, gamma, lam)


def value_loss(
    gamma: float, lam: float, clip: float, current: Current, batch: Batch, terms: Terms
) -> Float[Tensor, "s"]:
    """Return twice each slot's value loss."""
    old = batch.extras[VALUE]
    return value_error(current.extras[VALUE], old, old + value_advantage(batch, gamma, lam), clip)


def value_error(
    value: Float[Tensor, "s"], old: Float[Tensor, "s"], returns: Float[Tensor, "s"], clip: float
) -> Float[Tensor, "s"]:
    """Return the greater of the squared errors of `value` and of `value` held within `clip` of the old one."""
    held = old + (value - old).clamp(-clip, clip)
    return torch.maximum((value - returns).square(), (held - returns).square())
