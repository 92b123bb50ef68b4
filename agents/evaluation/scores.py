"""Scores of a policy or player, with 95 % intervals that allow for correlated samples of one task.

avg@k is the mean score of k samples a task; pass@k is the unbiased estimate 1 − C(n−c, k)/C(n, k) (Chen et al.,
2107.03374, Eq 1), pass^k is C(c, k)/C(n, k) (Yao et al., 2406.12045, Sec. 4), both averaged over tasks; maj@k is what
the answer of most samples earns (Wang et al., 2203.11171). Infrastructure failures are counted, never scored.
Where an environment says how an agent searched, the report says it too.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from ...envs import Outcome, TextEnv
from ...tools.formats.foreign import advise_on_format
from ..trajectory import Leaf, Tree
from .votes import Same, classes, spelled_alike

T = TypeVar("T")
K = TypeVar("K")
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
    search: Mapping[str, float] = field(
        default_factory=dict
    )  # how it searched, where the environment says it
    drawn: int = 0  # turns that a policy drew
    cut: int = 0  # those of them that ended at the token limit
    rewards: Mapping[str, float] = field(default_factory=dict)  # by name, where they have names
    weights: Mapping[str, float] = field(default_factory=dict)
    answer: str | None = None  # as text, where the environment says it
    calls: int = 0
    errors: int = 0  # calls that could not be read or failed
    tokens: int = 0  # that a policy drew
    task_id: str = ""
    category: str = ""  # of the task

    @property
    def rewarded(self) -> bool:
        """Whether it has a score: no infrastructure failure ended it."""
        return self.outcome in (Outcome.DONE, Outcome.TRUNCATED)

    @property
    def won(self) -> bool:
        """Whether the score is at least 1."""
        return self.score >= 1


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
class ForeignCalls:
    """How many turns held a call in the format of another model, which was not read, and what to do about it."""

    turns: int
    fix: str


@dataclass(frozen=True)
class NamedReward:
    """A named reward: its mean over the rewarded episodes, 0 in those without it, and its weight in the reward."""

    value: float
    weight: float


@dataclass(frozen=True)
class TaskScore:
    """What one task came to; its reward is the mean over the scored episodes, None where there is none."""

    task: int
    id: str
    category: str
    episodes: int
    failed: int
    won: int
    reward: float | None


@dataclass(frozen=True)
class Category:
    """What the tasks of one category came to; None where no episode has a score."""

    episodes: int
    tasks: int  # that have a score
    failed: int
    reward: float | None
    success: Interval | None


class NoScore(ValueError):
    """No episode has a score: nothing was wrong with what was asked."""

    exit_status = 1  # of the command


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
    pass_hat: dict[int, Interval] = field(
        default_factory=dict
    )  # by k: pass^k, that all of k samples are right
    maj: Interval | None = (
        None  # maj@k at k = `samples`; None of one sample, or where there are no answers
    )
    calls: float = 0.0  # mean
    call_errors: float | None = None  # share of the calls; None where there was none
    tokens: float | None = (
        None  # mean of what was drawn in an episode; None where nothing was, or nobody counted
    )
    cut: float | None = (
        None  # share of the drawn turns that ended at the token limit; None where none was drawn
    )
    search: dict[str, Mean] = field(
        default_factory=dict
    )  # searches, recall@k, f1, sub_em of those that say them
    rewards: dict[str, NamedReward] = field(
        default_factory=dict
    )  # by name; their weighted sum is `reward`
    foreign_calls: dict[str, ForeignCalls] = field(default_factory=dict)  # by format
    usage: dict[str, Any] = field(
        default_factory=dict
    )  # of an endpoint: its model, its requests and their tokens
    not_played: int = 0  # episodes for which the token budget was not enough
    failure: str = ""  # why the first of the failed episodes failed
    by_category: dict[str, Category] = field(default_factory=dict)  # empty where no task names one
    by_task: list[TaskScore] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; what not every evaluation has is left out where it is empty."""
        optional = (
            *("pass_hat", "maj", "search", "rewards", "foreign_calls", "usage"),
            *("not_played", "failure", "by_category"),
        )
        return {
            name: value for name, value in asdict(self).items() if value or name not in optional
        }


def from_trees(trees: Iterable[Tree]) -> list[Episode]:
    """Return the episodes of rollouts, or of a player."""
    return [_episode(tree, leaf) for tree in trees for leaf in tree.leaves]


