"""What the floor of a turn's entropy rests on: its controller, and the log-probability of turns, or of their phases.

A likely turn is not surprising; to make what was drawn less likely by how likely it was raises the entropy of turns.
A step of the controller is a pure function of its JSON state: it multiplies what keeps a number above a floor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log, nan
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...agents.trajectory import PHASES
from ..data.batch import Batch
from ..loss.aggregation import mean_by, sum_by
from ..loss.credit import earned, living, possible
from .control import Stats

Axis = Literal["turn", "phase", "rollout"]
Pay = Literal["living", "valid", "all"]
Of = Literal["tokens", "actions", "choices", "decisions", "surprise"]
NAMES = {of: f"{of.removesuffix('s')}_entropy" for of in ("actions", "choices", "decisions")} | {
    "surprise": "surprise"
}
LIMIT = 5.0  # nats that one turn is paid for at most
Own = Mapping[
    str, float
]  # sum and count of the first values, ln β ("log") and the last relative error


@dataclass(frozen=True)
class Floor:
    """The gains: β starts at `first`, and answers a relative error of e-fold by `rate` in its logarithm each step."""

    rate: float
    kp: float  # what the error itself adds to ln β
    first: float
    least: float  # here the floor lets go
    most: float
    warm: int  # steps whose mean the target is a share of

    def step(self, own: Own | None, value: float, wanted: float) -> Own:
        """Return the state after `value` was measured; `wanted` is the target's share of the first values' mean."""
        own = own or {"sum": 0.0, "count": 0, "log": log(self.first), "error": 0.0}
        if not isfinite(value):
            return {**own, "error": 0.0}
        if own["count"] < self.warm:
            return {**own, "sum": own["sum"] + value, "count": own["count"] + 1}
        target = wanted * own["sum"] / own["count"]
        error = max(-1.0, min(log(max(target, 1e-9) / max(value, 1e-9)), 1.0))
        moved = max(log(self.least), min(own["log"] + self.rate * error, log(self.most)))
        return {**own, "log": moved, "error": error}

    def strength(self, own: Own | None) -> float:
        """Return what the controller puts out, 0 to `most`; 0 before its target is known."""
        if not own or own["count"] < self.warm or own["log"] <= log(self.least):
            return 0.0
        return min(exp(own["log"] + self.kp * own["error"]), self.most)


@dataclass(frozen=True, eq=False)
class Parts:
    """What controllers rule, on paths that earned a score: their turns, or the phases of these. Float64."""

    at: Int[Tensor, "m"]  # the part of each slot
    label: Int[Tensor, "n"]  # the controller of each part
    peers: Int[Tensor, "n"]  # equal where parts are compared: the same turn and phase of a group
    logp: Float[
        Tensor, "n"
    ]  # nats, of all its tokens; of its choice, by its share among peers, where those are held
    advantage: Float[Tensor, "n"]  # mean of its tokens
    paid: Bool[Tensor, "n"]

    def correlation(self, n: int) -> Float[Tensor, "k"]:
        """Return by controller the correlation of log-probability and advantage; 0 where one of them does not vary."""
        x, y = (
            value - mean_by(self.label, value)[self.label] for value in (self.logp, self.advantage)
        )
        xy, xx, yy = (sum_by(self.label, product, n) for product in (x * y, x * x, y * y))
        return (xy / (xx * yy).sqrt().clamp(min=1e-6)).clamp(-1, 1)

    def surprise(self, push: Float[Tensor, "k"], most: float) -> Float[Tensor, "m"]:
        """Return of each slot what its part is likelier than the paid ones of its group, times its controller's `push`.

        0 where a part is not paid. `push` is lowered where the rms of what its parts get would be above `most`.
        """
        size, paid = len(self.peers), self.paid.double()
        mean = sum_by(self.peers, self.logp * paid, size) / sum_by(self.peers, paid, size).clamp(
            min=1
        )
        excess = (self.logp - mean[self.peers]).clamp(-LIMIT, LIMIT) * paid
        square, count = (
            sum_by(self.label, values, len(push)) for values in (excess.square(), paid)
        )
        return (
            torch.minimum(push, most / (square / count.clamp(min=1)).sqrt())[self.label] * excess
        )[self.at]

    def bonus(self, push: Float[Tensor, "k"], entropy: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
        """Return `push` on slots of paid parts whose entropy is at least the mean of their controller's."""
        label = self.label[self.at]
        return push[label] * (entropy >= mean_by(label, entropy)[label]) * self.paid[self.at]


def added(
    column: Float[Tensor, "s"], where: Bool[Tensor, "s"], change: Float[Tensor, "m"]
) -> Float[Tensor, "s"]:
    """Return a column with `change` added to the slots that `where` names."""
    return column + torch.zeros_like(column).masked_scatter(where, change.to(column.dtype))


def measured(axis: Axis, of: Of, stats: Stats) -> Mapping[str, float]:
    """Return what each controller measures, nats; one without a number in this step is left out."""
    if axis == "phase":
        return stats.entropy_phases
    if of == "tokens":
        turns = {str(turn): value for turn, value in enumerate(stats.entropy_turns)}
        return turns if axis == "turn" else {"rollout": stats.entropy}
    name = NAMES[of]
    if axis == "rollout":
        return {"rollout": stats.extras.get(name, nan)}
    ends = ((key.partition("/"), value) for key, value in stats.extras.items())
    return {turn: value for (what, _, turn), value in ends if what == name and turn}


def names(axis: Axis, batch: Batch) -> Sequence[str]:
    """Return the names of the controllers, in the order of their labels."""
    turns = [str(turn) for turn in range(int(batch.turns.turn.max()) + 1)]
    return {"turn": turns, "phase": PHASES, "rollout": ("rollout",)}[axis]


def parts_of(axis: Axis, pay: Pay, of: Of, batch: Batch, advantage: Float[Tensor, "s"]) -> Parts:
    """Return the parts of a batch."""
    learned, turns = earned(batch), batch.turns
    split = batch.phase if axis == "phase" else torch.zeros_like(batch.row)
    parts, at = torch.unique((batch.row * len(PHASES) + split)[learned], return_inverse=True)
    row, phase = parts // len(PHASES), parts % len(PHASES)
    of_turn = turns.group[row] * (int(turns.turn.max()) + 1) + turns.turn[row]
    _, peers = torch.unique(of_turn * len(PHASES) + phase, return_inverse=True)
    paid = {"living": living(turns), "valid": possible(turns), "all": turns.rewarded}[pay]
    logp = sum_by(at, batch.logp_old[learned].double(), len(row))
    if of == "choices" and turns.choice is not None:
        _, same = torch.unique(
            peers * (int(turns.choice.max()) + 1) + turns.choice[row], return_inverse=True
        )
        logp = (torch.bincount(same)[same].double() / torch.bincount(peers)[peers]).log()
    return Parts(
        at=at,
        label={"turn": turns.turn[row], "phase": phase, "rollout": torch.zeros_like(row)}[axis],
        peers=peers,
        logp=logp,
        advantage=mean_by(at, advantage[learned]),
        paid=paid[row],
    )
