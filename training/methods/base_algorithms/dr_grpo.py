"""GRPO done right (Dr. GRPO, Liu et al., arXiv 2503.20783).

Knob: advantage and aggregation. GRPO without the two divisions that bias it: by the group's std, which favours tasks
that are nearly always or never solved, and by the path's own length, which favours long wrong answers.

    A_i = s_i - mean_g s;   loss = 1/B · Σ_i Σ_t l_it / size,   B paths, also those without a sampled token

Defaults: size 1024 is ours: a constant only rescales the loss; take the most tokens that a path can have. Clip 0.2.
Evidence: A, read in released code (sail-sg/understand-r1-zero, TRL).
Deviations: none. It is the preset normalize "none" of `grpo` with the aggregation "seq-mean-token-sum-norm", counting
all paths. A group of one keeps its raw score.
Axis: paths of a group; a token that paths share has a term for each of them.
"""

from ...control.parameters import Bound, Count, NonNegative, checked
from ...loss.aggregation import scale
from ...loss.objective import CLIP
from ..base import Batch, Control, Now, State, Terms, replace
from .grpo import grpo


@checked
def dr_grpo(
    *,
    size: Count = 1024,
    clip_low: Bound = CLIP,
    clip_high: Bound = CLIP,
    kl_coef: NonNegative = 0.0,
) -> Control:
    """Return Dr. GRPO; `size` is in tokens, the rest as in `grpo`."""
    preset = grpo(normalize="none", clip_low=clip_low, clip_high=clip_high, kl_coef=kl_coef)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        terms = preset.shape(terms, batch, now, state)
        return replace(
            terms,
            scale=terms.scale * scale("seq-mean-token-sum-norm", batch, size, count_empty=True),
        )

    return replace(preset, name="dr-grpo", sets=preset.sets | {"aggregation"}, shape=shape)
