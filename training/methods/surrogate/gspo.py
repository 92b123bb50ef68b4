"""Group Sequence Policy Optimization (GSPO, Zheng et al., arXiv 2507.18071).

Knob: surrogate. The ratio is that of the whole path, brought to the length of one token, and so is its clip.

    s_i = exp( mean_t (logp - logp_old)_t );   min(s_i·A, clip(s_i, 1 - clip_low, 1 + clip_high)·A)
    on every token of path i, with that token's own gradient; always averaged by path ("seq-mean-token-mean")

Defaults: clip 3e-4 / 4e-4 (paper): s stays far closer to 1 than a token's ratio, 0.2 would hold nothing.
Evidence: A, read in released code (verl).
Deviations: it sets no credit, so name it with grpo. log s is held below 10, as in verl. A path without a sampled token
is not counted. The run's clip fractions are still those of the tokens' own ratios.
Axis: slots of a path, also those of tokens that other paths share.
"""

from ...control.parameters import Bound, checked
from ...loss.aggregation import scale
from ...loss.surrogates import hold, sequence_clip
from ..base import Batch, Control, Now, State, Terms, replace


@checked
def gspo(*, clip_low: Bound = 3e-4, clip_high: Bound = 4e-4) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        mean = scale("seq-mean-token-mean", batch)
        return replace(
            hold(terms, clip_low, clip_high), surrogate=sequence_clip, scale=terms.scale * mean
        )

    return Control(name="gspo", sets=frozenset({"clip", "surrogate", "aggregation"}), shape=shape)
