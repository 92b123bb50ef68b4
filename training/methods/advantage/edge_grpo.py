"""EDGE-GRPO (arXiv 2507.21848): an advantage counts more the more certain its path was.

Knob: advantage. Certain and right is strengthened most, certain and wrong weakened most.

    A_i ← A_i / (H̄_i / mean H̄), the quotient held in [least, most]

Defaults: least 0.1, most 10: an unused branch of the released code; its own quotient has no bounds.
Evidence: A, read in released code (ZhangXJ199/EDGE-GRPO, `grpo_aha_trainer.py`).
Deviations: the code's means count padding, and its own mean entropy carries a gradient; here means are over sampled
tokens and detached. Its guided correction of wrong answers, which needs hints, is not here. Name it behind grpo.
Off: least and most 1.
"""

from ...control.parameters import checked
from ...loss.credit import Paths
from ..base import Batch, Ceiling, Control, Now, Part, State, Terms, replace


@checked
def edge_grpo(*, least: Part = 0.1, most: Ceiling = 10.0) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths = Paths.of(batch)
        mean = paths.mean(batch.entropy)
        quotient = (mean / mean.mean().clamp(min=1e-12)).clamp(least, most)
        return replace(
            terms, advantage=terms.advantage / paths.slots(quotient, terms.advantage, 1.0)
        )

    return Control(name="edge-grpo", shape=shape)
