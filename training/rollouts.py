"""The rollouts of a run: trees to learn from, and validations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ..agents.engine import Sampling
from ..agents.evaluate import task_count
from ..agents.journal import origin_of
from ..agents.rollout.branching import Plan
from ..agents.rollout.collect import collect, shuffled_scores
from ..agents.rollout.deadlines import Deadlines
from ..agents.rollout.path import Actor
from ..agents.scores import Report, from_trees, summarize
from ..agents.settings import DeadlineOptions
from ..agents.trajectory import Tree
from ..envs import TextEnv
from .control import Control, Verdict
from .parallel import Team
from .run_folder import Boundary, Logbook
from .schedule import next_tasks

VALIDATION = -1  # takes the place of the step in keys: every validation draws the same way
REFILLS = 8  # rollouts a step may ask for in place of dropped trees


@dataclass(frozen=True)
class Rolled:
    """What a step rolled out."""

    kept: list[Tree]  # to learn from
    grown: list[Tree]  # all, dropped ones included
    cursor: int  # tasks that the run has used by then


@dataclass(frozen=True)
class Rollouts:
    """Who acts, where, and how much of it makes a step."""

    actor: Actor
    env: TextEnv
    valid_env: TextEnv
    valid_tasks: list[int]
    sampling: Sampling
    seed: int
    prompts: int
    group: int
    shuffle_rewards: bool = False
    deadlines: Deadlines = field(default_factory=Deadlines)
    retries: int = DeadlineOptions.retries

    def train(self, at: Boundary, control: Control, team: Team, logbook: Logbook) -> Rolled:
        """Roll out the step behind a boundary, and write its journal."""
        kept: list[Tree] = []
        grown: list[Tree] = []
        cursor, wanted, total = at.cursor, self.prompts, task_count(self.env)
        state, asked = at.state(), control.plan
        sampling, key = control.sample(self.sampling, state), (self.seed, at.step)
        plan: Plan | None = None if asked is None else lambda tree, event, key: asked(tree, event, key, state)
        grow = self._collector(self.env, self.group, key, sampling, plan)
        used: set[int] = set()
        for _ in range(REFILLS):
            tasks, cursor = next_tasks(self.seed, total, cursor, min(wanted, total - len(used)), used)
            used.update(tasks)
            trees = team.grow(grow, tasks, partial(logbook.add_incident, at.step + 1))
            grown += trees
            verdicts = control.select(trees, state)
            kept += [tree for tree, verdict in zip(trees, verdicts, strict=True) if verdict is Verdict.KEEP]
            wanted = verdicts.count(Verdict.MORE)
            if not wanted:
                break
        logbook.add_trees(at.step + 1, grown, origin_of(self.env))
        return Rolled(shuffled_scores(kept, key) if self.shuffle_rewards else kept, grown, cursor)

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
            retries=self.retries,
        )
