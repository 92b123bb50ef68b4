"""What a training step does with its rollout: statistics, gradient, optimizer steps, and the controls' new state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..agents.incidents import Incident
from ..agents.trajectory import Tree
from .control import Request, Requests, Stats
from .learner import Learner, Update
from .packing import NothingToLearn, Packed, pack
from .run_folder import Boundary, Logbook, to_line, to_text
from .schedule import Schedule
from .telemetry import counts, stats


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


@dataclass(frozen=True)
class Step:
    """Learning from the rollout of the step behind the boundary `at`.

    `propose` changes nothing, `apply` changes weights and moments.
    """

    learner: Learner
    schedule: Schedule
    logbook: Logbook
    at: Boundary

    def propose(self, trees: list[Tree]) -> Learned:
        """Return what the rollout comes to. A refused update leaves the control state as it was, too."""
        control, at = self.learner.control, self.at
        try:
            packed = pack(trees)
        except NothingToLearn as error:
            nothing = Stats(at.step, "rollout")
            state, asked = control.observe(nothing, at.state())
            return self._refused(Learned(Update(refused=str(error)), nothing, to_text(state), asked))
        packed = self.learner.prepare(packed)
        measured = stats(at.step, packed.batch, trees)
        state, asked = control.observe(measured, at.state())
        update = self.learner.propose(packed, state, self._lr_share)
        if update.refused:
            return self._refused(Learned(update, measured, at.control))
        return self._observed(Learned(update, measured, to_text(state), asked, packed))

    def apply(self, learned: Learned) -> Learned:
        """Take the optimizer step that was proposed, and those that follow on the same rollout, up to a refused one."""
        learner = self.learner
        drift = learned.update.drift  # later it is what the update itself has changed
        learner.apply(learned.update)
        while learned.packed is not None and learned.updates < self.schedule.updates:
            now = learner.now(learned.packed) if learner.control.needs.now else None
            update = learner.propose(learned.packed, json.loads(learned.control), self._lr_share, now)
            if update.refused:
                self._refused(replace(learned, update=update))
                break
            learned = self._observed(replace(learned, update=replace(update, drift=drift)))
            learner.apply(learned.update)
        learned = self._replay(learned)
        if Request.RESET_OPTIMIZER in learned.requests:
            learner.reset_optimizer()
        return learned

    def _observed(self, learned: Learned) -> Learned:
        """Return `learned` after the controls have seen its update."""
        last = learned.updates + 1 == self.schedule.updates
        means = learned.update.means
        seen: dict[str, Any] = {name: means[name] for name in ("kl", "clip_low", "clip_high") if name in means}
        measured = replace(learned.measured, phase="update", last=last, **seen)
        state, asked = self.learner.control.observe(measured, json.loads(learned.control))
        return replace(learned, control=to_text(state), requests=learned.requests | asked, updates=learned.updates + 1)

    def _replay(self, learned: Learned) -> Learned:
        """Return `learned` after an optimizer step on paths of earlier steps, where a control asks for one."""
        control = self.learner.control
        again = control.replay and control.replay(json.loads(learned.control))
        if not again or not learned.updates:
            return learned
        packed = pack(self.logbook.read_paths(again.advantage))
        update = self.learner.replay(packed, again, self._lr_share)
        if update.refused:
            self._refused(replace(learned, update=update))
            return learned
        self.learner.apply(update)
        return replace(learned, replayed=len(packed.names) if update.idle < 1 else 0)

    def _refused(self, learned: Learned) -> Learned:
        update = learned.update
        self.logbook.add_incident(self.at.step + 1, Incident("refused", update.refused, update.key))
        return learned

    @property
    def _lr_share(self) -> float:
        return self.schedule.lr_share(self.at.step, self.at.tokens)
