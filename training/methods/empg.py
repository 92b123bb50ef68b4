"""Entropy-Modulated Policy Gradients (EMPG, arXiv 2509.09265).

Knob: advantage. The gradient of a confident step is small and that of an uncertain one large and noisy; each step's
advantage is rescaled against that, and a step that leads to a confident one is paid for it. A step is a turn of a path.

    H_t = mean entropy of the step's tokens,   h_t = (H_t - min H) / (max H - min H + 1e-8)
    g_t = exp(-k·h_t) / mean exp(-k·h),   f_t = exp(-k_next·h_t)
    A_t ← A_t·g_t + zeta·f_{t+1},   f = 0 behind a path's last step;   then A ← A - mean A     (over all steps)

Defaults: k 1, k_next 1, zeta 0.1 (re-implementation of the paper's listing; ARLArena has zeta 0.05). The paper's own
table is not established.
Evidence: B, paper text through consistent notes and a re-implementation; there is no official code.
Deviations: entropies are at temperature 1. Steps without a sampled token and paths that earned no score take no part:
the step behind such a one counts as the next. Where tokens of a step differ in advantage the mean is that of the step's
means. Groups of equal scores get an advantage from bonus and mean; to leave them out, filter before. With `center`
false the mean is not taken off.
Axis: rows. A step that paths share counts once for each.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..columns import Batch, Now, Terms
from ..control import Control, State
from ..credit import earned
from ..parameters import require

EPS = 1e-8


def empg(*, k: float = 1.0, k_next: float = 1.0, zeta: float = 0.1, center: bool = True) -> Control:
    """Return EMPG, to be put behind what sets the advantage; `k` and `zeta` 0 without `center` change nothing.

    Raises ValueError on a parameter out of range.
    """
    for name, value in (("k", k), ("k_next", k_next), ("zeta", zeta)):
        require(0 <= value < inf, "empg", name, value, "0 or more")

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
        return replace(terms, advantage=terms.advantage.masked_scatter(learned, advantage.to(terms.advantage.dtype)))

    return Control(name="empg", shape=shape)


def steps(batch: Batch) -> tuple[Bool[Tensor, "s"], Int[Tensor, "n"], Int[Tensor, "m"]]:
    """Return which slots lie on paths that earned a score, the rows that have such slots, and the place of each's row.

    Rows ascend, so the steps of a path lie in order, end to end.
    """
    learned = earned(batch)
    rows, step = torch.unique(batch.row[learned], return_inverse=True)
    return learned, rows, step


def mean_by(label: Int[Tensor, "m"], values: Float[Tensor, "m"]) -> Float[Tensor, "n"]:
    """Return the mean of `values` by label, in float64, where the mean of equal float32 values is that value."""
    count = torch.bincount(label)
    return values.new_zeros(len(count), dtype=torch.float64).index_add(0, label, values.double()) / count


def modulation(entropy: Float[Tensor, "n"], k: float, k_next: float) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Return g, whose mean is 1, and f of steps of mean entropy `entropy` (nats)."""
    low, high = entropy.min(), entropy.max()
    scaled = (entropy - low) / (high - low + EPS)
    confidence = torch.exp(-k * scaled)
    return confidence / confidence.mean(), torch.exp(-k_next * scaled)
