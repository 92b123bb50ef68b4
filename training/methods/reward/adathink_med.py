"""AdaThink-Med (arXiv 2509.24560): right answers to easy tasks earn more if short, wrong ones to hard tasks if long.

Knob: reward. How hard a task is follows from how often and how surely it is solved.

    e_i: log(1 + mean of the path's `top` share of entropies), brought to 0 … 1 over the batch
    d = 1 - mean_i( y_i·(1 - e_i)·alpha + (1 - alpha)·y_i );   easy where d < θ;   θ: mean of the `quantile` of d
    easy and right: max(0, 1 - len/L·(0.5 + 0.5·(1 - e)));   hard and wrong: min(1, len/L·(0.5 + 0.5·(1 - e)) - 1)
    score ← score + weight·that;   θ, and L of easy and of hard tasks, are moving averages that keep `ema`

Defaults: alpha 0.5, quantile 0.7, ema 0.9, weight 0.5, top 0.2: released script.
Evidence: A, read in released code (shaohao011/AdaThinkMed, `length_reward_func.py`).
Deviations: its rewards for format and against repetition are not here; the confidence of a path is taken as 1 - e.
Off: weight 0.
"""

from collections.abc import Mapping, Sequence
from math import log1p
from statistics import fmean

import numpy as np
import torch

from ...control.parameters import NonNegative, Share, checked
from ..base import Batch, Control, Flags, Key, Needs, Requests, Rows, State, Stats, Tree, Vector

DOUBT, LENGTH = "adathink-doubt", "adathink-length"


@checked
def adathink_med(
    *,
    alpha: Share = 0.5,
    quantile: Share = 0.7,
    ema: Share = 0.9,
    weight: NonNegative = 0.5,
    top: Share = 0.2,
) -> Control:
    """Return the reward. State: θ, L by kind of task (tokens), and which tasks of this step are easy."""

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase != "rollout" or not weight or not stats.columns:
            return state, Requests()
        doubt = dict(zip(stats.columns[DOUBT], spread(list(stats.columns[DOUBT].values()))))
        hard = difficulty(stats.scores, doubt, alpha)
        now = float(np.quantile(list(hard.values()), quantile))
        theta = now if state["theta"] is None else ema * state["theta"] + (1 - ema) * now
        expected = dict(state["expected"])
        for name in ("easy", "hard"):
            of_kind = (
                key for key in stats.columns[LENGTH] if (hard[key[:-1]] < theta) == (name == "easy")
            )
            if own := [stats.columns[LENGTH][key] for key in of_kind]:
                old = expected[name]
                expected[name] = ema * old + (1 - ema) * fmean(own) if old else fmean(own)
        easy = sorted({key[-1] for key, value in hard.items() if value < theta})
        return {"theta": theta, "expected": expected, "easy": easy}, Requests()

    def reward(batch: Batch, state: State) -> Rows:
        turns, expected = batch.turns, state["expected"]
        begins = (turns.turn == 0) & turns.rewarded
        if not weight or not (expected["easy"] or expected["hard"]) or not begins.any():
            return turns.score
        easy = torch.isin(turns.task, turns.task.new_tensor(state["easy"]))
        most = torch.where(easy, expected["easy"], expected["hard"]).clamp(min=1e-9)
        known = turns.columns[DOUBT].double()
        low, high = known[begins].min(), known[begins].max()
        sure = 1 - (known - low) / (high - low + 1e-8)
        bonus = by_length(easy, turns.score >= 1, turns.columns[LENGTH].double() / most, sure)
        return (turns.score + weight * bonus).to(turns.score)

    needs = Needs(
        columns={DOUBT: lambda tree: doubts(tree, top), LENGTH: lengths} if weight else {}
    )
    start: State = {"theta": None, "expected": {"easy": 0.0, "hard": 0.0}, "easy": []}
    return Control(
        name="adathink-med", needs=needs, init=start.copy, observe=observe, reward=reward
    )


def spread(doubt: Sequence[float]) -> list[float]:
    """Return e of each path: its doubt, brought to 0 … 1."""
    low, high = min(doubt), max(doubt)
    return [(own - low) / (high - low + 1e-8) for own in doubt]


def difficulty(
    scores: Mapping[Key, float], doubt: Mapping[Key, float], alpha: float
) -> dict[Key, float]:
    """Return d of each group, by the keys of its paths without their branch."""
    sure = dict[Key, list[float]]()
    for key, score in scores.items():
        right = float(score >= 1)
        sure.setdefault(key[:-1], []).append(
            right * (1 - doubt.get(key, 1.0)) * alpha + (1 - alpha) * right
        )
    return {group: 1 - fmean(own) for group, own in sure.items()}


def by_length(easy: Flags, right: Flags, length: Vector, sure: Vector) -> Vector:
    """Return the reward of paths whose length is a share of what is expected."""
    cost = length * (0.5 + 0.5 * sure)
    return torch.where(
        easy & right,
        (1 - cost).clamp(min=0),
        torch.where(~easy & ~right, (cost - 1).clamp(max=1), 0.0),
    )


def doubts(tree: Tree, top: float) -> list[float]:
    """Return log(1 + mean of the `top` share of entropies) of each leaf's path."""
    found = []
    for leaf in tree.leaves:
        turns = [tree.turns[node] for node in tree.replies(leaf)]
        drawn = np.sort(
            np.concatenate([np.zeros(1), *(turn.entropy[turn.sampled] for turn in turns)])
        )[::-1]
        found.append(log1p(float(drawn[: max(int(top * (len(drawn) - 1)), 1)].mean())))
    return found


def lengths(tree: Tree) -> list[float]:
    """Return how many tokens were drawn of each leaf's path."""
    return [
        float(sum(tree.turns[node].sampled.sum() for node in tree.replies(leaf)))
        for leaf in tree.leaves
    ]
