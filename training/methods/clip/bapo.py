"""BAPO (arXiv 2510.18927): clip bounds widen until what raises probabilities is not drowned by what lowers them.

Knob: clip. Bounds in units of the ratio, found anew for each optimizer step.

    P = Σ_{A≥0} min(r, hi)·A;   N = Σ_{A<0} max(r, lo)·|A|
    while the balance is below `target`: lo += step up to low_most, then hi += step up to high_most
    balance: P/(P + N) in the paper, P/N in the code

Defaults: lo 0.6 to 0.9, hi 1.2 to 3, target 0.5, step 0.05, limit 3: paper.
Evidence: A, read in released code (WooooDyy/BAPO, `policy_loss.py`).
Deviations: none. It sets no credit, so name it with grpo.
Note: N grows with lo, so raising lo never helps the balance; as published, lo ends at low_most whenever hi has to move.
Off: target 0, low 0.8, high 1.2 and limit inf.
"""

from ...control.parameters import Limit, NonNegative, Positive, Share, Variant, checked, require
from ...loss.credit import earned
from ...loss.kl import log_ratio
from ...loss.surrogates import dual_clip, hold
from ..base import Batch, Control, Factor, Needs, Now, State, Terms, Vector, replace


@checked
def bapo(
    *,
    low: Share = 0.6,
    low_most: Share = 0.9,
    high: Factor = 1.2,
    high_most: Factor = 3.0,
    target: NonNegative = 0.5,
    step: Positive = 0.05,
    limit: Limit = 3.0,
    variant: Variant = "paper",
) -> Control:
    """Return BAPO; bounds are ratios."""
    require(low <= low_most, "bapo", "low_most", low_most, f"low, which is {low}, or more")
    require(high <= high_most, "bapo", "high_most", high_most, f"high, which is {high}, or more")

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned = earned(batch)
        r = log_ratio(now.logp, batch.logp_old)[learned].exp()
        lo, hi = bounds(r, terms.advantage[learned])
        return replace(hold(terms, 1 - lo, hi - 1), surrogate=dual_clip(limit))

    def bounds(r: Vector, advantage: Vector) -> tuple[float, float]:
        lo, hi = low, high
        while balance(r, advantage, lo, hi) < target and lo < low_most:
            lo = min(lo + step, low_most)
        while balance(r, advantage, lo, hi) < target and hi < high_most:
            hi = min(hi + step, high_most)
        return lo, hi

    def balance(r: Vector, advantage: Vector, lo: float, hi: float) -> float:
        up = float((r.clamp(max=hi) * advantage.clamp(min=0)).sum())
        down = float((r.clamp(min=lo) * (-advantage).clamp(min=0)).sum())
        whole = down + up if variant == "paper" else down
        return up / whole if down > 0 and whole > 0 else float("inf")

    return Control(
        name="bapo", needs=Needs(now=True), sets=frozenset({"clip", "surrogate"}), shape=shape
    )
