"""SENT (arXiv 2512.04359): certain tokens of extreme covariance are held where they were, easy tasks come first.

Knob: KL, sampling (order of tasks). Among the `low` share of tokens of the lowest entropy, K = max(1, ⌊share·n⌋):

    loss = -r·A + coef·2·|logp - logp_old| on the K of highest covariance, + coef·0.5·… on the K of lowest;  no clip
    cov = (A - mean A)·(logp - mean logp) over these tokens; a token that is both counts as lowest
    curriculum: SE = -Σ p_c·ln p_c of a task's different answers; first the half of the tasks of low SE, then the other

Defaults: low 0.8, share 0.0002, coef 0.1, no curriculum: released configuration (the function's own default is 1).
Evidence: A, read in released code (zldscr0/SENT, `compute_policy_loss_low_entropy_kl_cov_v2`); its paper holds all
low-entropy tokens. Answers are one where the environment's grader says that they are the same.
Deviations: ranks are those of the optimizer step. The curriculum is of the tasks that the first `measure` steps met,
where the paper asks the first policy about all.
Note: |logp - logp_old| has no slope in the first optimizer step on a rollout, so it needs --updates 2 or more.
"""

from collections import Counter
from math import log

import torch

from ....agents.evaluation.votes import Same
from ...control.parameters import Count, NonNegative, Share, checked
from ...data.packing import Vote
from ...loss.credit import earned
from ...loss.objective import moved
from ...loss.surrogates import covariance, unclipped
from ..base import (
    Batch,
    Control,
    Epoch,
    Needs,
    Now,
    Penalty,
    Requests,
    Sets,
    State,
    Stats,
    Terms,
    Tree,
    Whole,
    replace,
)
from ..reward.empo import answers

HIGHEST, LOWEST, COLUMN = 2.0, 0.5, "sent"


@checked
def sent(
    *,
    low: Share = 0.8,
    share: Share = 0.0002,
    coef: NonNegative = 0.1,
    measure: Whole = 0,
    steps: Count = 150,
) -> Control:
    """Return SENT's token loss and, with `measure`, its curriculum; `steps` is the run's. State: step, SE by task."""

    def order(tasks: Epoch, state: State) -> list[int]:
        if state["step"] < measure:
            return list(tasks.order)
        known = sorted(state["spread"], key=lambda task: (state["spread"][task], int(task)))
        half, second = len(known) // 2, state["step"] >= (measure + steps) / 2
        kept = {int(task) for task in (known[half:] if second else known[:half])}
        return [task for task in tasks.order if task in kept]

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        found = (
            stats.columns.get(COLUMN, {})
            if stats.phase == "rollout" and stats.step < measure
            else {}
        )
        spread = {str(key[2]): value for key, value in found.items()}
        return {"step": stats.step + 1, "spread": state["spread"] | spread}, Requests()

    def shape(terms: Terms, batch: Batch, now: Now, state: State) -> Terms:
        learned = earned(batch)
        kept = min(max(1, int(low * int(learned.sum()))), int(learned.sum()))
        certain = torch.zeros_like(learned)
        certain[torch.where(learned, now.entropy, torch.inf).topk(kept, largest=False).indices] = (
            True
        )
        cov, count = (
            covariance(terms.advantage, now.logp, certain),
            min(max(1, int(share * kept)), kept),
        )
        cost = torch.zeros_like(cov).index_fill(0, cov.topk(count).indices, coef * HIGHEST)
        lowest = torch.where(certain, cov, torch.inf).topk(count, largest=False).indices
        cost = cost.index_fill(0, lowest, coef * LOWEST) * terms.scale / max(batch.n_slots, 1)
        return replace(
            terms, surrogate=unclipped, penalties=(*terms.penalties, Penalty("sent", cost, moved))
        )

    start, sets = {"step": 0, "spread": {}}, frozenset[Sets]({"surrogate", "clip"})
    needs, rule = (
        Needs(now=True, columns={COLUMN: spreads} if measure else {}),
        order if measure else None,
    )
    return Control(
        name="sent",
        needs=needs,
        sets=sets,
        init=start.copy,
        order=rule,
        shape=shape,
        observe=observe,
    )


@Vote
def spreads(tree: Tree, same: Same) -> list[float]:
    """Return SE (nats) of the answers of a tree, for each leaf."""
    counts = Counter(answer for _, answer in answers(tree, same))
    return [semantic(list(counts.values()))] * len(tree.leaves)


def semantic(counts: list[int]) -> float:
    """Return SE (nats) of how often each answer was given."""
    return sum(-own / sum(counts) * log(own / sum(counts)) for own in counts)
