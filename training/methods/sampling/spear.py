"""Self-imitation with entropy management (SPEAR, arXiv 2509.22601).

Knob: sampling (replay) and reward. Paths that did better than their group are kept and learned from once more, weakly
at first, judged anew by what groups have come to earn; and a bonus for turns fades out.

    kept: paths with score > mean of their group, for `age` steps
    when more than 1.5·size are kept: min(size, the largest power of two there is) of them at random, and the rest goes
    A' = score - median of the means of past groups, where that is 0 or more
    loss of an optimizer step of its own: gamma(s)·PPO, gamma(s) = coef·(1 - cos(π·s/warm))/2, coef from step `warm` on
    Clip-Cov on it: `share` of the tokens, drawn from those with low < (A' - mean)·(logp - mean) < high, are left out
    score ← score + min(1, bonus·turns)·(1 + cos(π·s/fade))/2 up to step `fade`

Defaults: size 2048, age 10, coef 1, warm 200, bonus 0.1, fade 100, share 0.02, low 1, high 40, clip 0.2 / 0.28, a
history of 10240 groups: released scripts (ALFWorld: warm 100). To be used with grpo:normalize=none,clip_high=0.28.
Evidence: A, read in released code (TencentYoutuResearch/SPEAR, verl-agent).
Deviations: scores are those before the bonus; tokens are read from the run's journals again. The replay has neither KL
nor an entropy bonus. Not there: A' over the median of stds, and A' = w·A.
Off: coef 0 and bonus 0.
"""

from collections.abc import Mapping
from math import cos, inf, pi
from statistics import median
from typing import Any

import torch

from ....agents.engine import keyed_rng
from ...control.parameters import Count, Finite, NonNegative, Share, checked, require
from ...loss.objective import CLIP
from ...loss.surrogates import clip_cov, hold
from ..base import (
    Batch,
    Control,
    Key,
    Now,
    Replay,
    Requests,
    Rows,
    Sets,
    State,
    Stats,
    Terms,
    Unbounded,
    replace,
)

SALT = 0x5BEA  # parts its draws from those of tokens


@checked
def spear(
    *,
    size: Count = 2048,
    age: Count = 10,
    coef: NonNegative = 1.0,
    warm: Count = 200,
    bonus: NonNegative = 0.1,
    fade: Count = 100,
    share: Share = 0.02,
    low: Finite = 1.0,
    high: Unbounded = 40.0,
    clip_high: NonNegative = 0.28,
    groups: Count = 10240,
) -> Control:
    """Return SPEAR's replay and bonus; `size` is in paths, `age`, `warm` and `fade` in training steps.

    State: the step, the paths kept, the means of past groups by step, and the paths to replay in this step.
    """
    require(low < high, "spear", "high", high, f"above low, which is {low}")

    def observe(stats: Stats, state: State) -> tuple[State, Requests]:
        if stats.phase == "rollout":
            kept, means = better(stats.scores)
            fresh = [row for row in state["kept"] if row[1] >= stats.step - age]
            history = newest([*state["history"], *([means] if means else [])], groups)
            return {
                "step": stats.step,
                "kept": fresh + kept,
                "history": history,
                "again": [],
            }, Requests()
        if not stats.last or not coef or len(state["kept"]) <= 1.5 * size:
            return state, Requests()
        return {**state, "kept": [], "again": chosen(state["kept"], size, stats.step)}, Requests()

    def again(state: State) -> Replay | None:
        strength, key = gamma(state["step"], warm, coef), (state["step"], SALT, 1)

        def shape(terms: Terms, batch: Batch, now: Now) -> Terms:
            left = clip_cov(
                terms.advantage, now.logp, batch.logp_old, CLIP, clip_high, share, low, high, key
            )
            return replace(
                hold(terms, CLIP, clip_high), weight=terms.weight * torch.where(left, 0.0, strength)
            )

        advantage = recalibrated(state["again"], state["history"])
        return Replay(advantage, shape) if advantage else None

    def reward(batch: Batch, state: State) -> Rows:
        turns = torch.bincount(batch.turns.path)[batch.turns.path]
        return batch.turns.score + tool_weight(state["step"], fade) * (bonus * turns).clamp(max=1)

    start, sets = {"step": 0, "kept": [], "history": [], "again": []}, frozenset[Sets]({"replay"})
    return Control(
        name="spear", sets=sets, init=start.copy, reward=reward, observe=observe, replay=again
    )


def gamma(step: int, warm: int, coef: float = 1.0) -> float:
    """Return the strength of a replay in training step `step`."""
    return coef * (1 - cos(pi * step / warm)) / 2 if step <= warm else coef


def tool_weight(step: int, fade: int) -> float:
    """Return what is left of the bonus in training step `step`."""
    return (1 + cos(pi * step / fade)) / 2 if step <= fade else 0.0


def better(scores: Mapping[Key, float]) -> tuple[list[list[Any]], list[float]]:
    """Return key and score of each path above its group's mean, and the means of the groups."""
    members: dict[Key, list[float]] = {}
    for key, score in scores.items():
        members.setdefault(key[:-1], []).append(score)
    means = {
        group: max(sum(own) / len(own), min(own)) for group, own in members.items()
    }  # equal ones may round below
    return [[*key, score] for key, score in scores.items() if score > means[key[:-1]]], list(
        means.values()
    )


def newest(history: list[list[float]], most: int) -> list[list[float]]:
    """Return the last steps of `history` that hold at most `most` groups together."""
    return history if sum(map(len, history)) <= most else newest(history[1:], most)


def chosen(kept: list[list[Any]], size: int, step: int) -> list[list[Any]]:
    """Return min(size, the largest power of two there is) of what is kept, at random, in its order."""
    count = min(size, 1 << (len(kept).bit_length() - 1))
    drawn = keyed_rng((int(kept[0][0]), step, SALT)).choice(len(kept), count, replace=False)
    return [kept[place] for place in sorted(drawn.tolist())]


def recalibrated(rows: list[list[Any]], history: list[list[float]]) -> dict[Key, float]:
    """Return A' of each path of which it is not below 0; none where there is no history."""
    typical = median([mean for step in history for mean in step] or [inf])
    return {tuple(key): score - typical for *key, score in rows if score >= typical}
