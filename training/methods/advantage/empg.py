"""Entropy-Modulated Policy Gradients (EMPG, arXiv 2509.09265).

Knob: advantage. The gradient of a confident step is small and that of an uncertain one large and noisy; each step's
advantage is rescaled against that, and a step that leads to a confident one is paid for it. A step is a turn of a path.

    H_t = mean entropy of the step's tokens,   h_t = (H_t - min H) / (max H - min H + 1e-8)
    g_t = exp(-k·h_t) / mean exp(-k·h),   f_t = exp(-k_next·h_t)
    A_t ← A_t·g_t + zeta·f_{t+1},   f = 0 behind a path's last step;   then A ← A - mean A     (over all steps)

Defaults: k 1, k_next 1, zeta 0.1 (re-implementation of the paper's listing; ARLArena has zeta 0.05). The paper's own
table is not established.
Evidence: B, paper text through consistent notes and a re-implementation; there is no official code.
Deviations: steps without a sampled token and paths that earned no score take no part: the step behind such a one is the
next. Where tokens of a step differ in advantage, mean A is the mean of the steps' means. Groups of equal scores get an
advantage from bonus and mean. With `center` false the mean is not taken off.
Axis: rows. A step that paths share counts once for each.
"""

import torch

from ...control.parameters import NonNegative, checked
from ...loss.aggregation import mean_by
from ...loss.credit import steps
from ..base import Batch, Control, Now, State, Terms, Vector, replace

EPS = 1e-8


@checked
def empg(
    *, k: NonNegative = 1.0, k_next: NonNegative = 1.0, zeta: NonNegative = 0.1, center: bool = True
) -> Control:
    """Return EMPG, to be named behind what sets the advantage; `k` and `zeta` 0 without `center` change nothing."""

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned, rows, step = steps(batch)
        if not len(rows):
            return terms
        gain, clear = modulation(mean_by(step, batch.entropy[learned]), k, k_next)
        path = batch.turns.path[rows]
        bonus = torch.cat([zeta * clear[1:] * (path[1:] == path[:-1]), clear.new_zeros(1)])
        advantage = terms.advantage[learned] * gain[step] + bonus[step]
        if center:
            advantage = advantage - mean_by(step, advantage).mean()
        return replace(
            terms,
            advantage=terms.advantage.masked_scatter(learned, advantage.to(terms.advantage.dtype)),
        )

    return Control(name="empg", shape=shape)


def modulation(entropy: Vector, k: float, k_next: float) -> tuple[Vector, Vector]:
    """Return g, whose mean is 1, and f of steps of mean entropy `entropy` (nats)."""
    low, high = entropy.min(), entropy.max()
    scaled = (entropy - low) / (high - low + EPS)
    confidence = torch.exp(-k * scaled)
    return confidence / confidence.mean(), torch.exp(-k_next * scaled)
