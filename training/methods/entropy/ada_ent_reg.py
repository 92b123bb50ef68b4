"""Adaptive entropy control (AEC, Skywork-OR1, arXiv 2505.22312): a bonus that is on only below a target.

Knob: objective. An integrator on the coefficient of the entropy bonus, and a gate.

    L ← L - c_k·1[e_k ≤ target]·mean H;     c_{k+1} = clip(c_k + delta if e_k < target else c_k - delta, 0, most)

Defaults: target 0.2 nats, delta 0.0001, most 0.005, c_0 = 0: released script.
Evidence: A, read in released code (SkyworkAI/Skywork-OR1, `EntController`).
Deviations: e is the code's estimate, -logp of the drawn tokens. As in the code, gate and coefficient of a step come
from the step before; the paper gates with the step's own e.
With `tasks` the target is that of the first policy (arXiv 2511.05993: over 1000 prompts); with more of them than
--prompts, learning has begun before it is known.
Off: most 0.
"""

from math import isfinite

from ...control.parameters import NonNegative, checked
from ..base import Batch, Control, Needs, Now, Requests, State, Stats, Terms, Whole, replace


@checked
def ada_ent_reg(
    *,
    target: NonNegative = 0.2,
    delta: NonNegative = 0.0001,
    most: NonNegative = 0.005,
    first: NonNegative = 0.0,
    tasks: Whole = 0,
) -> Control:
    """Return the controlled bonus; `target` in nats, coefficients per nat.

    With `tasks` the target is the mean entropy of the first `tasks` tasks instead. State: coefficient, gate, and sum
    and count of these.
    """

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout" or not isfinite(stats.entropy_sampled):
            return state, Requests()
        if state["count"] < tasks:
            new = len({key[:-1] for key in stats.scores})
            total = state["sum"] + new * stats.entropy_sampled
            return {**state, "sum": total, "count": state["count"] + new}, Requests()
        goal = state["sum"] / state["count"] if tasks else target
        used = state["next"] if state["open"] else 0.0
        change = delta if stats.entropy_sampled < goal else -delta
        following = min(max(state["next"] + change, 0.0), most)
        gate = bool(stats.entropy_sampled <= goal)
        return {**state, "used": used, "next": following, "open": gate}, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        return replace(terms, entropy_coef=terms.entropy_coef + min(state["used"], most))

    start, needs = (
        {"used": first, "next": first, "open": True, "sum": 0.0, "count": 0},
        Needs(entropy_grad=most > 0),
    )
    return Control(name="ada-ent-reg", needs=needs, init=start.copy, observe=observe, shape=shape)
