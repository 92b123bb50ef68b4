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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log, nan
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...agents.trajectory import PHASES
from ..credit import earned, living, mean_by, possible, sum_by
from ..parameters import Count, NonNegative, Positive, Share, checked, require
from .base import Batch, Control, Needs, Now, Requests, State, Stats, Terms, replace

Axis = Literal["turn", "phase", "rollout"]
Pay = Literal["living", "valid", "all"]
Of = Literal["tokens", "actions", "choices", "decisions", "surprise"]
NAMES = {of: f"{of.removesuffix('s')}_entropy" for of in ("actions", "choices", "decisions")} | {"surprise": "surprise"}
LIMIT = 5.0  # nats that one turn is paid for at most
Own = Mapping[str, float]  # sum and count of the first values, ln β ("log") and the last relative error


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
    require(of == "tokens" or axis != "phase", "turn-floor", "of", of, "tokens where the axis is phase")
    require(least <= first <= most, "turn-floor", "first", first, f"from least, {least:g}, to most, {most:g}")
    held = Floor(rate=rate, kp=kp, first=first, least=least, most=most, warm=warm)

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout":
            return state, Requests()
        seen, now = state["seen"], stats.success if isfinite(stats.success) else state["success"]
        success = ema * state["success"] + (1 - ema) * now if seen else now
        base = (state["base"] * seen + now) / (seen + 1) if seen < warm else state["base"]
        left = max(1 - stats.step / max(steps - 1, 1), 0.0)
        wanted = keep * min(left / max(1 - hold, 1e-6), 1.0) * min((1 - success) / max(1 - base, 1e-6), 1.0) ** power
        wanted *= seen < warm or success >= guard * base
        found = measured(axis, of, stats)
        own = {name: held.step(state["own"].get(name), value, wanted) for name, value in found.items()}
        return {"seen": seen + 1, "success": success, "base": base, "own": {**state["own"], **own}}, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned, parts = earned(batch), parts_of(axis, pay, of, batch, terms.advantage)
        push = parts.logp.new_tensor([held.strength(state["own"].get(name)) for name in names(axis, batch)])
        push = (keep > 0) * push * (1 - parts.correlation(len(push)).clamp(min=0)) ** earn
        if act == "surprise":
            return replace(terms, advantage=added(terms.advantage, learned, -parts.surprise(push, most)))
        bonus = parts.bonus(push, batch.entropy[learned])
        return replace(terms, entropy_coef=added(terms.entropy_coef, learned, bonus))

    start, needs = {"seen": 0, "success": 0.0, "base": 0.0, "own": {}}, Needs(entropy_grad=act == "bonus" and keep > 0)
    return Control(name="turn-floor", needs=needs, init=start.copy, observe=observe, shape=shape)


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
    logp: Float[Tensor, "n"]  # nats, of all its tokens; of its choice, by its share among peers, where those are held
    advantage: Float[Tensor, "n"]  # mean of its tokens
    paid: Bool[Tensor, "n"]

    def correlation(self, n: int) -> Float[Tensor, "k"]:
        """Return by controller the correlation of log-probability and advantage; 0 where one of them does not vary."""
        x, y = (value - mean_by(self.label, value)[self.label] for value in (self.logp, self.advantage))
        xy, xx, yy = (sum_by(self.label, product, n) for product in (x * y, x * x, y * y))
        return (xy / (xx * yy).sqrt().clamp(min=1e-6)).clamp(-1, 1)

    def surprise(self, push: Float[Tensor, "k"], most: float) -> Float[Tensor, "m"]:
        """Return of each slot what its part is likelier than the paid ones of its group, times its controller's `push`.

        0 where a part is not paid. `push` is lowered where the rms of what its parts get would be above `most`.
        """
        size, paid = len(self.peers), self.paid.double()
        mean = sum_by(self.peers, self.logp * paid, size) / sum_by(self.peers, paid, size).clamp(min=1)
        excess = (self.logp - mean[self.peers]).clamp(-LIMIT, LIMIT) * paid
        square, count = (sum_by(self.label, values, len(push)) for values in (excess.square(), paid))
        return (torch.minimum(push, most / (square / count.clamp(min=1)).sqrt())[self.label] * excess)[self.at]

    def bonus(self, push: Float[Tensor, "k"], entropy: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
        """Return `push` on slots of paid parts whose entropy is at least the mean of their controller's."""
        label = self.label[self.at]
        return push[label] * (entropy >= mean_by(label, entropy)[label]) * self.paid[self.at]


def added(column: Float[Tensor, "s"], where: Bool[Tensor, "s"], change: Float[Tensor, "m"]) -> Float[Tensor, "s"]:
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
        _, same = torch.unique(peers * (int(turns.choice.max()) + 1) + turns.choice[row], return_inverse=True)
        logp = (torch.bincount(same)[same].double() / torch.bincount(peers)[peers]).log()
    return Parts(
        at=at,
        label={"turn": turns.turn[row], "phase": phase, "rollout": torch.zeros_like(row)}[axis],
        peers=peers,
        logp=logp,
        advantage=mean_by(at, advantage[learned]),
        paid=paid[row],
    )
