"""The training loop: roll out, learn, write down; a checkpoint makes every step repeatable to the bit.

The order, and why a run that dies at any instant goes on as if it had not: a step is tasks, knobs, rollout, journal,
selection, statistics, gradient, control state, and then, in one piece, weights and `Boundary`. Nothing before that
piece changes what a checkpoint of the last boundary holds; a step that is taken again writes its journal again. At a
boundary come the checkpoint, the validation and the line of metrics, each made again where it is missing: the
checkpoint holds what the line needs, so the line is the last. Wall-clock time goes to `metrics.jsonl` only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..agents import checkpoint
from ..agents.engine import EngineFailure
from ..agents.journal import Incident
from ..agents.scores import Report
from ..agents.terminal import shield
from .config import Schedule
from .control import Request
from .learner import Learner
from .parallel import PeerLost, Team
from .run_folder import Boundary, Logbook, Record, read_boundary, to_text
from .step import Rollouts, Step

REFUSALS = 5  # steps in a row without an update after which a run ends
TIMES = ("seconds", "seconds_rollout")


class Refusals(RuntimeError):
    """A run ended without success: `REFUSALS` steps in a row had no update."""


@dataclass
class Loop:
    """A run in progress: everything a step needs, and how far the run is."""

    folder: Path
    rollouts: Rollouts
    learner: Learner
    schedule: Schedule
    at: Boundary | None = None  # None before a run begins, and while weights and boundary change together
    _saved: int = -1  # step of the newest checkpoint
    _written: bool = False  # whether the step has its line of metrics
    _times: dict[str, float | None] = field(default_factory=dict)  # seconds that the step took
    _lines: list[dict[str, Any]] = field(default_factory=list)  # of metrics, up to the step

    def __post_init__(self) -> None:
        self.logbook = Logbook(self.folder, writes=self.team.first)

    @property
    def team(self) -> Team:
        """Return the processes of the run."""
        return self.learner.team

    def load(self, folder: Path, passed_over: Sequence[Incident] = ()) -> None:
        """Go on from a checkpoint, in place of newer ones that were passed over: drop what was written after it.

        Raises:
            ValueError: it does not fit, or a line of metrics of an earlier step is missing.
        """
        at = read_boundary(folder)
        self.learner.load(folder, at.version)
        self._written = self.team.decide(lambda: self.logbook.drop_after(at.step))
        self._lines = self.logbook.lines()
        self._times = dict.fromkeys(TIMES) if at.step else {}
        for incident in passed_over:
            self.logbook.add_incident(at.step, incident)
        self.at, self._saved = at, at.step

    def run(self) -> Iterator[Record]:
        """Take the remaining steps, yielding a record after each; a new run begins with the validation before them.

        KeyboardInterrupt, EngineFailure and PeerLost leave a checkpoint of the last boundary behind, whatever was under
        way.

        Raises:
            Refusals: too many steps in a row had no update.
            EngineFailure: the engine cannot be had with the policy's weights.
            PeerLost: another process of the run has ended.
            Disagreement: another process has other weights.
            CheckpointError, OSError: something cannot be written; the last checkpoint stays.
        """
        if self.at is None:
            self.team.decide(lambda: self.logbook.drop_after(-1))
            self.at = Boundary(to_text(self.learner.control.init()))
        try:
            yield from self._steps(self.at)
        except (KeyboardInterrupt, EngineFailure, PeerLost):
            self._save()
            raise

    def _steps(self, at: Boundary) -> Iterator[Record]:
        """Finish the boundary `at`, take a step, and repeat until the run is over."""
        while True:
            over = at.over(self.schedule)
            stuck = at.refused >= REFUSALS and not over
            validates = (over or at.step % self.schedule.eval_every == 0) and not stuck
            if validates or stuck:
                self.team.agree(f"the weights after step {at.step}", self.learner.digest)
                self._save()
            if not self._written:
                valid = self.rollouts.validate(at, self.team, self.logbook) if validates else None
                record = self._write(at, valid)
                with shield():  # a signal reaches this generator, not whoever looks at the record
                    yield record
                if stuck:
                    raise Refusals(
                        f"{at.refused} steps in a row had no update, the last because {at.metrics()['refused']}; the "
                        f"checkpoint of step {at.step} has the weights after the last update"
                    )
            if over:
                return
            at = self._step(at)

    def _step(self, at: Boundary) -> Boundary:
        """Take a step from a boundary and return the next."""
        began = time.monotonic()
        kept, grown, cursor = self.rollouts.train(at, self.learner.control, self.team, self.logbook)
        learning = time.monotonic()
        with self.team.steady():
            step = Step(self.learner, self.schedule, self.logbook, at)
            learned = step.propose(kept)
            if Request.RESET_REFERENCE in learned.requests:
                raise ValueError(
                    "a control asked to reset the reference, which is the frozen base model in this version"
                )
            with shield():
                self.at = None
                learned = step.apply(learned)
                line = learned.line(grown, refilled=len(grown) - self.rollouts.prompts)
                self.at = Boundary(
                    control=learned.control,
                    step=at.step + 1,
                    cursor=cursor,
                    version=self.learner.policy.version,
                    tokens=at.tokens + json.loads(line)["tokens"],
                    refused=0 if learned.updates else at.refused + 1,
                    stop=Request.STOP in learned.requests,
                    line=line,
                )
                ended = time.monotonic()
                self._written, self._times = False, dict(zip(TIMES, (ended - began, learning - began)))
        return self.at

    def _save(self) -> None:
        """Write the checkpoint of the boundary, if there is none yet and weights and boundary belong together."""
        with shield():
            if self.at is not None and self._saved != self.at.step:
                if self.team.first:
                    checkpoint.save(self.folder / "checkpoints", self.at.step, self.at.to_json(), self.learner.save)
                self._saved = self.at.step

    def _write(self, at: Boundary, valid: Report | None) -> Record:
        record = Record.after(self._lines, at.step, {**at.metrics(), **self._times}, valid)
        for alarm in record.begun:
            self.logbook.add_incident(at.step, Incident("alarm", str(alarm)))
        self.logbook.add_metrics(line := record.line())
        self._lines.append(json.loads(line))
        self._written = True
        return record
