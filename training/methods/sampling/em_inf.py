"""Adaptive temperature (EM-INF, arXiv 2505.15134): tokens are drawn at the temperature that leaves little doubt.

Knob: sampling. Entropy is lowered where tokens are drawn instead of where they are learned.

    T of a token: bisection in [0.01, 1] until |H(z/T) - target| < 0.1;   target = max(1e-6, keep·H(z))

Defaults: keep 0.2: released code.
Evidence: A, read in released code (shivamag125/EM_PT).
Deviations: a rollout is drawn at one temperature, the mean of T over the tokens of the rollout before; the code finds T
for each token. Its other form, Adam on the logits of each token, is not here. The first rollout is drawn as it was.
Off: keep 1.
"""

from functools import partial
from math import isfinite

import torch

from ....agents.engine import Sampling
from ...control.parameters import Share, checked
from ..base import (
    Before,
    Control,
    Ids,
    Logits,
    Needs,
    Requests,
    Sets,
    State,
    Stats,
    Values,
    replace,
)

COLUMN = "em-inf"
LOW, CLOSE, TIMES = 0.01, 0.1, 100


@checked
def em_inf(*, keep: Share = 0.2) -> Control:
    """Return the temperature. State: that of the next rollout."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        temperature = stats.extras.get(f"extras/{COLUMN}", 1.0)
        known = stats.phase == "rollout" and isfinite(temperature) and keep < 1
        return ({"temperature": temperature} if known else state), Requests()

    def sample(sampling: Sampling, state: State) -> Sampling:
        return replace(sampling, temperature=state["temperature"]) if keep < 1 else sampling

    needs = Needs(functionals={COLUMN: partial(cooled, keep)} if keep < 1 else {})
    start, sets = {"temperature": 1.0}, frozenset[Sets]({"temperature"})
    return Control(
        name="em-inf", needs=needs, sets=sets, init=start.copy, sample=sample, observe=observe
    )


@torch.no_grad()
def cooled(keep: float, logits: Logits, token: Ids, before: Before) -> Values:
    """Return T of each token."""
    if before is not None:  # that of the update's start
        return before
    low, high = torch.full_like(logits[:, 0], LOW), torch.ones_like(logits[:, 0])
    target = (keep * entropy(logits, high)).clamp(min=1e-6)
    temperature = (low + high) / 2
    for _ in range(TIMES):
        away = entropy(logits, temperature) - target
        if not (far := away.abs() >= CLOSE).any():
            break
        low = torch.where(far & (away < 0), temperature, low)
        high = torch.where(far & (away > 0), temperature, high)
        temperature = torch.where(far, (low + high) / 2, temperature)
    return temperature


def entropy(logits: Logits, temperature: Values) -> Values:
    """Return the entropy (nats) at each row's temperature."""
    logp = (logits / temperature[:, None]).log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)
