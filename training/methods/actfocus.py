"""ActFocus: gradient moved from what is thought to what is done (arXiv 2605.14558).

Knob: objective (token weight). Tokens of thought get less of the policy's gradient; those of a turn's action, its call
or answer, share theirs by how uncertain they are.

    w = thought                                           on tokens of thought
    w = n·softmax(E / tau) over the n action tokens of the turn, so their mean weight is 1
    energy "entropy": E = H;     energy "free": E = -logsumexp(logits)

Defaults: thought 0.5, tau 1, energy "entropy": ours; the paper's are not known.
Evidence: C. Only the idea is established; weights, energy and normalisation are a plausible reading, not the paper's.
Deviations: everything above may be one. E is that of the policy at the start of the update, without gradient; the
number of tokens that the loss is divided by stays. A turn without action has the weight `thought` throughout. What is
thought and what is action is `Batch.phase`. Logits are at temperature 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...agents.trajectory import PHASES
from ..columns import Batch, Now, Terms
from ..control import Control, Needs, State
from ..parameters import require

Energy = Literal["entropy", "free"]
THINK = PHASES.index("think")


def actfocus(*, thought: float = 0.5, tau: float = 1.0, energy: Energy = "entropy") -> Control:
    """Return ActFocus; `thought` 1 and `tau` inf change nothing. Raises ValueError on a parameter out of range."""
    require(0 <= thought <= 1, "actfocus", "thought", thought, "0 to 1")
    require(tau > 0, "actfocus", "tau", tau, "above 0 nats (inf shares evenly)")
    require(energy in ("entropy", "free"), "actfocus", "energy", energy, "entropy or free")

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        level = batch.entropy if energy == "entropy" else batch.extras["free-energy"]
        acting = batch.phase != THINK
        weight = torch.full_like(terms.weight, thought)
        weight = weight.masked_scatter(acting, focus(level[acting] / tau, batch.row[acting]).to(weight.dtype))
        return replace(terms, weight=terms.weight * weight)

    needs = Needs(functionals={"free-energy": free_energy}) if energy == "free" else Needs()
    return Control(name="actfocus", needs=needs, shape=shape)


def free_energy(logits: Float[Tensor, "c v"], token: Int[Tensor, "c"]) -> Float[Tensor, "c"]:
    """Return -logsumexp(logits): high where no token is likely before they are normalised."""
    return -torch.logsumexp(logits, -1)


def focus(level: Float[Tensor, "n"], turn: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Return the weights n·softmax(level) within each turn of n places; their mean is 1."""
    _, place = torch.unique(turn, return_inverse=True)
    count = torch.bincount(place)
    top = level.new_full(count.shape, -torch.inf).scatter_reduce(0, place, level, "amax")
    share = torch.exp(level - top[place])
    total = share.new_zeros(count.shape).index_add(0, place, share)
    return count[place] * share / total[place]
