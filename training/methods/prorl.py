"""ProRL (arXiv 2505.24864): the reference becomes the policy now and then, and the optimizer begins anew.

Knob: KL. A penalty to a reference that stays behind ends learning; one that follows bounds each stretch alone.

    every `every` steps, and where the KL to the reference exceeds `spike`: reference ← policy, moments ← 0

Defaults: every 500, spike inf; its recipe has clip 0.2 / 0.4 and 0.0001·k3: recalled from the paper's text.
Evidence: C. That both are reset when validation stalls or the KL spikes is the paper's; its triggers could not be
established.
Deviations: validation is not looked at. Name it behind a method with a KL, such as grpo:kl_coef=0.0001.
"""

from math import inf
from typing import Annotated

from ..control import Control, Needs, Request, Requests, State, Stats
from ..parameters import Count, Range, checked

RESET = Requests({Request.RESET_REFERENCE, Request.RESET_OPTIMIZER})


@checked
def prorl(*, every: Count = 500, spike: Annotated[float, Range(0, above=True, unbounded=True)] = inf) -> Control:
    """Return the resets; `every` is in training steps, `spike` in nats a token."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "update" or not stats.last:
            return state, Requests()
        due = (stats.step + 1) % every == 0 or stats.kl > spike
        return state, RESET if due else Requests()

    return Control(name="prorl", needs=Needs(logp_ref=spike < inf), observe=observe)
