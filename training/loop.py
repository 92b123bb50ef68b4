"""The training loop: roll out, learn, observe, write down; a checkpoint makes every step repeatable to the bit.

The order of a step is fixed: tasks, knobs, rollout, journal, selection, statistics, update, control state. Wall-clock
time goes to `metrics.jsonl` only.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents import checkpoint
from ..agents.engine import Sampling
from ..agents.evaluate import task_count
from ..agents.journal import write_trees
from ..agents.rollout import Actor, collect, shuffled_scores
from ..agents.scores import Report, from_trees, summarize
from ..agents.trajectory import Tree
from ..envs import TextEnv
from .control import Control, Request, State, Verdict
from .learner import Learner, Update
from .packing import pack
from .telemetry import counts, stats

VALIDATION = -1  # takes the place of the step in keys: every validation draws the same way
REFILLS = 8  # rollouts a step may ask for in place of dropped trees


@dataclass(frozen=True)
class Record:
    """One line of `metrics.jsonl` (null where a number is not finite), and the validation that followed, if one did."""

    step: int
    metrics: dict[str, Any]
    valid: Report | None = None


@dataclass
class Loop:
    """A run in progress: everything a step needs, and what changes from step to step."""

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
    step: int = 0
    cursor: int = 0  # tasks used so far
    state: State = None

    @property
    def control(self) -> Control:
        """Return the chained methods."""
        return self.learner.control

    def run(self) -> Iterator[Record]:
        """Take the remaining steps, yielding a record after each; a new run begins with the validation before them."""
        if self.state is None:
            self.state = self.control.init()
            yield self._write(Record(0, {}, self.validate()))
            self._save()
        while self.step < self.steps:
            metrics, stop = self._step()
            due = stop or self.step % self.eval_every == 0 or self.step == self.steps
            yield self._write(Record(self.step, metrics, self.validate() if due else None))
            if due:
                self._save()
            if stop:
                return

    def validate(self) -> Report:
        """Return how the policy does on the held-out tasks; the same tasks and keys every time."""
        key = (self.seed, VALIDATION)
        trees = collect(self.actor, self.valid_env, self.valid_tasks, group=1, key=key, sampling=self.sampling)
        return summarize(from_trees(trees))

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint: drop what was written after it."""
        data = checkpoint.read_state(folder)
        self.learner.load(folder, data["version"])
        self.step, self.cursor, self.state = data["step"], data["cursor"], data["control"]
        metrics = self.folder / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True)
        kept = metrics.with_suffix(".tmp")
        kept.write_text(
            "".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= self.step)
        )
        kept.replace(metrics)
        for journal in (self.folder / "trees").glob("step-*.jsonl"):
            if int(journal.stem.partition("-")[2]) > self.step:
                journal.unlink()

    def _step(self) -> tuple[dict[str, Any], bool]:
        began = time.monotonic()
        sampling = self.control.sample(self.sampling, self.state)
        trees = self._rollout(sampling)
        rolled = time.monotonic()
        batch = pack(trees)
        measured = stats(self.step, batch.batch, trees)
        self.state, requests = self.control.observe(measured, self.state)
        update = self.learner.update(batch, self.state, self._lr_share())
        if not update.refused:
            done = replace(measured, phase="update", **_measures(update))
            self.state, more = self.control.observe(done, self.state)
            requests = requests | more
        if Request.RESET_OPTIMIZER in requests:
            self.learner.optimizer.state.clear()
        if Request.RESET_REFERENCE in requests:
            raise ValueError("a control asked to reset the reference, which is the frozen base model in this version")
        self.step += 1
        ended = time.monotonic()
        metrics = {
            "reward": measured.reward,
            "success": measured.success,
            "entropy": measured.entropy,
            **{f"entropy_turn/{turn}": value for turn, value in enumerate(measured.entropy_turns)},
            **counts(trees),
            "loss": update.loss,
            "grad_norm": update.grad_norm,
            "drift": update.drift,
            "idle_paths": update.idle,
            **update.means,
            "refused": update.refused,
            "seconds": ended - began,
            "seconds_rollout": rolled - began,
        }
        return metrics, Request.STOP in requests

    def _lr_share(self) -> float:
        return 1 - (1 - self.lr_end) * self.step / max(self.steps - 1, 1)

    def _rollout(self, sampling: Sampling) -> list[Tree]:
        """Return the trees to learn from, and write all that were grown to the journal."""
        kept: list[Tree] = []
        grown: list[Tree] = []
        wanted, used = self.prompts, set[int]()
        for _ in range(REFILLS):
            tasks = self._tasks(min(wanted, task_count(self.env) - len(used)), used)
            trees = collect(
                self.actor, self.env, tasks, group=self.group, key=(self.seed, self.step), sampling=sampling
            )
            grown += trees
            verdicts = self.control.select(trees, self.state)
            kept += [tree for tree, verdict in zip(trees, verdicts, strict=True) if verdict is Verdict.KEEP]
            wanted = verdicts.count(Verdict.MORE)
            if not wanted:
                break
        write_trees(self.folder / "trees" / f"step-{self.step + 1:06d}.jsonl", grown)
        return shuffled_scores(kept, (self.seed, self.step)) if self.shuffle_rewards else kept

    def _tasks(self, count: int, used: set[int]) -> list[int]:
        """Return the next `count` tasks in shuffled order, without those that this step has used."""
        total = task_count(self.env)
        tasks: list[int] = []
        while len(tasks) < count:
            epoch, place = divmod(self.cursor, total)
            task = int(_order(self.seed, epoch, total)[place])
            self.cursor += 1
            if task not in used:
                used.add(task)
                tasks.append(task)
        return tasks

    def _save(self) -> None:
        data = {"cursor": self.cursor, "control": self.state, "version": self.learner.policy.version}
        checkpoint.save(self.folder / "checkpoints", self.step, data, self.learner.save)

    def _write(self, record: Record) -> Record:
        valid = {}
        if record.valid is not None:
            success = record.valid.success
            valid = {"valid/success": success.value, "valid/low": success.low, "valid/high": success.high}
            valid |= {"valid/tool_share": record.valid.tool_share, "valid/turns": record.valid.turns}
        line = {name: _number(value) for name, value in {"step": record.step, **record.metrics, **valid}.items()}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
        return record


def _number(value: Any) -> Any:
    """Return `value`, or None for a number that JSON has no word for."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _measures(update: Update) -> dict[str, Any]:
    return {name: update.means[name] for name in ("kl", "clip_low", "clip_high") if name in update.means}


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    """Return the order in which an epoch uses the tasks."""
    return np.random.default_rng((seed, epoch)).permutation(total)
