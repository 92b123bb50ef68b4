"""Self-imitation with entropy management (SPEAR, arXiv 2509.22601).

Knob: sampling (replay) and reward. Paths that did better than their group are kept and learned from once more, weakly
at first and at full strength later, judged anew by what groups have come to earn; and a bonus for turns fades out.

    kept: paths with score > mean of their group, for `age` steps
    when more than 1.5·size are kept: min(size, the largest power of two there is) of them at random, and the rest goes
    A' = score - median of the means of past groups, where that is 0 or more
    loss of an optimizer step of its own: gamma(s)·PPO, gamma(s) = coef·(1 - cos(π·s/warm))/2, coef from step `warm` on
    Clip-Cov on it: `share` of the tokens, drawn from those with low < (A' - mean)·(logp - mean) < high, are left out
    score ← score + min(1, bonus·turns)·(1 + cos(π·s/fade))/2 up to step `fade`

Defaults: size 2048, age 10, coef 1, warm 200, bonus 0.1, fade 100, share 0.02, low 1, high 40, clip 0.2 / 0.28, a
history of 10240 groups: released scripts (ALFWorld: warm 100). To be used with grpo:normalize=none,clip_high=0.28.
Evidence: A, read in released code (TencentYoutuResearch/SPEAR, verl-agent).
Deviations: what is kept is where a path lies in the run's journals, with its score; the journals are read again. Scores
are those that the environment paid, before the bonus. The replay has neither KL nor an entropy bonus, and statistics
of all its tokens. Not there: A' over the median of stds, and A' = w·A.
Off: coef 0 and bonus 0.
Axis: paths; a token that paths share counts once for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import cos, inf, pi
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...agents.engine import keyed_rng
from ...agents.trajectory import Key
from ..columns import Batch, Now, Terms
from ..control import Control, Replay, Requests, State, Stats
from ..objective import CLIP, hold
from ..parameters import require

SALT = 0x5BEA  # parts its draws from those of tokens


def spear(
    *,
    size: int = 2048,
    age: int = 10,
    coef: float = 1.0,
    warm: int = 200,
    bonus: float = 0.1,
    fade: int = 100,
    share: float = 0.02,
    low: float = 1.0,
    high: float = 40.0,
    clip_high: float = 0.28,
    groups: int = 10240,
) -> Control:
    """Return SPEAR's replay and bonus; `size` is in paths, `age`, `warm` and `fade` in training steps.

    State: the step, the paths kept, the means of past groups by step, and the paths to replay in this step. Raises
    ValueError on a bad parameter.
    """
    for name, value in (("size", size), ("age", age), ("warm", warm), ("fade", fade), ("groups", groups)):
        require(value >= 1, "spear", name, value, "at least 1")
    for name, number in (("coef", coef), ("bonus", bonus), ("clip_high", clip_high)):
        require(0 <= number < inf, "spear", name, number, "0 or more")
    require(0 <= share <= 1, "spear", "share", share, "between 0 and 1")
    require(low < high, "spear", "high", high, f"above low, which is {low}")

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase == "rollout":
            kept, means = better(stats.scores)
            fresh = [row for row in state["kept"] if row[1] >= stats.step - age]
            history = newest([*state["history"], *([means] if means else [])], groups)
            return {"step": stats.step, "kept": fresh + kept, "history": history, "again": []}, Requests()
        if not stats.last or not coef or len(state["kept"]) <= 1.5 * size:
            return state, Requests()
        return {**state, "kept": [], "again": chosen(state["kept"], size, stats.step)}, Requests()

    def again(state: State) -> Replay | None:
        advantage = recalibrated(state["again"], state["history"])
        clip = partial(replayed, gamma(state["step"], warm, coef), clip_high, share, low, high, state["step"])
        return Replay(advantage, clip) if advantage else None

    def reward(batch: Batch, state: State) -> Float[Tensor, "r"]:
        turns = torch.bincount(batch.turns.path)[batch.turns.path]
        return batch.turns.score + tool_weight(state["step"], fade) * (bonus * turns).clamp(max=1)

    return Control(
        name="spear",
        sets=frozenset({"replay"}),
        init=lambda: {"step": 0, "kept": [], "history": [], "again": []},
        reward=reward,
        observe=observe,
        replay=again,
    )


def better(scores: Mapping[Key, float]) -> tuple[list[list[Any]], list[float]]:
    """Return key and score of each path above its group's mean, and the means of the groups."""
    members: dict[Key, list[float]] = {}
    for key, score in scores.items():
        members.setdefault(key[:-1], []).append(score)
    means = {group: sum(own) / len(own) for group, own in members.items()}
    kept = [
        [*key, score] for key, score in scores.items() if score > means[key[:-1]] and min(members[key[:-1]]) < score
    ]
    return kept, list(means.values())


