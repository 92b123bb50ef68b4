"""Toys of learning: batches written by hand, and a policy whose parameters are its logits. Float64 throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from turngym.envs import Outcome
from turngym.training.control.control import Control, State, advantages, scored
from turngym.training.data.batch import OUTCOMES, Batch, Current, Now, Turns
from turngym.training.loss.objective import objective, start_terms
from turngym.training.methods.advantage.less import TOKEN
from turngym.training.methods.advantage.ucas import CERTAIN, certainty
from turngym.training.methods.contrib.adr import COLUMN as EASY
from turngym.training.methods.contrib.aepo_he import COLUMN as REFLECTS
from turngym.training.methods.contrib.evol_rl import COLUMN
from turngym.training.methods.contrib.fr3e import STATE
from turngym.training.methods.contrib.seed_grpo import SPREAD
from turngym.training.methods.entropy.aent import CLAMPED, clamped
from turngym.training.methods.entropy.aepo_wang import FACTOR, POOL, tempered
from turngym.training.methods.entropy.one_shot_em import SHARP, sharpened
from turngym.training.methods.reward.adathink_med import DOUBT, LENGTH
from turngym.training.methods.reward.empo import AGREED
from turngym.training.methods.reward.ettrl import COLUMN as ELECTED
from turngym.training.methods.surrogate.flowrl import LOG_Z
from turngym.training.methods.surrogate.simko import LIKELY, likely

VOCABULARY = 5
PATHS = ((2, 1), (3,), (1, 2, 2), (2, 2), (1, 3))  # sampled tokens of each turn of each path
GROUPS = (0, 0, 1, 1, 1)
SCORES = (1.0, 0.0, 0.5, 1.0, float("nan"))
LABELS = (0.9, -0.6, 0.7, 1.0, -1.0)  # scores that a vote gives the paths
ENDS = (Outcome.DONE, Outcome.DONE, Outcome.TRUNCATED, Outcome.DONE, Outcome.INFRA_ERROR)


def f64(values: Sequence[float]) -> Tensor:
    """Return a float64 tensor."""
    return torch.tensor(values, dtype=torch.float64)


def build(
    paths: Sequence[Sequence[int]],
    *,
    logp_old: Sequence[float] | None = None,
    entropy: Sequence[float] | None = None,
    logp_ref: Sequence[float] | None = None,
    logp_roll: Sequence[float] | None = None,
    value: Sequence[float] | None = None,
    scores: Sequence[float] | None = None,
    groups: Sequence[int] | None = None,
    ends: Sequence[Outcome] | None = None,
) -> Batch:
    """Return a batch of `paths`, each the sampled tokens of its turns; scores, groups and ends are by path."""
    rows = [
        (path, turn, count) for path, turns in enumerate(paths) for turn, count in enumerate(turns)
    ]
    path, turn, count = (torch.tensor(column, dtype=torch.long) for column in zip(*rows))
    zero = torch.zeros_like(path)
    group = torch.tensor(groups or [0] * len(paths))[path]
    turns = Turns(
        task=group,
        group=group,
        path=path,
        node=torch.arange(len(rows)),
        turn=turn,
        anchor=zero,
        score=f64(scores or [0.0] * len(paths))[path],
        reward=zero.double(),
        outcome=torch.tensor([OUTCOMES.index(end) for end in ends or [Outcome.DONE] * len(paths)])[
            path
        ],
    )
    slots = int(count.sum())
    blank = [0.0] * slots
    return Batch(
        logp_old=f64(logp_old or blank),
        entropy=f64(entropy or blank),
        logp_roll=f64(logp_roll or logp_old or blank),
        path=path.repeat_interleave(count),
        row=torch.arange(len(rows)).repeat_interleave(count),
        token=torch.arange(slots),
        share=torch.ones(slots, dtype=torch.float64),
        phase=torch.zeros(slots, dtype=torch.long),
        kind=torch.zeros(slots, dtype=torch.long),
        n_paths=len(paths),
        turns=turns,
        logp_ref=None if logp_ref is None else f64(logp_ref),
        extras={} if value is None else {"value": f64(value)},
    )


@dataclass
class Toy:
    """A tabular policy: one row of logits a slot, and the batch it drew before its logits moved."""

    logits: Tensor  # [s, v]
    drawn: Tensor  # [s]
    batch: Batch

    def current(self, logits: Tensor, span: slice = slice(None)) -> Current:
        """Return what a policy of these logits says of the slots of a span."""
        return current_of(logits[span], self.drawn[span], self.batch.extras[LIKELY][span])

    def learn(
        self,
        control: Control,
        state: State,
        cuts: Sequence[range] | None = None,
        attached: bool = True,
    ) -> tuple[float, Tensor]:
        """Return the loss of one optimizer step and its gradient in the logits, summed over micro-batches."""
        terms, logits, total = (
            start_terms(advantages(control, self.batch, state)),
            self.logits.clone(),
            0.0,
        )
        batch = scored(control, self.batch, state)
        terms = control.shape(terms, batch, Now.at_start(batch), state)
        logits.requires_grad_()
        for paths in cuts or [range(batch.n_paths)]:
            span = batch.span(paths)
            current = self.current(logits, span)
            if not attached:
                current = replace(current, entropy=current.entropy.detach())
            part = objective(current, batch.slice(paths), terms.slice(span), batch.n_slots)
            part.backward()  # type: ignore[no-untyped-call]
            total += part.item()
        return total, torch.zeros_like(logits) if logits.grad is None else logits.grad


def sheet() -> tuple[Batch, Current, Tensor]:
    """Return the TOY batch of the base sheets: two paths of 3 and 2 tokens, the current policy, the advantage."""
    batch = build(
        [[3], [2]],
        logp_old=[-0.2, -1.5, -0.7, -0.9, -2.3],
        entropy=[0.3, 1.6, 0.9, 0.8, 1.9],
        logp_ref=[-0.3, -1.2, -0.8, -1.0, -2.2],
    )
    return (
        batch,
        Current(f64([-0.1, -1.1, -1.0, -1.3, -2.0]), batch.entropy),
        f64([1, 1, 1, -1, -1]),
    )


def make_toy(order: Sequence[int] = range(len(PATHS))) -> Toy:
    """Return the toy with its paths in `order`; each path's numbers depend on the path alone."""
    blocks = []
    for path in order:
        rng = torch.Generator().manual_seed(path)
        slots = sum(PATHS[path])
        new, old, ref = (
            torch.randn(slots, VOCABULARY, generator=rng, dtype=torch.float64) for _ in range(3)
        )
        drawn = torch.randint(VOCABULARY, (slots,), generator=rng)
        gap = torch.randn(slots, generator=rng, dtype=torch.float64)
        blocks.append((new, new + 0.4 * old, new + 0.4 * ref, drawn, gap))
    new, old, ref, drawn, gap = (torch.cat(column) for column in zip(*blocks))
    start, reference = current_of(old, drawn), current_of(ref, drawn)
    labels = f64([LABELS[path] for path in order])
    batch = build(
        [PATHS[path] for path in order],
        logp_old=start.logp.tolist(),
        entropy=start.entropy.tolist(),
        logp_ref=reference.logp.tolist(),
        logp_roll=(start.logp + 0.4 * gap).tolist(),
        scores=[SCORES[path] for path in order],
        groups=[GROUPS[path] for path in order],
        ends=[ENDS[path] for path in order],
    )
    columns = {
        COLUMN: labels,
        AGREED: labels.clamp(min=0),
        SPREAD: labels.abs(),
        ELECTED: (labels > 0).double(),
        STATE: 0 * labels,
        POOL: (labels.abs() < 0.75).double(),
        DOUBT: labels.abs(),
        LENGTH: 3 + labels,
        EASY: labels.abs(),
        REFLECTS: 1 + labels.abs(),
    }
    turns = replace(
        batch.turns, columns={name: column[batch.turns.path] for name, column in columns.items()}
    )
    return Toy(new, drawn, replace(batch, extras=start.extras, turns=turns))


def now_of(current: Current) -> Now:
    """Return the same values without gradient."""
    extras = {name: column.detach() for name, column in current.extras.items()}
    return Now(current.logp.detach(), current.entropy.detach(), extras)


def current_of(logits: Tensor, drawn: Tensor, before: Tensor | None = None) -> Current:
    """Return what a policy says of the tokens `drawn` [s] from its logits [s, v]."""
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    extras = {
        "value": logits.mean(-1),
        LOG_Z: logits.mean(-1),
        LIKELY: likely(3, logits, drawn, before),
    }
    extras |= {
        SHARP: sharpened(0.5, logits, drawn, None),
        CLAMPED: clamped(0.4, logits, drawn, None),
    }
    extras |= {CERTAIN: certainty(logits, drawn, None), TOKEN: drawn.to(logits)}
    extras |= {FACTOR: tempered(1.2, 0.8, logits, drawn, None)}
    return Current(logp.gather(-1, drawn[:, None])[:, 0], entropy, extras)
