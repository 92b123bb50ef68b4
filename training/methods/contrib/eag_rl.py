"""EAG-RL (arXiv 2508.13579): the upper clip is wider for paths of higher entropy.

Knob: clip. Uncertain trajectories may move further.

    clip_high_i = clip_high·(1 + k·z_i), held in [least, most];   z_i: the path's mean entropy, standardised over paths

Defaults: clip_high 0.28, k 0.25, least 0.2, most 0.4: ours.
Evidence: C. The paper says that the upper clip follows the entropy of a trajectory, not by which formula.
Deviations: z is over all paths of the optimizer step that earned a score. It sets no credit, so name it with grpo.
Off: k 0 and clip_high 0.2.
"""

import torch

from ...control.parameters import Bound, NonNegative, checked, require
from ...loss.credit import Paths, standard
from ...loss.objective import CLIP
from ...loss.surrogates import hold
from ..base import Batch, Control, Now, State, Terms, replace


@checked
def eag_rl(
    *,
    clip_low: Bound = CLIP,
    clip_high: NonNegative = 0.28,
    k: NonNegative = 0.25,
    least: NonNegative = 0.2,
    most: NonNegative = 0.4,
) -> Control:
    require(
        least <= clip_high <= most,
        "eag-rl",
        "clip_high",
        clip_high,
        f"from least, {least:g}, to most, {most:g}",
    )

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths = Paths.of(batch)
        mean = paths.mean(batch.entropy)
        z = (
            standard(mean, torch.zeros_like(paths.group))
            if len(mean) > 1
            else torch.zeros_like(mean)
        )
        high = (clip_high * (1 + k * z)).clamp(least, most)
        held = hold(terms, clip_low, clip_high)
        return replace(held, clip_high=paths.slots(high, held.clip_high, clip_high))

    return Control(name="eag-rl", sets=frozenset({"clip"}), shape=shape)
