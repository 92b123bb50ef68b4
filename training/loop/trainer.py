"""The training loop: roll out, learn, write down; a checkpoint makes every step repeatable to the bit.

The order, and why a run that dies at any instant goes on as if it had not: a step is tasks, knobs, rollout, journal,
selection, statistics, gradient, control state, and then, in one piece, weights and `RunState`. Nothing before that
piece changes what a checkpoint of the last boundary holds; a step that is taken again writes its journal again. At a
boundary come the checkpoint, the validation and the line of metrics, each made again where it is missing: the
checkpoint holds what the line needs, so the line is the last. Wall-clock time goes to `metrics.jsonl` only.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import Any

from ...agents.cli.terminal import shield
from ...agents.engine import EngineFailure
from ...agents.evaluation.scores import Report, foreign_calls
from ...agents.evaluation.votes import same_in
from ...agents.journal import checkpoint
from ...agents.journal.trees import Incident
from ...agents.trajectory import Tree
from ...envs.outcomes import EnvFailure
from ...tools.formats.foreign import describe_format
from ...tools.progress import Progress
from ..control.control import Request, Requests, State, Stats, numbers_of
from ..data.batch import At, Now
from ..data.packing import NothingToLearn, Packed, pack
from ..metrics.telemetry import counts, stats
from ..runs.config import Schedule
from ..runs.folder import Logbook, Record, RunState, read_boundary, to_line, to_text
from .distributed import PeerLost, Team
from .learner import Learner, Update
from .rollouts import Rollouts

REFUSALS = 5  # steps in a row without an update after which a run ends
TIMES = ("seconds", "seconds_rollout")


@dataclass(frozen=True)
class Learned:
    """What a step's rollout comes to: an update, the control state after it, and what the controls ask for."""

    update: Update
    measured: Stats
    control: str  # JSON text
    requests: Requests = frozenset()
    packed: Packed | None = None  # the rollout; None where the update was refused
    state: Mapping[str, float] = field(
        default_factory=dict
    )  # the numbers in the control state, by name
    updates: int = 0  # optimizer steps taken
    replayed: int = 0  # paths of earlier steps that were learned from once more

    def line(self, grown: Sequence[Tree], refilled: int = 0) -> str:
        """Return the metrics of the step, but for its times and validation, as JSON text.

        `grown` are all trees of its rollouts, dropped ones included, `refilled` of them in place of dropped ones.
        """
        update, measured = self.update, self.measured
        return to_line(
            {
                **{name: getattr(measured, name) for name in ("reward", "success", "entropy")},
                **{
                    f"entropy_turn/{turn}": value
                    for turn, value in enumerate(measured.entropy_turns)
                },
                **{
                    f"entropy_phase/{phase}": value
                    for phase, value in measured.entropy_phases.items()
                },
                **measured.extras,
                **counts(grown),
                "refilled": refilled,
                "updates": self.updates,
                "replayed": self.replayed,
                **{name: getattr(update, name) for name in ("loss", "grad_norm", "drift")},
                "idle_paths": update.idle,
                **update.means,
                **self.state,
                "refused": update.refused,
            }
        )


class Refusals(RuntimeError):
    """A run ended without success: `REFUSALS` steps in a row had no update."""


BeforeUpdate = Callable[[int, Packed, State, Now | None, range], object]
"""Looks at an optimizer step before it is computed: the training step, and the arguments of `Learner.propose`."""