def _episode(tree: Tree, leaf: Leaf) -> Episode:
    replies, info = [tree.turns[node] for node in tree.replies(leaf)], tree.last_info(leaf)
    used_tool, ends = bool(leaf.info.get("used_tool", False)), [turn.ended for turn in replies]
    drawn, cut = len(ends) - ends.count(""), ends.count("length")
    called = [turn.info["tool_status"] == "ok" for turn in replies if "tool_status" in turn.info]
    search: dict[str, float] = {}
    if "searches" in info:
        search = {name: info[name] for name in ("searches", "f1", "sub_em") if name in info}
        search |= {f"recall@{k}": share for k, share in info.get("recall", {}).items()}
    how = (leaf.outcome, leaf.stop, leaf.score, len(ends), used_tool, search, drawn, cut)
    return Episode(
        tree.task,
        *how,
        *tree.rewards(leaf),
        answer=None if (answer := info.get("answer")) is None else str(answer),
        calls=len(called),
        errors=called.count(False),
        tokens=sum(turn.counted or int(turn.sampled.sum()) for turn in replies),
        task_id=tree.task_id,
        category=str(tree.turns[0].info.get("category", "")),
    )


def foreign_calls(trees: Iterable[Tree], env: TextEnv) -> dict[str, ForeignCalls]:
    """Return the calls in formats that `env` does not read, by the format's name, the most frequent first."""
    names = Counter(
        str(turn.info["foreign_call"])
        for tree in trees
        for turn in tree.turns
        if "foreign_call" in turn.info
    )
    chooses = hasattr(env, "format")
    return {
        name: ForeignCalls(turns, advise_on_format(name, chooses))
        for name, turns in names.most_common()
    }


def _means(episodes: Sequence[Episode]) -> dict[str, Mean]:
    names = dict.fromkeys(name for episode in episodes for name in episode.search)
    by_name = {
        name: [episode.search[name] for episode in episodes if name in episode.search]
        for name in names
    }
    return {name: Mean(float(np.mean(values)), len(values)) for name, values in by_name.items()}


def _parts(episodes: Sequence[Episode]) -> dict[str, NamedReward]:
    weights = {name: weight for episode in episodes for name, weight in episode.weights.items()}
    means = {
        name: float(np.mean([episode.rewards.get(name, 0.0) for episode in episodes]))
        for name in weights
    }
    return {name: NamedReward(means[name], weight) for name, weight in weights.items()}


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items by key, both in the order in which they come first."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _task(episodes: Sequence[Episode], category: str) -> TaskScore:
    own = [one for one in episodes if one.rewarded]
    reward = float(np.mean([one.score for one in own])) if own else None
    counts = (len(episodes), len(episodes) - len(own), sum(one.won for one in own))
    return TaskScore(episodes[0].task, episodes[0].task_id, category, *counts, reward)


def _category(tasks: Sequence[TaskScore]) -> Category:
    episodes, failed = (sum(getattr(one, name) for one in tasks) for name in ("episodes", "failed"))
    shares = [one.won / (one.episodes - one.failed) for one in tasks if one.reward is not None]
    paid = sum((one.episodes - one.failed) * (one.reward or 0.0) for one in tasks)
    of = episodes - failed
    return Category(
        episodes,
        len(shares),
        failed,
        paid / of if of else None,
        interval(shares, of) if of else None,
    )


def summarize_trees(
    trees: Sequence[Tree], ks: Sequence[int] = (), same: Same = spelled_alike
) -> Report:
    """Return the report of the episodes in some trees, as `summarize` does; its NoScore names the first failure."""
    try:
        return summarize(from_trees(trees), ks, same)
    except NoScore as error:
        raise NoScore(f"{error}; the first: {first_failure(trees)}") from None


def first_failure(trees: Iterable[Tree]) -> str:
    """Return what ended the first episode that has no score; "" if all have one."""
    failures = (
        str(leaf.info.get("error", leaf.stop))
        for tree in trees
        for leaf in tree.leaves
        if not leaf.rewarded
    )
    return next(failures, "")


