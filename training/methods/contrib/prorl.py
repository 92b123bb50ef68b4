"""ProRL (arXiv 2505.24864): the reference becomes the policy now and then, and the optimizer begins anew.

Knob: KL. A penalty to a reference that stays behind ends learning; one that follows bounds each stretch alone.

    every `every` steps, where the KL to the reference exceeds `spike`, and where held-out success is `drop` below its
    best since the last time: reference ← policy, moments ← 0

Defaults: every 500, spike and drop inf; its recipe has clip 0.2 / 0.4 and 0.0001·k3: recalled from the paper's text.
Evidence: C. That both are reset when validation stalls or the KL spikes is the paper's; its triggers could not be
established.
Deviations: success is that of the newest validation. Name it behind a method with a KL, such as grpo:kl_coef=0.0001.
"""

from math import inf, isfinite

from ...control.parameters import Bound, Count, checked
from ..base import Control, Needs, Request, Requests, State, Stats, Width

RESET = Requests({Request.RESET_REFERENCE, Request.RESET_OPTIMIZER})


@checked
def prorl(*, every: Count = 500, spike: Width = inf, drop: Bound = inf) -> Control:
    """Return the resets; `every` is in training steps, `spike` in nats a token. State: the best success."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "update" or not stats.last:
            return state, Requests()
        now = stats.valid if isfinite(stats.valid) else state["best"]
        due = (stats.step + 1) % every == 0 or stats.kl > spike or now < state["best"] - drop
        return {"best": now if due else max(now, state["best"])}, RESET if due else Requests()

    return Control(
        name="prorl", needs=Needs(logp_ref=spike < inf), init={"best": 0.0}.copy, observe=observe
    )
