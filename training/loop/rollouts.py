"""The rollouts of a step: trees are grown, selected and refilled."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from ...agents.cli.settings import Deadlines
from ...agents.engine import Sampling
from ...agents.evaluation.scores import Report, summarize_trees
from ...agents.journal.trees import origin_of
from ...agents.rollout.collect import collect, shuffled_scores
from ...agents.rollout.path import Actor
from ...agents.trajectory import Plan, Tree
from ...envs import TextEnv
from ...envs.split_episodes import begin
from ...tools.progress import Progress
from ..control.control import Control, Epoch, State, Verdict
from ..runs.folder import Logbook, RunState
from .distributed import Team
from .task_order import next_tasks, shuffled

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

    def train(
        self, at: RunState, control: Control, team: Team, logbook: Logbook
    ) -> tuple[list[Tree], list[Tree], int]:
        """Roll out the step behind a boundary, write its journal, return trees to learn from, all, and tasks used."""
        kept, grown, used = list[Tree](), list[Tree](), set[int]()
        cursor, wanted, state = at.cursor, self.prompts, at.state()
        ordered = control.order and partial(self._taken, control.order, state)
        total = len(ordered(0)) if ordered else len(self.tasks)
        asked, key = control.plan, (self.seed, at.step)
        plan: Plan | None = asked and (lambda tree, event, key: asked(tree, event, key, state))
        grow = partial(
            collect,
            self.actor,
            self.env,
            group=self.group,
            key=key,
            plan=plan,
            deadlines=self.deadlines,
        )
        grow = partial(grow, sampling=control.sample(self.sampling, state))
        for _ in range(REFILLS):
            tasks, cursor = next_tasks(
                self.seed, total, cursor, min(wanted, total - len(used)), used, ordered
            )
            used.update(tasks)
            trees = team.grow(
                grow, [self.tasks[i] for i in tasks], partial(logbook.add_incident, at.step + 1)
            )
            grown += trees
            verdicts = control.select(trees, state)
            kept += [
                tree
                for tree, verdict in zip(trees, verdicts, strict=True)
                if verdict is Verdict.KEEP
            ]
            wanted = verdicts.count(Verdict.MORE)
            if not wanted:
                break
        logbook.add_trees(at.step + 1, grown, origin_of(self.env))
        return shuffled_scores(kept, key) if self.shuffle_rewards else kept, grown, cursor

    def _taken(
        self, order: Callable[[Epoch, State], Sequence[int]], state: State, epoch: int
    ) -> list[int]:
        """Return the places of the tasks that a control takes in a pass, in its order. Raises ValueError: too few."""
        place = {
            self.tasks[index]: index
            for index in shuffled(self.seed, epoch, len(self.tasks)).tolist()
        }
        found = [place[task] for task in order(Epoch(tuple(place), self.prompt), state)]
        if len(found) < self.prompts:
            raise ValueError(
                f"prompts is {self.prompts}, but the methods leave {len(found)} tasks; use fewer prompts"
            )
        return found

    def prompt(self, task: int) -> str:
        with closing(self.env.fork()) as twin:
            return begin(twin, task, self.seed)[0]

    def validate(self, at: RunState, team: Team, logbook: Logbook) -> Report:
        """Return how the policy does on the held-out tasks; the same tasks and keys every time."""
        grow = partial(collect, self.actor, self.valid_env, group=1, key=(self.seed, VALIDATION))
        grow = partial(grow, sampling=self.sampling, deadlines=self.deadlines)
        with Progress("validation"):
            trees = team.grow(grow, self.valid_tasks, partial(logbook.add_incident, at.step))
            return summarize_trees(trees)
