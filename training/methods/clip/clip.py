"""Clip bounds: clip-higher (DAPO, arXiv 2503.14476), clip-lower and clip-tighter (arXiv 2511.05993), clip-free.

Knob: clip. Which side of the ratio holds a token decides what happens to entropy.

    the ratio is held in [1 - clip_low, 1 + clip_high]

Defaults: 0.2 / 0.28 (clip-higher), 0.28 / 0.2 (clip-lower), 0.12 / 0.2 (clip-tighter), 0.2 / inf (clip-free).
Evidence: B, text of arXiv 2511.05993; clip-higher A, in released code (verl). Of clip-free (Park et al., arXiv
2509.26114) only the direction is known: an upper bound lowers entropy, a lower one raises it.
Deviations: none. They set no credit, so name them with grpo.
Note: the first optimizer step on a rollout has ratio 1, so they need --updates 2 or more.
Off: 0.2 / 0.2.
"""

from math import inf

from ...control.parameters import Bound, checked
from ...loss.objective import CLIP
from ...loss.surrogates import hold
from ..base import Batch, Control, Now, State, Terms


@checked
def clip_higher(*, clip_low: Bound = CLIP, clip_high: Bound = 0.28) -> Control:
    """Return bounds with more room above."""
    return bounded("clip-higher", clip_low, clip_high)


@checked
def clip_lower(*, clip_low: Bound = 0.28, clip_high: Bound = CLIP) -> Control:
    """Return bounds with more room below."""
    return bounded("clip-lower", clip_low, clip_high)


@checked
def clip_tighter(*, clip_low: Bound = 0.12, clip_high: Bound = CLIP) -> Control:
    """Return bounds with less room below."""
    return bounded("clip-tighter", clip_low, clip_high)


@checked
def clip_free(*, clip_low: Bound = CLIP, clip_high: Bound = inf) -> Control:
    """Return bounds that hold nothing above."""
    return bounded("clip-free", clip_low, clip_high)


def bounded(name: str, low: float, high: float) -> Control:
    """Return a control that holds the ratio in [1 - low, 1 + high]."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return hold(terms, low, high)

    return Control(name=name, sets=frozenset({"clip"}), shape=shape)
