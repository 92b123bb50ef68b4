"""Area `evaluation`: numbers beside references, whatever the concurrency, and evaluations that are killed often."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from turngym.agents.evaluation.scores import Episode, Report, summarize
from turngym.envs import Outcome
from turngym.tests.verify.rows import Row, Tally

ENV = "turngym/MathPython-v0"
MATH = "turngym/Math-v0"
CLOSE = 1e-9
Z2 = 1.959963984540054**2
RESULTS = ("eval.json", "trees.jsonl")
MOST = 6  # kills of one evaluation, so that it comes to an end


@dataclass(frozen=True)
class Evaluation:
    """Evaluations: numbers beside references in float64, concurrency that changes none, kills at random instants."""

    seed: int = 0
    """Chooses the episodes and the instants."""
    reports: int = 300
    """Random evaluations whose numbers are computed a second way."""
    episodes: int = 1000
    """Episodes that are played at concurrency 1 and 64."""
    kills: int = 20
    """Kills at random instants."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows: numbers, concurrency, kills."""
        yield _numbers(self.reports, np.random.default_rng(self.seed))
        with tempfile.TemporaryDirectory(prefix="turngym-evaluation-") as name:
            yield from _concurrent(Path(name), self.episodes)
            yield from _killed(Path(name), self.kills, random.Random(self.seed))


# --- numbers


def episode(
    task: int, won: bool, answer: str | None = None, lost: bool = False, **rest: Any
) -> Episode:
    """Return an episode that ended."""
    how = Outcome.INFRA_ERROR if lost else Outcome.DONE
    score = math.nan if lost else float(won)
    return Episode(
        task, how, "infra_error" if lost else "answered", score, 1, False, answer=answer, **rest
    )


def _numbers(count: int, rng: np.random.Generator) -> Row:
    found = Tally(
        f"avg@k, pass@k, pass^k, maj@k, intervals and means are those of references, to {CLOSE:g}"
    )
    for number in range(count):
        tasks, samples = int(rng.integers(1, 30)), int(rng.integers(1, 17))
        chance, lose = rng.beta(0.5, 0.5, tasks), rng.choice([0.0, 0.05])
        episodes = []
        for task in range(tasks):
            for _ in range(samples):
                won, lost = bool(rng.random() < chance[task]), bool(rng.random() < lose)
                answer = "right" if won else str(rng.choice(["a", "b", ""])) or None
                counts = {
                    "tokens": int(rng.integers(1, 99)),
                    "calls": int(rng.integers(4)),
                    "category": f"c{task % 3}",
                }
                episodes.append(episode(task, won, answer, lost, drawn=1, **counts))
        if any(one.rewarded for one in episodes):
            found.add(str(number), _differs(summarize(episodes), episodes))
    return found.row()


def _differs(report: Report, episodes: Sequence[Episode]) -> str:
    """Return the first number of a report that is not that of the references."""
    scored = [one for one in episodes if one.rewarded]
    tasks = {one.task: [o for o in scored if o.task == one.task] for one in scored}
    k = min(len(own) for own in tasks.values())
    expected: dict[str, tuple[Any, Any]] = {
        "success": (
            report.success,
            _interval([[one.won for one in own] for own in tasks.values()]),
        ),
        "tokens": (report.tokens, math.fsum(one.tokens for one in scored) / len(scored)),
        "calls": (report.calls, math.fsum(one.calls for one in scored) / len(scored)),
    }
    for size, estimate in report.pass_at.items():
        values = [1 - _none(len(own), sum(one.won for one in own), size) for own in tasks.values()]
        expected[f"pass@{size}"] = (estimate.value, math.fsum(values) / len(values))
    for size, estimate in report.pass_hat.items():
        values = [_none(len(own), sum(not one.won for one in own), size) for own in tasks.values()]
        expected[f"pass^{size}"] = (estimate.value, math.fsum(values) / len(values))
    if report.maj is not None:
        values = [_majority(own[:k]) for own in tasks.values()]
        expected[f"maj@{k}"] = (report.maj.value, math.fsum(values) / len(values))
    for name, part in report.by_category.items():
        own = [[o.won for o in found] for found in tasks.values() if found[0].category == name]
        expected[f"category {name}"] = (part.success, _interval(own) if own else None)
    for name, (ours, theirs) in expected.items():
        both = [
            np.array([one.value, one.low, one.high]) if hasattr(one, "low") else one
            for one in (ours, theirs)
        ]
        if not (ours is theirs is None or np.allclose(both[0], both[1], rtol=0, atol=CLOSE)):
            return f"{name} is {ours}, not {theirs}"
    return ""


@dataclass(frozen=True)
class _Bounds:
    value: float
    low: float
    high: float


