"""A multiplicative controller that keeps a number above a floor; a step of it is a pure function of its JSON state."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log

Own = Mapping[str, float]  # sum and count of the first values, ln β ("log") and the last relative error


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
