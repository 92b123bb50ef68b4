"""What a run says of a step: a line of `metrics.jsonl`, and the same for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..agents.scores import Report
from ..agents.trajectory import Tree
from .alarms import Alarm, alarms, begun
from .boundary import to_line
from .control import Requests, Stats
from .learner import Update
from .packing import Packed
from .telemetry import counts


@dataclass(frozen=True)
class Record:
    """One line of `metrics.jsonl` (null where a number is not finite), and the validation that followed, if one did."""

    step: int
    metrics: dict[str, Any]
    valid: Report | None = None
    begun: tuple[Alarm, ...] = ()  # alarms that no earlier step of the run had raised

    @classmethod
    def after(
        cls, past: Sequence[Mapping[str, Any]], step: int, metrics: dict[str, Any], valid: Report | None
    ) -> Record:
        """Return the record of a step behind the lines `past`, with the alarms that they come to together."""
        if not metrics:
            return cls(step, {}, valid)
        found = alarms([*past, metrics])
        return cls(step, {**metrics, "alarms": [alarm.kind for alarm in found]}, valid, begun(found, past))

    def line(self) -> str:
        """Return the line."""
        found = {}
        if self.valid is not None:
            success = self.valid.success
            found = {"valid/success": success.value, "valid/low": success.low, "valid/high": success.high}
            found |= {"valid/tool_share": self.valid.tool_share, "valid/turns": self.valid.turns}
            found["valid/episodes"] = self.valid.episodes - self.valid.failed  # those that were scored
        return to_line({"step": self.step, **self.metrics, **found})


@dataclass(frozen=True)
class Learned:
    """What a step's rollout comes to: an update, the control state after it, and what the controls ask for."""

    update: Update
    measured: Stats
    control: str  # JSON text
    requests: Requests = frozenset()
    packed: Packed | None = None  # the rollout; None where the update was refused
    updates: int = 0  # optimizer steps taken
    replayed: int = 0  # paths of earlier steps that were learned from once more

    def line(self, grown: Sequence[Tree], refilled: int = 0) -> str:
        """Return the metrics of the step, but for its times and validation, as JSON text.

        `grown` are all trees of its rollouts, dropped ones included, `refilled` of them in place of dropped ones.
        """
        update, measured = self.update, self.measured
        return to_line(
            {
                "reward": measured.reward,
                "success": measured.success,
                "entropy": measured.entropy,
                **{f"entropy_turn/{turn}": value for turn, value in enumerate(measured.entropy_turns)},
                **{f"entropy_phase/{phase}": value for phase, value in measured.entropy_phases.items()},
                **measured.extras,
                **counts(grown),
                "refilled": refilled,
                "updates": self.updates,
                "replayed": self.replayed,
                "loss": update.loss,
                "grad_norm": update.grad_norm,
                "drift": update.drift,
                "idle_paths": update.idle,
                **update.means,
                "refused": update.refused,
            }
        )