def _interval(won: Sequence[Sequence[bool]]) -> _Bounds:
    """The roots of Wilson's equation at p (1-p) / V samples; V: the sandwich of a mean of tasks of equal weight."""
    groups, weight = len(won), [1 / len(own) / len(won) for own in won]
    mean = math.fsum(w * one for w, own in zip(weight, won) for one in own)
    meat = math.fsum(math.fsum(w * (one - mean) for one in own) ** 2 for w, own in zip(weight, won))
    n = float(groups)
    if groups > 1 and meat > 1e-18:
        n = max(
            min(mean * (1 - mean) / (meat * groups / (groups - 1)), float(sum(map(len, won)))), 1.0
        )
    elif groups == 1:
        n = 1.0
    low, high = sorted(np.roots([1 + Z2 / n, -2 * mean - Z2 / n, mean * mean]).real.tolist())
    return _Bounds(mean, max(low, 0.0), min(high, 1.0))


def _none(n: int, c: int, k: int) -> float:
    """The chance that k of n hold none of c, drawn one after the other."""
    return math.prod(max(n - c - i, 0) / (n - i) for i in range(k))


def _majority(own: Sequence[Episode]) -> float:
    votes = Counter(one.answer for one in own if one.answer is not None).most_common()
    best = [answer for answer, count in votes if count == votes[0][1]]
    return math.fsum(answer == "right" for answer in best) / len(best) if best else 0.0


# --- concurrency


def _concurrent(folder: Path, episodes: int) -> Iterator[Row]:
    """Play the same episodes one at a time and 64 at a time: a player, and a model behind a URL."""
    from turngym.agents.cli.settings import EndpointOptions
    from turngym.agents.evaluation import run as evaluate
    from turngym.agents.evaluation.scores import from_trees
    from turngym.agents.players import GoldPlayer, play_all
    from turngym.envs.registry import make
    from turngym.tests.support.chat_server import ChatServer, Scripted

    env: Any = make(MATH, split="test")
    asked = [(task, 0) for task in evaluate.pick_tasks(range(len(env.tasks)), episodes, 0)]
    one, many = (
        from_trees(play_all(env, lambda task, seed: GoldPlayer(), asked, threads=n))
        for n in (1, 64)
    )
    same = sum(a == b for a, b in zip(one, many))
    yield Row("an expert's episodes are the same, one at a time and 64 at a time", same, episodes)
    known = {task.prompt: ("", task.gold) for task in (env.tasks[index] for index, _ in asked)}
    with ChatServer(Scripted(known)).run() as url:
        for count in (1, 64):
            endpoint = EndpointOptions(model="m", base_url=url, concurrency=count, timeout=60.0)
            out = folder / f"concurrency-{count}"
            evaluate.run(
                evaluate.prepare(
                    MATH, {"split": "test"}, endpoint=endpoint, episodes=episodes, out=out
                )
            )
    equal = [(folder / "concurrency-1" / name).read_bytes() == (folder / "concurrency-64" / name).read_bytes()
             for name in RESULTS]  # fmt: skip
    yield Row(
        f"files of {episodes} episodes of a model behind a URL, byte-equal at concurrency 1 and 64",
        sum(equal),
        2,
    )


# --- kills


def _killed(folder: Path, kills: int, rng: random.Random) -> Iterator[Row]:
    """Kill evaluations of an expert and of the tiny policy."""
    for policy, wanted in {"expert": kills - kills // 2, "tiny": kills // 2}.items():
        command = f"eval {ENV} --policy {policy} --difficulty 1 --episodes 16 --samples 2 --max-tokens 24 --threads 1"
        yield killed(folder / policy, command, wanted, rng, policy)


def killed(folder: Path, command: str, kills: int, rng: random.Random, what: str) -> Row:
    """Kill evaluations at random instants until there were `kills`, each time going on with what is left."""
    from turngym.tests.verify.resume.forking import Job, Warm

    folder.mkdir(parents=True, exist_ok=True)
    warm = Warm(folder)
    same = Tally(
        f"kill -9 at a random instant, then resumed: result and journal of `{what}` byte-equal"
    )
    try:
        whole = warm.run(Job((*command.split(), "--out", "whole")))
        struck = number = 0
        while struck < kills:
            out, hits = str(number), 0
            number += 1
            while hits < min(MOST, kills - struck):
                job = Job(
                    (*command.split(), "--out", out, "--resume"),
                    kill_after=rng.uniform(0, whole.seconds),
                )
                if warm.run(job).status != -9:
                    break
                hits += 1
            ended = warm.run(Job((*command.split(), "--out", out, "--resume")))
            files = [[(folder / place / name).read_bytes() for name in RESULTS if (folder / place / name).exists()]
                     for place in (out, "whole")]  # fmt: skip
            differs = len(files[0]) < len(RESULTS) or files[0] != files[1]
            same.add(out, f"status {ended.status}" if ended.status else differs, hits)
            struck += hits
    finally:
        warm.close()
    return same.row(f"{number} evaluations of {whole.seconds:.1f} s")
