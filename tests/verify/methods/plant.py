"""A toy plant of entropy: a tabular policy that learns by a method, fast enough to see where its entropy goes.

A task is right where two of its six tokens are the task's own. Everything a `Control` sees is there but for trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from turngym.agents.engine import Sampling
from turngym.tests.support.toy import build, current_of, now_of
from turngym.training.control.chain import chain
from turngym.training.control.control import Control, State, Stats, advantages, scored
from turngym.training.data.batch import At, Batch, Now
from turngym.training.loss.aggregation import average
from turngym.training.loss.objective import objective, start_terms
from turngym.training.methods import parse_methods
from turngym.training.methods.contrib.adr import COLUMN as EASY
from turngym.training.methods.contrib.aepo_he import COLUMN as REFLECTS
from turngym.training.methods.contrib.evol_rl import COLUMN
from turngym.training.methods.contrib.fr3e import STATE
from turngym.training.methods.contrib.seed_grpo import SPREAD
from turngym.training.methods.reward.adathink_med import DOUBT, LENGTH
from turngym.training.methods.reward.empo import AGREED
from turngym.training.methods.reward.ettrl import COLUMN as ELECTED
from turngym.training.methods.sampling.em_inf import COLUMN as COOLED
from turngym.training.methods.sampling.em_inf import cooled
from turngym.training.methods.surrogate.simko import LIKELY

TASKS, GROUP, TURNS, WIDTH, VOCABULARY = 5, 8, (3, 3), 6, 6
NEEDED = 2  # of a path's tokens


@dataclass
class Plant:
    """The policy, and what it was in the beginning; `lr` is of plain gradient descent on its logits."""

    seed: int = 0
    lr: float = 60.0
    updates: int = 1  # optimizer steps on each rollout
    noise: float = 0.0  # share of paths whose score is a coin's, so that groups never agree
    entropies: list[float] = field(default_factory=list)  # nats, of the policy before each step
    added: float = (
        0.0  # length of what the method adds to the gradient of the base, summed over steps
    )
    plain: float = 0.0  # length of the gradient of the base

    def __post_init__(self) -> None:
        self.rng = torch.Generator().manual_seed(self.seed)
        shape = (TASKS, WIDTH, VOCABULARY)
        self.logits = 0.5 * torch.randn(shape, generator=self.rng, dtype=torch.float64)
        self.first = self.logits.clone()
        self.gold = torch.randint(VOCABULARY, (TASKS, WIDTH), generator=self.rng)

    def run(self, method: str, base: str, steps: int) -> Plant:
        """Learn by `method` for some steps; `base` is what it is compared with."""
        known = {"steps": steps, "group": GROUP, "vocabulary": VOCABULARY}
        control, plain = (chain(*parse_methods(text, known)) for text in (method, base))
        state: State = control.init()
        for step in range(steps):
            state = self._step(control, state, plain, step, steps)
        return self

    def _step(self, control: Control, state: State, plain: Control, step: int, steps: int) -> State:
        task = torch.arange(TASKS).repeat_interleave(GROUP)
        heat = control.sample(Sampling(), state).temperature
        rows = self.logits[task].reshape(-1, VOCABULARY)
        dice = torch.rand(
            len(rows), 1, generator=self.rng, dtype=torch.float64
        )  # the same whatever the policy
        drawn = ((rows / heat).softmax(-1).cumsum(-1) < dice).sum(-1).clamp(max=VOCABULARY - 1)
        batch = self._batch(task, drawn, rows, At(self.seed, step, steps))
        self.entropies.append(
            -(self.logits.softmax(-1) * self.logits.log_softmax(-1)).sum(-1).mean().item()
        )
        measured = self._stats(step, batch)
        state, _ = control.observe(measured, state)
        for update in range(self.updates):
            gradient = self._gradient(control, state, batch, task, drawn, update)
            if not update:
                own = self._gradient(plain, plain.init(), batch, task, drawn, 0)
                self.added, self.plain = (
                    self.added + float((gradient - own).norm()),
                    self.plain + float(own.norm()),
                )
            self.logits -= self.lr * gradient
            last = update + 1 == self.updates
            state, _ = control.observe(replace(measured, phase="update", last=last), state)
        return state

    def _batch(self, task: Tensor, drawn: Tensor, rows: Tensor, at: At) -> Batch:
        right = (drawn.view(-1, WIDTH) == self.gold[task]).sum(1)
        score = (right >= NEEDED).double()
        if self.noise:
            coin = torch.rand(2, len(task), generator=self.rng, dtype=torch.float64)
            score = torch.where(coin[0] < self.noise, (coin[1] < 0.5).double(), score)
        start = current_of(rows, drawn)
        batch = build(
            [TURNS] * len(task),
            logp_old=start.logp.tolist(),
            entropy=start.entropy.tolist(),
            logp_ref=current_of(self.first[task].reshape(-1, VOCABULARY), drawn).logp.tolist(),
            scores=score.tolist(),
            groups=task.tolist(),
        )
        path = batch.turns.path
        mean = score.view(TASKS, GROUP).mean(1).repeat_interleave(GROUP)
        agreed = torch.where(score > 0, mean, 1 - mean)
        voted = torch.where(score > 0, mean > 0.5, mean < 0.5).double()
        spread = -(
            mean * mean.clamp(min=1e-9).log() + (1 - mean) * (1 - mean).clamp(min=1e-9).log()
        )
        columns = {
            COLUMN: 2 * voted - 1,
            AGREED: agreed,
            ELECTED: voted,
            SPREAD: spread,
            STATE: 0 * score,
            DOUBT: 1 - agreed,
        }
        columns |= {LENGTH: 6 + 0 * score, EASY: agreed, REFLECTS: 3 + 0 * score}
        turns = replace(
            batch.turns, columns={name: column[path] for name, column in columns.items()}
        )
        extras = {**start.extras, COOLED: cooled(0.2, rows, drawn, None)}
        return replace(batch, extras=extras, turns=turns, at=at)

    def _stats(self, step: int, batch: Batch) -> Stats:
        mean = batch.entropy.mean().item()
        score = batch.turns.score[:: len(TURNS)].tolist()
        keys = [(self.seed, step, path // GROUP, path % GROUP) for path in range(len(score))]
        named = {
            name: column.mean().item() for name, column in batch.extras.items() if column.ndim == 1
        }
        return Stats(
            step,
            "rollout",
            entropy=mean,
            entropy_turns=tuple(
                batch.entropy[batch.turn == turn].mean().item() for turn in range(len(TURNS))
            ),
            entropy_nested=float(average("turn-mean", batch.entropy, batch)),
            entropy_sampled=-batch.logp_old.mean().item(),
            reward=fmean(score),
            success=fmean(score),
            scores=dict(zip(keys, score)),
            columns={
                name: dict(zip(keys, column[:: len(TURNS)].tolist()))
                for name, column in batch.turns.columns.items()
            },
            extras={f"extras/{name}": value for name, value in named.items()},
        )

    def _gradient(
        self, control: Control, state: State, batch: Batch, task: Tensor, drawn: Tensor, update: int
    ) -> Tensor:
        """Return the gradient of an optimizer step in the logits."""
        batch = replace(batch, at=batch.at._replace(update=update))
        logits = self.logits.clone().requires_grad_()
        current = current_of(logits[task].reshape(-1, VOCABULARY), drawn, batch.extras[LIKELY])
        terms = start_terms(advantages(control, batch, state))
        batch = scored(control, batch, state)
        now = now_of(current) if update else Now.at_start(batch)
        loss = objective(current, batch, control.shape(terms, batch, now, state), batch.n_slots)
        (gradient,) = torch.autograd.grad(loss, logits)
        return gradient


def settled(values: list[float]) -> float:
    """Return the mean of the last third."""
    return fmean(values[-max(len(values) // 3, 1) :])
