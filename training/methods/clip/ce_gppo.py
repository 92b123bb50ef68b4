"""CE-GPPO (arXiv 2509.20712): tokens past the clip keep a bounded gradient.

Knob: clip, surrogate. Clipped tokens of low probability decide where entropy goes: those held below keep it up.

    A < 0 and r < 1 - clip_low:   below·(1 - clip_low)·(r/sg r)·A
    A > 0 and r > 1 + clip_high:  above·(1 + clip_high)·(r/sg r)·A;   otherwise r·A;   where A < 0 at least limit·A

Defaults: below 0.75 (7B; 1.5B: 0.5), above 1, limit 10, clip 0.2 / 0.2: released scripts. 1 and 1 are GPPO.
Evidence: A, read in released code (Kwai-Klear/CE-GPPO, `core_algos`).
Deviations: none. It sets no credit, so name it with grpo.
"""

import torch

from ...control.parameters import Bound, Limit, NonNegative, checked
from ...loss.objective import CLIP
from ...loss.surrogates import hold, ratio
from ..base import Batch, Control, Current, Now, Slots, State, Terms, replace


@checked
def ce_gppo(
    *,
    below: NonNegative = 0.75,
    above: NonNegative = 1.0,
    clip_low: Bound = CLIP,
    clip_high: Bound = CLIP,
    limit: Limit = 10.0,
) -> Control:
    """Return CE-GPPO; `below` and `above` are β1 and β2."""

    def surrogate(current: Current, batch: Batch, terms: Terms) -> Slots:
        r, advantage = ratio(current, batch), terms.advantage
        low, high = 1 - terms.clip_low, 1 + terms.clip_high
        kept = torch.where((advantage < 0) & (r < low), below * low / r.detach(), 1.0)
        kept = torch.where((advantage > 0) & (r > high), above * high / r.detach(), kept)
        value = kept * r * advantage
        return torch.where(advantage < 0, torch.maximum(value, limit * advantage), value)

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(hold(terms, clip_low, clip_high), surrogate=surrogate)

    return Control(name="ce-gppo", sets=frozenset({"clip", "surrogate"}), shape=shape)
