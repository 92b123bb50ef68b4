"""A training step: a rollout, and what is learned from it: statistics, gradient, optimizer steps, control state."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..agents.engine import Sampling
from ..agents.journal import Incident, origin_of
from ..agents.rollout.collect import collect, shuffled_scores
from ..agents.rollout.path import Actor
from ..agents.scores import Report, from_trees, summarize
from ..agents.settings import Deadlines
from ..agents.trajectory import Plan, Tree
from ..envs import TextEnv
from .columns import NothingToLearn, Packed, pack
from .config import Schedule
from .control import Control, Request, Requests, Stats, Verdict
from .learner import Learner, Update
from .parallel import Team
from .run_folder import Boundary, Logbook, to_line, to_text
from .telemetry import counts, stats

VALIDATION = -1  # takes the place of the step in keys: every validation draws the same way
REFILLS = 8  # rollouts a step may ask for in place of dropped trees


@dataclass(frozen=True)
class Rollouts:
    """Who acts, where, and how much of it makes a step."""

    actor: Actor
    env: TextEnv
    tasks: Sequence[int]
    valid_env: TextEnv
    valid_tasks: list[int]
    sampling: Sampling
    seed: int
    prompts: int
    group: int
    shuffle_rewards: bool = False
    deadlines: Deadlines = Deadlines()

    def train(self, at: Boundary, control: Control, team: Team, logbook: Logbook) -> tuple[list[Tree], list[Tree], int]:
        """Roll out the step behind a boundary, and write its journal.

        Return the trees to learn from, all trees, and how many tasks the run has used by then.
        """
        kept: list[Tree] = []
        grown: list[Tree] = []
        cursor, wanted, total = at.cursor, self.prompts, len(self.tasks)
        state, asked = at.state(), control.plan
        sampling, key = control.sample(self.sampling, state), (self.seed, at.step)
        plan: Plan | None = None if asked is None else lambda tree, event, key: asked(tree, event, key, state)
        grow = self._collector(self.env, self.group, key, sampling, plan)
        used: set[int] = set()
        for _ in range(REFILLS):
            tasks, cursor = next_tasks(self.seed, total, cursor, min(wanted, total - len(used)), used)
            used.update(tasks)
            trees = team.grow(grow, [self.tasks[i] for i in tasks], partial(logbook.add_incident, at.step + 1))
            grown += trees
            verdicts = control.select(trees, state)
            kept += [tree for tree, verdict in zip(trees, verdicts, strict=True) if verdict is Verdict.KEEP]
            wanted = verdicts.count(Verdict.MORE)
            if not wanted:
                break
        logbook.add_trees(at.step + 1, grown, origin_of(self.env))
        return shuffled_scores(kept, key) if self.shuffle_rewards else kept, grown, cursor

    def validate(self, at: Boundary, team: Team, logbook: Logbook) -> Report:
        """Return how the policy does on the held-out tasks; the same tasks and keys every time."""
        grow = self._collector(self.valid_env, 1, (self.seed, VALIDATION), self.sampling)
        return summarize(from_trees(team.grow(grow, self.valid_tasks, partial(logbook.add_incident, at.step))))

    def _collector(
        self, env: TextEnv, group: int, key: tuple[int, int], sampling: Sampling, plan: Plan | None = None
    ) -> partial[list[Tree]]:
        return partial(
            collect,
            self.actor,
            env,
            group=group,
            key=key,
            sampling=sampling,
            plan=plan,
            deadlines=self.deadlines,
        )


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


def next_tasks(seed: int, total: int, cursor: int, count: int, used: Set[int]) -> tuple[list[int], int]:
    """Return the next `count` of `total` tasks in shuffled order, and the cursor behind them.

    Args:
        seed: Of the run; each pass through the tasks has an order of its own.
        total: Number of tasks.
        cursor: Tasks that the run has used so far.
        count: How many; at most those that are not in `used`.
        used: Tasks to leave out.
    """
    tasks: list[int] = []
    while len(tasks) < count:
        epoch, place = divmod(cursor, total)
        task = int(_order(seed, epoch, total)[place])
        cursor += 1
        if task not in used and task not in tasks:
            tasks.append(task)
    return tasks, cursor


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, epoch)).permutation(total)
