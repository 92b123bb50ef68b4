"""AEnt (arXiv 2509.03493): a bonus on the entropy of likely tokens alone, its coefficient held in a band.

Knob: objective. Entropy over the whole vocabulary pays for tokens that nobody should say.

    H̃: entropy of the distribution without the ⌊V·drop⌋ least likely tokens;   L ← L - c·mean H̃
    c ← clip(c - eta·(min(0, H̃ - low) + max(0, H̃ - high) + pull·(c - first)), least, most), after `warm` steps

Defaults: drop 0.33, first 0.002, band 0.15 to 0.24 nats, eta 0.002, warm 30, c 0.0006 to 0.009: script for mathematics.
Evidence: A, read in released code (recipe `aent` in forks of verl; inclusionAI/AReaL has other values).
Deviations: H̃ is that of the policy at the start of the update.
Off: most 0.
"""

from functools import partial

from ...control.parameters import NonNegative, Share, checked, require
from ...data.batch import Penalty
from ..base import (
    Batch,
    Before,
    Control,
    Ids,
    Logits,
    Needs,
    Now,
    Requests,
    State,
    Stats,
    Terms,
    Values,
    replace,
)

CLAMPED = "aent"


@checked
def aent(
    *,
    drop: Share = 0.33,
    first: NonNegative = 0.002,
    low: NonNegative = 0.15,
    high: NonNegative = 0.24,
    eta: NonNegative = 0.002,
    pull: NonNegative = 0.0,
    warm: NonNegative = 30,
    least: NonNegative = 0.0006,
    most: NonNegative = 0.009,
) -> Control:
    """Return AEnt; coefficients are per nat, the band in nats. State: the coefficient."""
    require(low <= high, "aent", "high", high, f"low, which is {low}, or more")

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        entropy = stats.extras.get(f"extras/{CLAMPED}")
        if stats.phase != "update" or not stats.last or stats.step < warm or entropy is None:
            return state, Requests()
        c = state["coef"]
        error = min(0.0, entropy - low) + max(0.0, entropy - high) + pull * (c - first)
        return {"coef": min(max(c - eta * error, least), most)}, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        bonus = -min(state["coef"], most) * terms.scale / max(batch.n_slots, 1)
        penalty = Penalty(CLAMPED, bonus, lambda current, batch, terms: current.extras[CLAMPED])
        return replace(terms, penalties=(*terms.penalties, penalty)) if most else terms

    needs = Needs(functionals={CLAMPED: partial(clamped, drop)} if most else {})
    return Control(
        name="aent", needs=needs, init={"coef": first}.copy, observe=observe, shape=shape
    )


def clamped(drop: float, logits: Logits, token: Ids, before: Before) -> Values:
    """Return the entropy (nats) of the likely tokens; the others get no gradient."""
    kept = logits.topk(logits.shape[-1] - int(logits.shape[-1] * drop)).values.log_softmax(-1)
    return -(kept.exp() * kept).sum(-1)
