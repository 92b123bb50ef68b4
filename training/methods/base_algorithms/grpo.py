"""Group Relative Policy Optimization (Shao et al., arXiv 2402.03300).

Knob: advantage. A path is judged against the other paths of its group instead of by a value network.

    A_i = (s_i - mean_g s) / (std_g s + eps)    on every token of path i, in PPO's clipped term

Defaults: unbiased std (ddof 1) and eps 1e-6 as verl; clip 0.2 / 0.2 (PPO); token mean (DAPO and verl); no KL.
Evidence: A, read in released code (verl, TRL).
Deviations: the paper averages by path ("seq-mean-token-mean") and adds 0.04·k3; both are parameters here. A group of
one keeps its raw score, over 1 + eps, as in verl. Paths that an infrastructure failure ended take no part and get 0.
"""

from functools import partial
from typing import Annotated

from ...control.parameters import Bound, Count, NonNegative, Positive, Range, checked
from ...loss.aggregation import Aggregation, scale
from ...loss.credit import Normalize, by_path, group_advantage
from ...loss.objective import CLIP
from ...loss.surrogates import hold
from ..base import Batch, Control, Needs, Now, Sets, Slots, State, Terms, replace


@checked
def grpo(
    *,
    normalize: Normalize = "std",
    ddof: Annotated[int, Range(0, 1)] = 1,
    eps: Positive = 1e-6,
    clip_low: Bound = CLIP,
    clip_high: Bound = CLIP,
    kl_coef: NonNegative = 0.0,
    aggregation: Aggregation = "token-mean",
    size: Count = 1,
) -> Control:
    """Return GRPO; `size` (tokens) is the divisor of the *-norm aggregations.

    It only claims to set clip and aggregation where they differ from the defaults, so that other methods may set them.
    """
    sets: set[Sets] = {"credit"}
    if (clip_low, clip_high) != (CLIP, CLIP):
        sets.add("clip")
    if aggregation != "token-mean":
        sets.add("aggregation")

    def credit(batch: Batch, state: State) -> Slots:
        return by_path(partial(group_advantage, normalize=normalize, ddof=ddof, eps=eps), batch)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        if "clip" in sets:
            terms = hold(terms, clip_low, clip_high)
        return replace(
            terms,
            kl_coef=terms.kl_coef + kl_coef,
            scale=terms.scale * scale(aggregation, batch, size),
        )

    return Control(
        name="grpo",
        needs=Needs(logp_ref=kl_coef > 0),
        sets=frozenset(sets),
        credit=credit,
        shape=shape,
    )