@dataclass
class Loop:
    """A run in progress: everything a step needs, and how far the run is."""

    folder: Path
    rollouts: Rollouts
    learner: Learner
    schedule: Schedule
    at: RunState | None = (
        None  # None before a run begins, and while weights and boundary change together
    )
    before_update: BeforeUpdate = lambda *_: None
    _saved: int = -1  # step of the newest checkpoint
    _written: bool = False  # whether the step has its line of metrics
    _times: dict[str, float | None] = field(default_factory=dict)  # seconds that the step took
    _lines: list[dict[str, Any]] = field(default_factory=list)  # of metrics, up to the step
    _foreign: set[str] = field(default_factory=set)  # formats of calls that were named as foreign

    def __post_init__(self) -> None:
        self.logbook = Logbook(self.folder, writes=self.team.first)
        self.same = same_in(self.rollouts.env)

    @property
    def team(self) -> Team:
        return self.learner.team

    def load(self, folder: Path, passed_over: Sequence[Incident] = ()) -> None:
        """Go on from a checkpoint; what came later goes. Raises ValueError: it does not fit, or a line is missing."""
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
        way. Raises Refusals: too many steps in a row had no update; EngineFailure: the engine cannot be had with the
        policy's weights; PeerLost: another process of the run has ended; Disagreement: another process has other
        weights; CheckpointError, OSError: something cannot be written; the last checkpoint stays.
        """
        if self.at is None:
            self.team.decide(lambda: self.logbook.drop_after(-1))
            self.at = RunState(to_text(self.learner.control.init()))
        try:
            yield from self._steps(self.at)
        except (KeyboardInterrupt, EngineFailure, PeerLost):
            self._save()
            raise

    def _steps(self, at: RunState) -> Iterator[Record]:
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
                    why = f"{at.refused} steps in a row had no update, the last because {at.metrics()['refused']}"
                    raise Refusals(
                        f"{why}; the checkpoint of step {at.step} has the weights after the last update"
                    )
            if over:
                return
            at = self._step(at)

    def _step(self, at: RunState) -> RunState:
        began = time.monotonic()
        with Progress("rollout"):
            kept, grown, cursor = self.rollouts.train(
                at, self.learner.control, self.team, self.logbook
            )
        self._tell_foreign(at, grown)
        learning = time.monotonic()
        with self.team.steady(), Progress("learning"):
            learned = self._propose(at, kept)
            if learned.packed is not None:
                first = learned.packed.part(self._parts(learned.packed)[0])
                self.logbook.add_slots(
                    at.step + 1, first.keys, first.batch.path.numpy(), learned.update.slots
                )
            with shield():
                self.at = None
                learned = self._apply(at, learned)
                learned = replace(
                    learned, state=numbers_of(self.learner.control, json.loads(learned.control))
                )
                line = learned.line(grown, refilled=len(grown) - self.rollouts.prompts)
                self.at = RunState(
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
                self._written, self._times = (
                    False,
                    dict(zip(TIMES, (ended - began, learning - began))),
                )
        return self.at

    def _tell_foreign(self, at: RunState, grown: Sequence[Tree]) -> None:
        """Say once of each foreign format in which the policy writes calls that they are not read."""
        for name, foreign in foreign_calls(grown, self.rollouts.env).items():
            if name not in self._foreign:
                self._foreign.add(name)
                what = f"{foreign.turns} turns of the step hold a call in {describe_format(name)}, not read; {foreign.fix}"
                self.logbook.add_incident(at.step + 1, Incident("foreign", what))

    def _propose(self, at: RunState, trees: list[Tree]) -> Learned:
        """Return what a rollout comes to, and change nothing. A refused update leaves the control state, too."""
        control = self.learner.control
        try:
            packed = pack(trees, control.needs.columns, self.same)
        except (NothingToLearn, EnvFailure) as error:  # a grader that cannot compare answers
            measured = Stats(at.step, "rollout")
            state, asked = control.observe(measured, at.state())
            return self._refused(
                at, Learned(Update(refused=str(error)), measured, to_text(state), asked)
            )
        packed = self._at(at, self.learner.prepare(packed), 0)
        known = [
            line["valid/success"] for line in self._lines if line.get("valid/success") is not None
        ]
        measured = replace(stats(at.step, packed.batch, trees), valid=known[-1] if known else nan)
        state, asked = control.observe(measured, at.state())
        paths = self._parts(packed)[0]
        self.before_update(at.step + 1, packed, state, None, paths)
        update = self.learner.propose(packed, state, self._lr_share(at), paths=paths)
        if update.refused:
            return self._refused(at, Learned(update, measured, at.control))
        return self._observed(Learned(update, measured, to_text(state), asked, packed))

    def _apply(self, at: RunState, learned: Learned) -> Learned:
        """Take the optimizer step that was proposed, and those that follow on the same rollout, up to a refused one."""
        learner = self.learner
        drift = learned.update.drift  # later it is what the update itself has changed
        learner.apply(learned.update)
        parts = [] if learned.packed is None else self._parts(learned.packed)
        while learned.packed is not None and learned.updates < len(parts):
            packed, paths = self._at(at, learned.packed, learned.updates), parts[learned.updates]
            now = learner.now(packed.part(paths)) if learner.control.needs.now else None
            state = json.loads(learned.control)
            self.before_update(at.step + 1, packed, state, now, paths)
            update = learner.propose(packed, state, self._lr_share(at), now, paths)
            if update.refused:
                self._refused(at, learned, update)
                break
            learned = self._observed(replace(learned, update=replace(update, drift=drift)))
            learner.apply(learned.update)
        learned = self._replay(at, learned)
        if Request.RESET_OPTIMIZER in learned.requests:
            learner.reset_optimizer()
        if Request.RESET_REFERENCE in learned.requests:
            learner.policy.reset_reference()
        return learned

    def _parts(self, packed: Packed) -> list[range]:
        return packed.parts(self.schedule.minibatches) * self.schedule.updates

    def _lr_share(self, at: RunState) -> float:
        return self.schedule.lr_share(at.step, at.tokens)

    def _at(self, at: RunState, packed: Packed, update: int) -> Packed:
        now = At(packed.keys[0][0], at.step, self.schedule.steps, update)
        return replace(packed, batch=replace(packed.batch, at=now))

    def _observed(self, learned: Learned) -> Learned:
        assert learned.packed is not None
        last, means = learned.updates + 1 == len(self._parts(learned.packed)), learned.update.means
        seen: dict[str, Any] = {
            name: means[name] for name in ("kl", "clip_low", "clip_high") if name in means
        }
        measured = replace(learned.measured, phase="update", last=last, **seen)
        state, asked = self.learner.control.observe(measured, json.loads(learned.control))
        return replace(
            learned,
            control=to_text(state),
            requests=learned.requests | asked,
            updates=learned.updates + 1,
        )

    def _replay(self, at: RunState, learned: Learned) -> Learned:
        """Return `learned` after an optimizer step on paths of earlier steps, where a control asks for one."""
        control = self.learner.control
        again = control.replay and control.replay(json.loads(learned.control))
        if not again or not learned.updates:
            return learned
        packed = pack(self.logbook.read_paths(again.advantage))
        update = self.learner.replay(packed, again, self._lr_share(at))
        if update.refused:
            return self._refused(at, learned, update)
        self.learner.apply(update)
        return replace(learned, replayed=len(packed.names) if update.idle < 1 else 0)

    def _refused(self, at: RunState, learned: Learned, later: Update | None = None) -> Learned:
        update = later or learned.update
        self.logbook.add_incident(at.step + 1, Incident("refused", update.refused, update.key))
        return learned

    def _save(self) -> None:
        """Write the checkpoint of the boundary, if there is none yet and weights and boundary belong together."""
        with shield():
            if self.at is not None and self._saved != self.at.step:
                if self.team.first:
                    checkpoint.save(
                        self.folder / "checkpoints",
                        self.at.step,
                        self.at.to_json(),
                        self.learner.save,
                    )
                self._saved = self.at.step

    def _write(self, at: RunState, valid: Report | None) -> Record:
        record = Record.after(self._lines, at.step, {**at.metrics(), **self._times}, valid)
        for alarm in record.begun:
            self.logbook.add_incident(at.step, Incident("alarm", str(alarm)))
        self.logbook.add_metrics(line := record.line())
        self._lines.append(json.loads(line))
        self._written = True
        return record