def summarize(
    episodes: Sequence[Episode], ks: Sequence[int] = (), same: Same = spelled_alike
) -> Report:
    """Return the report of some episodes, with pass@k for each of `ks` that there are samples for, else powers of two.

    `same` says which answers count as one for maj@k. Raises NoScore: none of them was rewarded.
    """
    rewarded = [episode for episode in episodes if episode.rewarded]
    if not rewarded:
        raise NoScore(
            f"none of {len(episodes)} episodes was rewarded: all ended in an infrastructure failure"
        )
    tasks = grouped(rewarded, lambda one: one.task)
    kinds = {
        one.task: one.category for one in episodes if one.category
    }  # one that could not begin does not know it
    by_task = [
        _task(own, kinds.get(task, ""))
        for task, own in grouped(episodes, lambda one: one.task).items()
    ]
    categories = sorted(grouped(by_task, lambda one: one.category).items())
    samples = min(map(len, tasks.values()))
    counts = [(len(own), sum(one.won for one in own)) for own in tasks.values()]
    wins = [episode for episode in rewarded if episode.won]
    calls, tokens = (
        sum(getattr(episode, name) for episode in rewarded) for name in ("calls", "tokens")
    )

    def over_tasks(estimate: Callable[[int, int, int], float]) -> dict[int, Interval]:
        powers = [k for k in ks or (2, 4, 8, 16, 32, 64, 128) if k <= samples]
        return {k: interval([estimate(*count, k) for count in counts], len(tasks)) for k in powers}

    maj = [majority(own[:samples], same) for own in tasks.values()]
    stops = [episode.stop for episode in episodes]
    drawn = sum(episode.drawn for episode in rewarded)
    return Report(
        episodes=len(episodes),
        tasks=len(tasks),
        samples=samples,
        failed=len(episodes) - len(rewarded),
        reward=float(np.mean([episode.score for episode in rewarded])),
        success=interval([correct / of for of, correct in counts], len(rewarded)),
        pass_at=over_tasks(pass_at_k),
        pass_hat=over_tasks(pass_hat_k),
        maj=interval(maj, len(tasks))
        if samples > 1 and any(one.answer is not None for one in rewarded)
        else None,
        calls=calls / len(rewarded),
        call_errors=sum(episode.errors for episode in rewarded) / calls if calls else None,
        tokens=tokens / len(rewarded) if tokens else None,
        tool_share=sum(episode.used_tool for episode in wins) / len(wins) if wins else 0.0,
        turns=float(np.mean([episode.turns for episode in rewarded])),
        stops={stop: stops.count(stop) for stop in sorted(set(stops))},
        search=_means(rewarded),
        cut=sum(episode.cut for episode in rewarded) / drawn if drawn else None,
        rewards=_parts(rewarded),
        by_category={name: _category(own) for name, own in categories if kinds},
        by_task=by_task,
    )


def majority(episodes: Sequence[Episode], same: Same = spelled_alike) -> float:
    """Return what the answer of most of a task's episodes earns, those without one left out; 0 where none has one.

    `same` says which answers count as one. Answers with as many votes count as drawn by lot: the mean of what they
    earn.
    """
    voters = [one for one in episodes if one.answer is not None]
    if not voters:
        return 0.0
    won: dict[int, list[bool]] = {}
    for number, voter in zip(classes([one.answer for one in voters], same), voters, strict=True):
        won.setdefault(number, []).append(voter.won)
    most = max(map(len, won.values()))
    return float(np.mean([np.mean(each) for each in won.values() if len(each) == most]))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased chance that at least one of k samples is right (2107.03374, Eq 1).

    Raises ValueError: fewer than `k` samples, or more correct ones than samples.
    """
    _check_counts(f"pass@{k}", samples, correct, k)
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def pass_hat_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased chance that all of k samples are right (2406.12045, Sec. 4). Raises as `pass_at_k`."""
    _check_counts(f"pass^{k}", samples, correct, k)
    return math.comb(correct, k) / math.comb(samples, k)


def _check_counts(what: str, samples: int, correct: int, k: int) -> None:
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(
            f"{what} needs 0 <= correct <= samples and 1 <= k <= samples; got {correct} of {samples}"
        )


def interval(values: Sequence[float], episodes: int) -> Interval:
    """Return the mean of one value in [0, 1] a task, with Wilson's 95 % interval at the effective number of samples.

    The effective number is p(1−p) over the variance of the mean between tasks, so that samples of one task count as
    what they are worth; it lies between 1 and `episodes`. Where every task has the same value, and so there is no
    spread to measure, it is the number of tasks.
    """
    data = np.asarray(values, np.float64)
    mean, tasks = float(data.mean()), len(data)
    spread = float(data.var(ddof=1)) / tasks if tasks > 1 else 0.0
    effective = max(
        min(mean * (1 - mean) / spread, float(episodes)) if spread > 0 else float(tasks), 1.0
    )
    centre = (mean + _Z**2 / (2 * effective)) / (1 + _Z**2 / effective)
    half = (
        _Z
        / (1 + _Z**2 / effective)
        * math.sqrt(mean * (1 - mean) / effective + _Z**2 / (4 * effective**2))
    )
    return Interval(mean, max(centre - half, 0.0), min(centre + half, 1.0))
