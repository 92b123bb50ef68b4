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
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents import checkpoint
from ..agents.engine import EngineFailure, Sampling
from ..agents.evaluate import task_count
from ..agents.incidents import Incident
from ..agents.journal import origin_of
from ..agents.rollout.branching import Plan
from ..agents.rollout.collect import RETRIES, collect, shuffled_scores
from ..agents.rollout.deadlines import Deadlines
from ..agents.rollout.path import Actor
from ..agents.scores import Report, from_trees, summarize
from ..agents.trajectory import Tree
from ..envs import TextEnv
from .boundary import Boundary, read_boundary, to_text
from .control import Control, Request, Stats, Verdict
from .learner import Learner, Update
from .logbook import Logbook, Reader
from .packing import NothingToLearn, pack
from .parallel import PeerLost, Team
from .record import Learned, Record
from .signals import shield
from .telemetry import stats

VALIDATION = -1  # takes the place of the step in keys: every validation draws the same way
REFILLS = 8  # rollouts a step may ask for in place of dropped trees
REFUSALS = 5  # steps in a row without an update after which a run ends
TIMES = ("seconds", "seconds_rollout")


class Refusals(RuntimeError):
    """A run came to nothing: `REFUSALS` steps in a row had no update."""


@dataclass
class Loop:
    """A run in progress: everything a step needs, and where it stands."""

    folder: Path
    actor: Actor
    learner: Learner
    env: TextEnv
    valid_env: TextEnv
    valid_tasks: list[int]
    sampling: Sampling
    seed: int
    prompts: int
    group: int
    steps: int
    eval_every: int
    token_budget: int = 0  # tokens drawn after which the run ends; 0 is no limit
    lr_end: float = 1.0  # share of the learning rate at the last step
    updates: int = 1  # optimizer steps on each rollout
    shuffle_rewards: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: int = RETRIES
    at: Boundary | None = None  # None before a run begins, and while weights and boundary change together
    _saved: int = -1  # step of the newest checkpoint
    _written: bool = False  # whether the step has its line of metrics
    _times: dict[str, float | None] = field(default_factory=dict)  # seconds that the step took
    _lines: list[dict[str, Any]] = field(default_factory=list)  # of metrics, up to the step

    def __post_init__(self) -> None:
        self.logbook = Logbook(self.folder) if self.team.first else Reader(self.folder)

    @property
    def control(self) -> Control:
        """Return the chained methods."""
        return self.learner.control

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
            self.at = Boundary(to_text(self.control.init()))
        try:
            yield from self._steps(self.at)
        except (KeyboardInterrupt, EngineFailure, PeerLost):
            self._save()
            raise

    def _steps(self, at: Boundary) -> Iterator[Record]:
        """Do what is left to do at the boundary `at`, take a step, and so on."""
        while True:
            over = at.over(self.steps, self.token_budget)
            hopeless = at.refused >= REFUSALS and not over
            validates = (over or at.step % self.eval_every == 0) and not hopeless
            if validates or hopeless:
                self.team.agree(f"the weights after step {at.step}", self.learner.digest)
                self._save()
            if not self._written:
                record = self._write(at, self._validate(at) if validates else None)
                with shield():  # a signal reaches this generator, not whoever looks at the record
                    yield record
                if hopeless:
                    raise Refusals(
                        f"{at.refused} steps in a row had no update, the last because {at.metrics()['refused']}; the "
                        f"checkpoint of step {at.step} has the weights of the last one that had"
                    )
            if over:
                return
            at = self._step(at)

    def _step(self, at: Boundary) -> Boundary:
        """Take a step from a boundary and return the next."""
        began = time.monotonic()
        kept, grown, cursor = self._rollout(at)
        rolled = time.monotonic()
        with self.team.steady():
            learned = self._learn(at, kept)
            if Request.RESET_REFERENCE in learned.requests:
                raise ValueError(
                    "a control asked to reset the reference, which is the frozen base model in this version"
                )
            with shield():
                self.at = None
                learned = self._apply(at, learned)
                if Request.RESET_OPTIMIZER in learned.requests:
                    self.learner.reset_optimizer()
                line = learned.line(grown, refilled=len(grown) - self.prompts)
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
                self._written, self._times = False, dict(zip(TIMES, (ended - began, rolled - began)))
        return self.at

    def _learn(self, at: Boundary, trees: list[Tree]) -> Learned:
        """Return what the rollout comes to. A refused update leaves the control state as it was, too."""
        try:
            packed = pack(trees)
        except NothingToLearn as error:
            nothing = Stats(at.step, "rollout")
            state, asked = self.control.observe(nothing, at.state())
            return self._refused(at, Learned(Update(refused=str(error)), nothing, to_text(state), asked))
        packed = self.learner.prepare(packed)
        measured = stats(at.step, packed.batch, trees)
        state, asked = self.control.observe(measured, at.state())
        update = self.learner.propose(packed, state, self._lr_share(at))
        if update.refused:
            return self._refused(at, Learned(update, measured, at.control))
        return self._observed(Learned(update, measured, to_text(state), asked, packed))

    def _refused(self, at: Boundary, learned: Learned) -> Learned:
        update = learned.update
        self.logbook.add_incident(at.step + 1, Incident("refused", update.refused, update.key))
        return learned

    def _observed(self, learned: Learned) -> Learned:
        """Return `learned` after the controls have seen its update."""
        last = learned.updates + 1 == self.updates
        measured = replace(learned.measured, phase="update", last=last, **_measures(learned.update))
        state, asked = self.control.observe(measured, json.loads(learned.control))
        return replace(learned, control=to_text(state), requests=learned.requests | asked, updates=learned.updates + 1)

    def _apply(self, at: Boundary, learned: Learned) -> Learned:
        """Take the optimizer step that was proposed, and those that follow on the same rollout, up to a refused one."""
        drift = learned.update.drift  # later it is what the update itself has changed
        self.learner.apply(learned.update)
        while learned.packed is not None and learned.updates < self.updates:
            now = self.learner.now(learned.packed) if self.control.needs.now else None
            update = self.learner.propose(learned.packed, json.loads(learned.control), self._lr_share(at), now)
            if update.refused:
                self._refused(at, replace(learned, update=update))
                break
            learned = self._observed(replace(learned, update=replace(update, drift=drift)))
            self.learner.apply(learned.update)
        return self._replay(at, learned)

    def _replay(self, at: Boundary, learned: Learned) -> Learned:
        """Return `learned` after an optimizer step on paths of earlier steps, where a control asks for one."""
        again = self.control.replay and self.control.replay(json.loads(learned.control))
        if not again or not learned.updates:
            return learned
        packed = pack(self.logbook.read_paths(again.advantage))
        update = self.learner.replay(packed, again, self._lr_share(at))
        if update.refused:
            self._refused(at, replace(learned, update=update))
            return learned
        self.learner.apply(update)
        return replace(learned, replayed=len(packed.names) if update.idle < 1 else 0)

    def _lr_share(self, at: Boundary) -> float:
        spent = at.tokens / self.token_budget if self.token_budget else 0.0
        return 1 - (1 - self.lr_end) * max(at.step / max(self.steps - 1, 1), spent)

    def _rollout(self, at: Boundary) -> tuple[list[Tree], list[Tree], int]:
        """Return the trees to learn from, all that were grown, which go to the journal, and the tasks used by then."""
        kept: list[Tree] = []
        grown: list[Tree] = []
        cursor, wanted, used = at.cursor, self.prompts, set[int]()
        state = at.state()
        sampling, asked = self.control.sample(self.sampling, state), self.control.plan
        plan: Plan | None = None if asked is None else lambda tree, event, key: asked(tree, event, key, state)
        for _ in range(REFILLS):
            tasks, cursor = self._tasks(cursor, min(wanted, task_count(self.env) - len(used)), used)
            trees = self._collect(at.step + 1, self.env, tasks, self.group, (self.seed, at.step), sampling, plan)
            grown += trees
            verdicts = self.control.select(trees, state)
            kept += [tree for tree, verdict in zip(trees, verdicts, strict=True) if verdict is Verdict.KEEP]
            wanted = verdicts.count(Verdict.MORE)
            if not wanted:
                break
        self.logbook.add_trees(at.step + 1, grown, origin_of(self.env))
        return (shuffled_scores(kept, (self.seed, at.step)) if self.shuffle_rewards else kept), grown, cursor

    def _validate(self, at: Boundary) -> Report:
        """Return how the policy does on the held-out tasks; the same tasks and keys every time."""
        key = (self.seed, VALIDATION)
        return summarize(from_trees(self._collect(at.step, self.valid_env, self.valid_tasks, 1, key, self.sampling)))

    def _collect(
        self,
        step: int,
        env: TextEnv,
        tasks: list[int],
        group: int,
        key: tuple[int, int],
        sampling: Sampling,
        plan: Plan | None = None,
    ) -> list[Tree]:
        grow = partial(
            collect,
            self.actor,
            env,
            group=group,
            key=key,
            sampling=sampling,
            plan=plan,
            deadlines=self.deadlines,
            retries=self.retries,
        )
        return self.team.grow(grow, tasks, partial(self.logbook.add_incident, step))

    def _tasks(self, cursor: int, count: int, used: set[int]) -> tuple[list[int], int]:
        """Return the next `count` tasks in shuffled order, without those that this step has used, and the cursor."""
        total = task_count(self.env)
        tasks: list[int] = []
        while len(tasks) < count:
            epoch, place = divmod(cursor, total)
            task = int(_order(self.seed, epoch, total)[place])
            cursor += 1
            if task not in used:
                used.add(task)
                tasks.append(task)
        return tasks, cursor

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
        self.logbook.add_metrics(record.line())
        self._lines.append(record.metrics)
        self._written = True
        return record


def _measures(update: Update) -> dict[str, Any]:
    return {name: update.means[name] for name in ("kl", "clip_low", "clip_high") if name in update.means}


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    """Return the order in which an epoch uses the tasks."""
    return np.random.default_rng((seed, epoch)).permutation(total)