def newest(history: list[list[float]], most: int) -> list[list[float]]:
    """Return the last steps of `history` that hold at most `most` groups together."""
    while sum(map(len, history)) > most:
        history = history[1:]
    return history


def chosen(kept: list[list[Any]], size: int, step: int) -> list[list[Any]]:
    """Return min(size, the largest power of two there is) of what is kept, at random, in its order."""
    count = min(size, 1 << (len(kept).bit_length() - 1))
    drawn = keyed_rng((int(kept[0][0]), step, SALT)).choice(len(kept), count, replace=False)
    return [kept[place] for place in sorted(drawn.tolist())]


def recalibrated(rows: list[list[Any]], history: list[list[float]]) -> dict[Key, float]:
    """Return A' of each path of which it is not below 0; none where there is no history."""
    means = [mean for step in history for mean in step]
    typical = float(np.median(means)) if means else inf
    return {tuple(key): score - typical for *key, score in rows if score >= typical}


def gamma(step: int, warm: int, coef: float = 1.0) -> float:
    """Return the strength of a replay in training step `step`."""
    return coef * (1 - cos(pi * step / warm)) / 2 if step <= warm else coef


def tool_weight(step: int, fade: int) -> float:
    """Return what is left of the bonus in training step `step`."""
    return (1 + cos(pi * step / fade)) / 2 if step <= fade else 0.0


def replayed(
    strength: float,
    clip_high: float,
    share: float,
    low: float,
    high: float,
    step: int,
    terms: Terms,
    batch: Batch,
    now: Now,
) -> Terms:
    """Return the terms of a replay: `strength`, the clip, and nothing of the tokens that Clip-Cov leaves out."""
    left = left_out(terms.advantage, now.logp, batch.logp_old, CLIP, clip_high, share, low, high, step)
    terms = hold(terms, CLIP, clip_high)
    return replace(terms, weight=terms.weight * torch.where(left, 0.0, strength))


def left_out(
    advantage: Float[Tensor, "s"],
    logp: Float[Tensor, "s"],
    logp_old: Float[Tensor, "s"],
    clip_low: float,
    clip_high: float,
    share: float,
    low: float,
    high: float,
    step: int,
) -> Bool[Tensor, "s"]:
    """Return which slots Clip-Cov (arXiv 2505.22617) leaves out: drawn from those inside the bounds and not clipped.

    max(share·N, 1) of them, or all there are; none where there are none.
    """
    ratio = (logp - logp_old).clamp(-20, 20).exp()
    clipped = torch.where(advantage > 0, ratio > 1 + clip_high, (advantage < 0) & (ratio < 1 - clip_low))
    covariance = (advantage - advantage.mean()) * (logp - logp.mean())
    (open_,) = torch.nonzero((low < covariance) & (covariance < high) & ~clipped, as_tuple=True)
    count = min(max(int(share * len(logp)), 1), len(open_)) if share else 0
    drawn = keyed_rng((step, SALT, 1)).permutation(len(open_))[:count]
    left = torch.zeros_like(clipped)
    left[open_[torch.from_numpy(drawn)]] = True
    return left
