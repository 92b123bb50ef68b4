"""Turn floor (ours): a floor under the entropy of turns, let go where returns earn the loss or success falls.

Knob: advantage, or objective. What pays only once mastered is dropped before that, unless the turn that chooses it
stays open; later turns must be free to become certain. Units are those of advantages of std 1. By `axis` the rollout
has one controller (t: all its turns), or each turn index, or each phase; a world made to tell these apart did not.

    S = EMA(success);   S0, H0_t: means over the first `warm` steps;   H_t: of turn t, see `of`
    target_t = keep·H0_t·rel(k)·min(1, (1 - S) / (1 - S0))^power       0 where S < guard·S0
    u_t = clip(ln(target_t / H_t), -1, 1)                              rel: 1 up to `hold` of the run, then down to 0
    ln β_t ← clip(ln β_t + rate·u_t, ln least, ln most)                from `first`
    B_t = min(β_t·exp(kp·u_t), most)·(1 - max(r_t, 0))^earn            0 where β_t is `least`
    r_t: correlation of ℓ, the turn's log-probability, with its advantage, over all turns t
    act "surprise": A ← A - B_t·c,   c = clip(ℓ - mean of ℓ over the paid turns t of its group, ±5), 0 where not paid
    act "bonus": entropy_coef ← entropy_coef + B_t on paid turns' tokens of at least the mean entropy of turns t

-c·∇ℓ is REINFORCE's gradient of a turn's entropy. Paid are, by `pay`, "living" turns, which led on or earned and were
not invalid; "valid" ones, which were not called invalid; or "all". B_t·rms(c) is at most `most`: a limit on the
measured ratio of gradients, as both terms scale the same ∇ℓ. H_t is, by `of`, the mean entropy of turn t's "tokens", or
its action_entropy ("actions"), choice_entropy ("choices"), decision_entropy ("decisions") or "surprise" in this step's
rollout. With "choices" ℓ is the logarithm of the choice's share among its peers, so what texts say is left alone.

Defaults: those that solved a late bloomer with a small language model (first 0.3, least 0.02, earn 2); ours.
Evidence: ours alone, two worlds and a dozen seeds; the form is that of SAC's temperature (arXiv 1812.05905, Sec. 5).
Deviations: no paper to deviate from. Axis: rows; a turn that paths share counts once for each.
"""

from math import isfinite
from typing import Literal

from ...control.entropy_floor import Axis, Floor, Of, Pay, added, measured, names, parts_of
from ...control.parameters import Count, NonNegative, Positive, Share, checked, require
from ...loss.credit import earned
from ..base import Batch, Control, Needs, Now, Requests, State, Stats, Terms, replace


@checked
def turn_floor(
    *,
    keep: NonNegative = 1.0,
    rate: NonNegative = 0.3,
    kp: NonNegative = 1.0,
    first: Positive = 0.3,
    least: Positive = 0.02,
    most: Positive = 1.0,
    warm: Count = 3,
    hold: Share = 0.8,
    power: NonNegative = 1.0,
    earn: NonNegative = 2.0,
    guard: Share = 0.5,
    ema: Share = 0.9,
    act: Literal["surprise", "bonus"] = "surprise",
    axis: Axis = "rollout",
    pay: Pay = "living",
    of: Of = "tokens",
    steps: Count = 150,
) -> Control:
    """Return the floor, to be named behind what sets the advantage; `keep` 0 changes nothing.

    `axis` says what has a controller: each turn index, each phase of turns, or the rollout. `steps`: of the run.
    State: steps seen, S, S0, and by controller the sum and count of its first entropies (nats), ln β and u.
    """
    require(
        of == "tokens" or axis != "phase", "turn-floor", "of", of, "tokens where the axis is phase"
    )
    require(
        least <= first <= most,
        "turn-floor",
        "first",
        first,
        f"from least, {least:g}, to most, {most:g}",
    )
    held = Floor(rate=rate, kp=kp, first=first, least=least, most=most, warm=warm)

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout":
            return state, Requests()
        seen, now = state["seen"], stats.success if isfinite(stats.success) else state["success"]
        success = ema * state["success"] + (1 - ema) * now if seen else now
        base = (state["base"] * seen + now) / (seen + 1) if seen < warm else state["base"]
        left = max(1 - stats.step / max(steps - 1, 1), 0.0)
        wanted = (
            keep
            * min(left / max(1 - hold, 1e-6), 1.0)
            * min((1 - success) / max(1 - base, 1e-6), 1.0) ** power
        )
        wanted *= seen < warm or success >= guard * base
        found = measured(axis, of, stats)
        own = {
            name: held.step(state["own"].get(name), value, wanted) for name, value in found.items()
        }
        return {
            "seen": seen + 1,
            "success": success,
            "base": base,
            "own": {**state["own"], **own},
        }, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned, parts = earned(batch), parts_of(axis, pay, of, batch, terms.advantage)
        push = parts.logp.new_tensor(
            [held.strength(state["own"].get(name)) for name in names(axis, batch)]
        )
        push = (keep > 0) * push * (1 - parts.correlation(len(push)).clamp(min=0)) ** earn
        if act == "surprise":
            return replace(
                terms, advantage=added(terms.advantage, learned, -parts.surprise(push, most))
            )
        bonus = parts.bonus(push, batch.entropy[learned])
        return replace(terms, entropy_coef=added(terms.entropy_coef, learned, bonus))

    start, needs = (
        {"seen": 0, "success": 0.0, "base": 0.0, "own": {}},
        Needs(entropy_grad=act == "bonus" and keep > 0),
    )
    return Control(name="turn-floor", needs=needs, init=start.copy, observe=observe, shape=shape)
