"""Decoupled clip and dynamic sampling (DAPO, Yu et al., arXiv 2503.14476).

Knob: clip, sampling and reward, on GRPO's advantage. Five parts, each switched off by a parameter of its own.

    clip-higher: the ratio is held in [1 - clip_low, 1 + clip_high], clip_high > clip_low          (Sec. 3.1)
    dynamic sampling: another task in place of one whose paths all have the same score             (Sec. 3.2)
    token mean over the whole batch, no KL                                                         (Sec. 3.3)
    s_i ← s_i + overlong·R, R = clip((longest - cache - |y|)/cache, -1, 0), |y| the path's tokens  (Sec. 3.4)
    dual clip: where A < 0 the term is not allowed below limit·A                                   (recipe)

Defaults: clip 0.2 / 0.28, longest 20480, cache 4096, overlong 1: paper; limit 10: released recipe (verl).
Evidence: A, read in released code (verl recipe/dapo).
Deviations: sampling compares the environment's scores, before R, and keeps a task of which one path alone earned a
score, as the code. A step asks a bounded number of times (`REFILLS`) and then learns from what there is; the code
raises. |y| are the sampled tokens of all turns of a path. Variant "code": R has no floor.
Off: clip_high 0.2; dynamic false; overlong 0; limit inf.
Axis: paths of a group; |y| and the loss count a token that paths share once for each of them.
"""

from collections.abc import Sequence
from math import inf

import torch

from ...control.parameters import Bound, Count, Limit, NonNegative, Variant, checked, require
from ...loss.objective import CLIP
from ...loss.surrogates import dual_clip
from ..base import Batch, Control, Now, Rows, Sets, State, Terms, Tree, Verdict, replace
from ..sampling.dynamic_sampling import tells
from .grpo import grpo


@checked
def dapo(
    *,
    clip_low: Bound = CLIP,
    clip_high: Bound = 0.28,
    limit: Limit = 10.0,
    dynamic: bool = True,
    longest: Count = 20480,
    cache: Count = 4096,
    overlong: NonNegative = 1.0,
    variant: Variant = "paper",
) -> Control:
    """Return DAPO with all its parts; `longest` and `cache` are in tokens."""
    require(cache <= longest, "dapo", "cache", cache, f"1 to {longest}, the longest path")
    base = grpo(clip_low=clip_low, clip_high=clip_high)
    surrogate = dual_clip(limit)

    def select(trees: Sequence[Tree], state: State) -> list[Verdict]:
        return [Verdict.KEEP if tells(tree) or not dynamic else Verdict.MORE for tree in trees]

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        terms = base.shape(terms, batch, now, state)
        return terms if limit == inf else replace(terms, surrogate=surrogate)

    def reward(batch: Batch, state: State) -> Rows:
        length = torch.bincount(batch.path, minlength=batch.n_paths)[batch.turns.path].to(
            batch.turns.score
        )
        floor = -1.0 if variant == "paper" else -inf
        return batch.turns.score + overlong * overlong_penalty(length, longest, cache, floor)

    sets = base.sets if limit == inf else base.sets | frozenset[Sets]({"surrogate"})
    return replace(base, name="dapo", sets=sets, select=select, reward=reward, shape=shape)


def overlong_penalty(length: Rows, longest: int, cache: int, floor: float) -> Rows:
    """Return R of paths of `length` tokens: 0 up to longest - cache, -1 at `longest`, and at least `floor` (Eq. 13)."""
    return ((longest - cache - length) / cache).clamp(floor, 0.0)
