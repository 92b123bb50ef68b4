"""The training loop: roll out, learn, write down; a checkpoint makes every step repeatable to the bit.

The order, and why a run that dies at any instant goes on as if it had not: a step is tasks, knobs, rollout, journal,
selection, statistics, gradient, control state, and then, in one piece, weights and `Boundary`. Nothing before that
piece changes what a checkpoint of the last boundary holds; a step that is taken again writes its journal again. At a
boundary come the checkpoint, the validation and the line of metrics, each made again where it is missing: the
checkpoint holds what the line needs, so the line is the last. Wall-clock time goes to `metrics.jsonl` only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents import checkpoint
from ..agents.deadlines import Deadlines
from ..agents.engine import Sampling
from ..agents.evaluate import task_count
from ..agents.incidents import Incident
from ..agents.journal import origin_of
from ..agents.rollout import RETRIES, Actor, collect, shuffled_scores
from ..agents.scores import Report, from_trees, summarize
from ..agents.trajectory import Tree
from ..envs import TextEnv
from .boundary import Boundary, read_boundary, to_text
from .control import Control, Request, Stats, Verdict
from .learner import Learner, Update
from .logbook import Logbook
from .packing import NothingToLearn, pack
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
    lr_end: float = 1.0  # share of the learning rate at the last step
    shuffle_rewards: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: int = RETRIES
    at: Boundary | None = None  # None before a run begins, and while weights and boundary change together
    _saved: int = -1  # step of the newest checkpoint
    _written: bool = False  # whether the step has its line of metrics
    _times: dict[str, float | None] = field(default_factory=dict)  # seconds that the step took

    def __post_init__(self) -> None:
        self.logbook = Logbook(self.folder)

    @property
    def control(self) -> Control:
        """Return the chained methods."""
        return self.learner.control

    def load(self, folder: Path, passed_over: Sequence[Incident] = ()) -> None:
        """Go on from a checkpoint, in place of newer ones that were passed over: drop what was written after it.

        Raises:
            ValueError: it does not fit, or a line of metrics of an earlier step is missing.
        """
        at = read_boundary(folder)
        self.learner.load(folder, at.version)
        self._written = self.logbook.drop_after(at.step)
        self._times = dict.fromkeys(TIMES) if at.step else {}
        for incident in passed_over:
            self.logbook.add_incident(at.step, incident)
        self.at, self._saved = at, at.step

    def run(self) -> Iterator[Record]:
        """Take the remaining steps, yielding a record after each; a new run begins with the validation before them.

        KeyboardInterrupt leaves a checkpoint of the last boundary behind, whatever was under way.

        Raises:
            Refusals: too many steps in a row had no update.
            CheckpointError, OSError: something cannot be written; the last checkpoint stays.
        """
        if self.at is None:
            self.logbook.drop_after(-1)
            self.at = Boundary(to_text(self.control.init()))
        try:
            yield from self._steps(self.at)
        except KeyboardInterrupt:
            self._save()
            raise

    def _steps(self, at: Boundary) -> Iterator[Record]:
        """Do what is left to do at the boundary `at`, take a step, and so on."""
        while True:
            over = at.stop or at.step >= self.steps
            hopeless = at.refused >= REFUSALS and not over
            validates = (over or at.step % self.eval_every == 0) and not hopeless
            if validates or hopeless:
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
        learned = self._learn(at, kept)
        update, line = learned.update, learned.line(grown, refilled=len(grown) - self.prompts)
        if update.refused:
            self.logbook.add_incident(at.step + 1, Incident("refused", update.refused, update.key))
        if Request.RESET_REFERENCE in learned.requests:
            raise ValueError("a control asked to reset the reference, which is the frozen base model in this version")
        with shield():
            self.at = None
            self.learner.apply(update)
            if Request.RESET_OPTIMIZER in learned.requests:
                self.learner.reset_optimizer()
            self.at = Boundary(
                control=learned.control,
                step=at.step + 1,
                cursor=cursor,
                version=self.learner.policy.version,
                refused=at.refused + 1 if update.refused else 0,
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
            return Learned(Update(refused=str(error)), Stats(at.step, "rollout"), at.control)
        measured = stats(at.step, packed.batch, trees)
        state, asked = self.control.observe(measured, at.state())
        update = self.learner.propose(packed, state, 1 - (1 - self.lr_end) * at.step / max(self.steps - 1, 1))
        if update.refused:
            return Learned(update, measured, at.control)
        state, more = self.control.observe(replace(measured, phase="update", **_measures(update)), state)
        return Learned(update, measured, to_text(state), asked | more)

    def _rollout(self, at: Boundary) -> tuple[list[Tree], list[Tree], int]:
        """Return the trees to learn from, all that were grown, which go to the journal, and the tasks used by then."""
        kept: list[Tree] = []
        grown: list[Tree] = []
        cursor, wanted, used = at.cursor, self.prompts, set[int]()
        state = at.state()
        sampling = self.control.sample(self.sampling, state)
        for _ in range(REFILLS):
            tasks, cursor = self._tasks(cursor, min(wanted, task_count(self.env) - len(used)), used)
            trees = self._collect(at.step + 1, self.env, tasks, self.group, (self.seed, at.step), sampling)
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
        self, step: int, env: TextEnv, tasks: list[int], group: int, key: tuple[int, int], sampling: Sampling
    ) -> list[Tree]:
        return collect(
            self.actor,
            env,
            tasks,
            group=group,
            key=key,
            sampling=sampling,
            deadlines=self.deadlines,
            retries=self.retries,
            on_incident=partial(self.logbook.add_incident, step),
        )

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
                checkpoint.save(self.folder / "checkpoints", self.at.step, self.at.to_json(), self.learner.save)
                self._saved = self.at.step

    def _write(self, at: Boundary, valid: Report | None) -> Record:
        record = Record(at.step, {**at.metrics(), **self._times}, valid)
        self.logbook.add_metrics(record.line())
        self._written = True
        return record


def _measures(update: Update) -> dict[str, Any]:
    return {name: update.means[name] for name in ("kl", "clip_low", "clip_high") if name in update.means}


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    """Return the order in which an epoch uses the tasks."""
    return np.random.default_rng((seed, epoch)).permutation(total)
