"""AEM (arXiv 2605.00425): the surprisal of a whole response rescales its advantage.

Knob: advantage. What the policy would hardly say moves it more where it is right, less where it is wrong.

    u_i: mean -logp of the path, standardised within its group;   A_i ← A_i·exp(±k·u_i), + where A > 0, - where A < 0

Defaults: k 0.25: ours.
Evidence: C. That response-level surprisal rescales advantages is the abstract's; the formula is ours.
Deviations: the surprisal is that of the policy which drew. Name it behind grpo.
Off: k 0.
"""

from ...control.parameters import NonNegative, checked
from ...loss.credit import Paths, standard
from ..base import Batch, Control, Now, State, Terms, replace


@checked
def aem(*, k: NonNegative = 0.25) -> Control:
    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        paths = Paths.of(batch)
        unlikely = paths.slots(standard(paths.mean(-batch.logp_old), paths.group), terms.advantage)
        return replace(
            terms, advantage=terms.advantage * (k * unlikely * terms.advantage.sign()).exp()
        )

    return Control(name="aem", shape=shape)
