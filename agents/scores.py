"""Scores of a policy or player, with 95 % intervals that allow for correlated samples of one task.

avg@k is the mean score of k samples a task; pass@k is the unbiased estimate 1 − C(n−c, k)/C(n, k) (Chen et al.,
2107.03374, Eq 1), averaged over tasks. Episodes that ended in an infrastructure failure are counted, never scored.
Where an environment says how an agent searched, the report says it too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..envs import Outcome
from .trajectory import Leaf, Tree

_Z = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


@dataclass(frozen=True)
class Episode:
    """How one episode ended."""

    task: int
    outcome: Outcome
    stop: str
    score: float
    turns: int
    used_tool: bool  # the answer is a result that a tool gave
    search: Mapping[str, float] = field(default_factory=dict)  # how it searched, where the environment says it
    drawn: int = 0  # turns that a policy drew
    cut: int = 0  # those of them that ended at the token limit
    rewards: Mapping[str, float] = field(default_factory=dict)  # by name, where they have names
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Interval:
    """An estimate with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return percentages, as in `45.3 % [41.0, 49.7]`."""
        return f"{100 * self.value:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class Mean:
    """A mean, and over how many episodes."""

    value: float
    of: int


@dataclass(frozen=True)
class Part:
    """A named reward: its mean over the rewarded episodes, 0 in those without it, and its weight in the reward."""

    value: float
    weight: float


@dataclass(frozen=True)
class Report:
    """What an evaluation found. `success` is the share of episodes with a score of at least 1."""

    episodes: int
    tasks: int
    samples: int  # the k of avg@k: rewarded episodes a task, the fewest
    failed: int  # tool_error and infra_error: not in any estimate
    reward: float  # mean score
    success: Interval  # avg@k
    pass_at: dict[int, Interval]
    tool_share: float  # of the successes, those whose answer a tool gave
    turns: float  # mean
    stops: dict[str, int]
    cut: float | None = None  # share of the drawn turns that ended at the token limit; None where none was drawn
    search: dict[str, Mean] = field(default_factory=dict)  # searches, recall@k, f1, sub_em of those that say them
    rewards: dict[str, Part] = field(default_factory=dict)  # by name; their weighted sum is `reward`
    usage: dict[str, Any] = field(default_factory=dict)  # of an endpoint: its model, its requests and their tokens
    not_played: int = 0  # episodes for which the token budget was not enough
    failure: str = ""  # why the first of the failed episodes failed

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; what stands last in this class is left out where it is empty."""
        optional = ("search", "rewards", "usage", "not_played", "failure")
        return {name: value for name, value in asdict(self).items() if value or name not in optional}


def from_trees(trees: Iterable[Tree]) -> list[Episode]:
    """Return the episodes of rollouts, or of a player."""
    return [_episode(tree, leaf) for tree in trees for leaf in tree.leaves]


def _episode(tree: Tree, leaf: Leaf) -> Episode:
    used_tool, ends = bool(leaf.info.get("used_tool", False)), [tree.turns[node].ended for node in tree.replies(leaf)]
    drawn, cut = len(ends) - ends.count(""), ends.count("length")
    how = (leaf.outcome, leaf.stop, leaf.score, len(ends), used_tool, _search(tree, leaf), drawn, cut)
    return Episode(tree.task, *how, *tree.rewards(leaf))


def _search(tree: Tree, leaf: Leaf) -> dict[str, float]:
    """Return how an episode searched."""
    info = tree.last_info(leaf)
    if "searches" not in info:
        return {}
    figures: dict[str, float] = {name: info[name] for name in ("searches", "f1", "sub_em") if name in info}
    return figures | {f"recall@{k}": share for k, share in info.get("recall", {}).items()}


def _means(episodes: Sequence[Episode]) -> dict[str, Mean]:
    """Return the mean of each figure of search over the episodes that have it."""
    names = dict.fromkeys(name for episode in episodes for name in episode.search)
    by_name = {name: [episode.search[name] for episode in episodes if name in episode.search] for name in names}
    return {name: Mean(float(np.mean(values)), len(values)) for name, values in by_name.items()}


def _parts(episodes: Sequence[Episode]) -> dict[str, Part]:
    weights = {name: weight for episode in episodes for name, weight in episode.weights.items()}
    means = {name: float(np.mean([episode.rewards.get(name, 0.0) for episode in episodes])) for name in weights}
    return {name: Part(means[name], weight) for name, weight in weights.items()}


def summarize(episodes: Sequence[Episode]) -> Report:
    """Return the report of some episodes.

    Raises:
        ValueError: none of them was rewarded.
    """
    rewarded = [episode for episode in episodes if episode.outcome in (Outcome.DONE, Outcome.TRUNCATED)]
    if not rewarded:
        raise ValueError(f"none of {len(episodes)} episodes was rewarded: all ended in an infrastructure failure")
    by_task: dict[int, list[bool]] = {}
    for episode in rewarded:
        by_task.setdefault(episode.task, []).append(episode.score >= 1)
    samples = min(len(wins) for wins in by_task.values())
    powers = [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if 1 < k <= samples]
    wins = [episode for episode in rewarded if episode.score >= 1]
    stops = [episode.stop for episode in episodes]
    drawn = sum(episode.drawn for episode in rewarded)
    return Report(
        episodes=len(episodes),
        tasks=len(by_task),
        samples=samples,
        failed=len(episodes) - len(rewarded),
        reward=float(np.mean([episode.score for episode in rewarded])),
        success=interval([float(np.mean(wins)) for wins in by_task.values()], len(rewarded)),
        pass_at={k: interval([pass_at_k(len(w), sum(w), k) for w in by_task.values()], len(by_task)) for k in powers},
        tool_share=sum(episode.used_tool for episode in wins) / len(wins) if wins else 0.0,
        turns=float(np.mean([episode.turns for episode in rewarded])),
        stops={stop: stops.count(stop) for stop in sorted(set(stops))},
        search=_means(rewarded),
        cut=sum(episode.cut for episode in rewarded) / drawn if drawn else None,
        rewards=_parts(rewarded),
    )


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased chance that at least one of k samples is right (2107.03374, Eq 1).

    Raises:
        ValueError: fewer than `k` samples, or more correct ones than samples.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs 0 <= correct <= samples and 1 <= k <= samples; got {correct} of {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def interval(values: Sequence[float], episodes: int) -> Interval:
    """Return the mean of one value in [0, 1] a task, with Wilson's 95 % interval at the effective number of samples.

    The effective number is p(1−p) over the variance of the mean between tasks, so that samples of one task count as
    what they are worth; it lies between 1 and `episodes`. Where every task has the same value, and so there is no
    spread to measure, it is the number of tasks.
    """
    data = np.asarray(values, np.float64)
    mean, tasks = float(data.mean()), len(data)
    spread = float(data.var(ddof=1)) / tasks if tasks > 1 else 0.0
    effective = min(mean * (1 - mean) / spread, float(episodes)) if spread > 0 else float(tasks)
    effective = max(effective, 1.0)
    centre = (mean + _Z**2 / (2 * effective)) / (1 + _Z**2 / effective)
    half = _Z / (1 + _Z**2 / effective) * math.sqrt(mean * (1 - mean) / effective + _Z**2 / (4 * effective**2))
    return Interval(mean, max(centre - half, 0.0), min(centre + half, 1.0))
