"""Clipped importance sampling weights (CISPO, MiniMax-M1, arXiv 2506.13585).

Knob: surrogate. The ratio is clipped as a weight without gradient, so that no token loses its gradient by the clip.

    maximise sg(clip(r, lo, hi))·A·logp

Defaults: lo 0, as in the paper, which has no lower bound in effect; hi 1.2 is verl's, as the paper's is not published.
Evidence: A, read in released code (verl, TRL); B for the paper's bounds.
Deviations: it sets no credit, so name it with grpo. lo and hi bound the ratio itself. The paper's and verl's settings
are distances from 1: lo = 1 - ε_low, hi = 1 + ε_high (verl: 0.8 and 1.2). TRL's epsilon_high is the bound: lo 0, hi 5.
The value is no objective: only its gradient has a meaning. The run's clip fractions count the ratios out of bounds on
the side where PPO would stop the gradient; here it goes on.
Axis: slots; a token that paths share has a term for each of them.
"""

from ...control.parameters import Share, checked
from ...loss.surrogates import hold, weight_clip
from ..base import Batch, Ceiling, Control, Now, State, Terms, replace


@checked
def cispo(*, lo: Share = 0.0, hi: Ceiling = 1.2) -> Control:
    """Return CISPO's policy term with weights in [lo, hi]."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(hold(terms, 1 - lo, hi - 1), surrogate=weight_clip)

    return Control(name="cispo", sets=frozenset({"clip", "surrogate"}), shape=shape)
