"""`turngym verify deadlines`: what never answers stops no rollout, and nobody else notices it (R16, R27, R29)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from turngym.agents.cli.settings import Deadlines as Limits
from turngym.agents.journal.trees import Incident, to_json
from turngym.envs.math import make_math_python
from turngym.envs.question.env import QuestionEnv
from turngym.envs.tasks import ListTasks, Task
from turngym.tests.support.faulty import TASK, Flaky, StuckEngine, Troubled
from turngym.tests.verify.rows import Row, first
from turngym.tools import tool

if TYPE_CHECKING:
    from turngym.agents.rollout.path import Actor
    from turngym.agents.trajectory import Tree
    from turngym.envs import TextEnv

LIMITS = (1.0, 2.0)  # seconds: two deadlines, so that it is the deadline that ends the wait
FAULTS = 0.2  # share of the gradings that fail
LATE = 2.0  # seconds after its deadline by which a wait must have ended
TASKS = 3
GROUP = 2
HANGS = tuple(
    (place, where)
    for place in ("reset", "fork", "step", "draw")
    for where in ("main thread", "a thread")
)


@dataclass(frozen=True)
class Deadlines:
    """Deadlines, stalls, stragglers and retries in rollouts of the tiny policy."""

    seed: int = 0
    """Keys all randomness."""
    rounds: int = 1
    """How often each hang is tried with each deadline."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows: hangs, tools, stalls, a straggler, retries."""
        with _Trials(self.seed) as trials:
            yield trials.hangs(self.rounds)
            yield _tools(self.rounds)
            yield trials.stalls()
            yield trials.straggler()
            yield trials.retries()
            yield trials.faults()


class _Trials:
    """The tiny policy, and what it does where nothing is the matter."""

    def __init__(self, seed: int) -> None:
        from turngym.agents.chat.chat import Chat
        from turngym.agents.engines.torch import TorchEngine
        from turngym.agents.models.resolve import find
        from turngym.agents.policy import load_policy
        from turngym.agents.rollout.path import Actor

        source, self.seed = find("tiny"), seed
        policy = load_policy(source, device="cpu", dtype="float32", threads=1)
        self.engine = TorchEngine(policy)
        self.actor = Actor(self.engine, Chat.from_folder(source.folder), policy.end_ids)
        self.calm = self.grow(Troubled())[0]

    def __enter__(self) -> _Trials:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def grow(
        self,
        env: TextEnv,
        deadlines: Limits | None = None,
        actor: Actor | None = None,
        group: int = GROUP,
        **options: Any,
    ) -> tuple[list[Tree], list[Incident], float]:
        """Return the trees, the incidents and the seconds of a rollout."""
        from turngym.agents.engine import Sampling
        from turngym.agents.rollout.collect import collect

        seen: list[Incident] = []
        began = time.monotonic()
        options = {"sampling": Sampling(max_tokens=8), **options}
        trees = collect(
            actor or self.actor,
            env,
            range(TASKS),
            group=group,
            key=(self.seed, 0),
            deadlines=deadlines or Limits(retries=0),
            on_incident=seen.append,
            **options,
        )
        return trees, seen, time.monotonic() - began

    def hangs(self, rounds: int) -> Row:
        """Count the hangs whose paths fail typed and in time, while all others are as they would have been."""
        bad, count, slowest = [], 0, 0.0
        for place, where in HANGS:
            for limit in LIMITS * rounds:
                count += 1
                with _never() as wait:
                    began = time.monotonic()
                    trees = _in(where, partial(self._hang, place, wait, limit))
                    over = (
                        time.monotonic() - began - 2 * limit
                    )  # the second path of a tree may wait for the first
                slowest = max(slowest, over)
                if over > LATE or not self._typed(trees) or not self._same_others(trees):
                    bad.append(f"{place} in {where}, {limit} s")
        note = first(bad) or f"at most {slowest:.2f} s after the last deadline"
        return Row(
            "what never answers fails its own paths within deadline + 2 s",
            count - len(bad),
            count,
            note,
        )

    def _hang(self, place: str, wait: Callable[[], object], limit: float) -> list[Tree]:
        deadlines = Limits(limit, 9 * limit, retries=0)
        if place != "draw":
            return self.grow(Troubled(place, wait), deadlines)[0]
        return self.grow(
            Troubled(), deadlines, replace(self.actor, engine=StuckEngine(self.engine))
        )[0]

    def _typed(self, trees: list[Tree]) -> bool:
        return all(
            leaf.outcome == "infra_error" and leaf.score != leaf.score and "deadline" in leaf.info
            for leaf in trees[TASK].leaves
        )

    def _same_others(self, trees: list[Tree]) -> bool:
        return _bits(trees, but=TASK) == _bits(self.calm, but=TASK)

    def stalls(self) -> Row:
        """Count the paths in a stall that its incident names."""
        with _never() as wait:
            _, incidents, _ = self.grow(
                Troubled("step", wait), Limits(4.0, stall_after=1.0, retries=0)
            )
        told = next(
            (incident.what for incident in incidents if incident.kind == "stall"),
            "no stall was reported",
        )
        named = [branch for branch in range(GROUP) if f"{self.seed}/0/{TASK}/{branch} (" in told]
        return Row("a stall names the paths it waits for, and what for", len(named), GROUP, told)

    def straggler(self) -> Row:
        """Count the trees that do not change where one environment is slow, and one is too slow for the step."""
        slow, _, _ = self.grow(Troubled("step", lambda: time.sleep(0.5)))
        late, _, seconds = self.grow(
            Troubled("step", lambda: time.sleep(60)), Limits(step_deadline=1.5, retries=0)
        )
        held = sum(a == b for a, b in zip(_bits(slow), _bits(self.calm), strict=True))
        held += sum(
            a == b for a, b in zip(_bits(late, but=TASK), _bits(self.calm, but=TASK), strict=True)
        )
        held += seconds <= 1.5 + LATE
        note = f"a step of 1.5 s at most took {seconds:.2f} s with an environment that needs 60 s"
        return Row(
            "a straggler changes no other path, and no step overruns its deadline",
            held,
            2 * TASKS,
            note,
        )

    def retries(self) -> Row:
        """Count the failures that are tried again with the same key and leave the trees as they are."""
        errors = (OSError("lost"), RuntimeError("lost"))
        cases = [
            (place, times, error)
            for place in ("reset", "fork", "step")
            for times in (1, 2)
            for error in errors
        ]
        bad = []
        for place, times, error in cases:
            trees, incidents, _ = self.grow(Troubled(place, Flaky(times, error)), Limits(retries=2))
            if (
                _bits(trees) != _bits(self.calm)
                or [one.kind for one in incidents] != ["retry"] * times
            ):
                bad.append(f"{times} x {type(error).__name__} in {place}")
        return Row(
            "a failure is retried with its key and leaves no trace in a tree",
            len(cases) - len(bad),
            len(cases),
        )

    def faults(self) -> Row:
        """Count the rollouts with a real tool, few or many in flight, with faults and without, that are the same."""
        from turngym.agents.engine import Sampling
        from turngym.agents.evaluation.run import cut

        env = make_math_python(max_turns=3)
        actor = replace(self.actor, cut=cut(env, self.actor.chat))
        rolls, failures = [], 0
        for in_flight in (1, 64):
            for share in (0.0, FAULTS):
                faulty = _Faulty(share, self.seed)
                env.grader, plain = faulty.around(env.grader), env.grader
                trees, seen, _ = self.grow(
                    env,
                    Limits(retries=9),
                    actor,
                    group=4,
                    in_flight=in_flight,
                    sampling=Sampling(max_tokens=48),
                )
                env.grader = plain
                rolls.append(_bits(trees))
                failures += len(seen)
        held = sum(roll == rolls[0] for roll in rolls)
        note = f"{failures} failures of the grader were retried"
        return Row(
            "MathPython: 1 or 64 in flight, faults or none: the same journal",
            held,
            len(rolls),
            note,
        )


class _Faulty:
    """Fails a share of calls, drawn anew each time, but never all of them."""

    def __init__(self, share: float, seed: int) -> None:
        import random

        self.share, self.random, self.lock = (
            share,
            random.Random(f"faults {seed}"),
            threading.Lock(),
        )

    def around(self, grader: Any) -> Any:
        """Return a grader that sometimes cannot run."""
        from types import SimpleNamespace

        def grade(**question: str) -> Any:
            with self.lock:
                fails = self.random.random() < self.share
            if fails:
                raise OSError("the grader is not there")
            return grader.grade(**question)

        return SimpleNamespace(grade=grade)


def _tools(rounds: int) -> Row:
    """Count the calls of a tool that never answers which end as a typed failure in time."""
    held, count, slowest = 0, 0, 0.0
    for limit in LIMITS * rounds:
        for where in ("main thread", "a thread"):
            with _never() as wait:
                reply, seconds = _in(where, partial(_stuck_call, wait, limit))
            count, slowest = count + 1, max(slowest, seconds - limit)
            held += (
                seconds <= limit + LATE
                and reply["outcome"] == "tool_error"
                and "did not answer" in reply["error"]
            )
    return Row(
        "a tool that never answers is a tool_error within deadline + 2 s",
        held,
        count,
        f"at most {slowest:.2f} s after the deadline",
    )


def _stuck_call(wait: Callable[[], object], limit: float) -> tuple[dict[str, Any], float]:
    @tool
    def look() -> str:
        """Look for ever."""
        wait()
        return "seen"

    env = QuestionEnv(ListTasks([Task("a", "Look.", "1")]), _NoGrader(), [look], tool_timeout=limit)
    env.reset(seed=0)
    began = time.monotonic()
    info = env.step('<tool_call>{"name": "look", "arguments": {}}</tool_call>')[4]
    return info, time.monotonic() - began


class _NoGrader:
    def grade(self, *, completion: str, gold: str) -> Any:
        raise AssertionError("nothing is graded here")


@contextmanager
def _never() -> Iterator[Callable[[], object]]:
    """A call that answers when nobody waits any more, so that no thread is left."""
    event = threading.Event()
    try:
        yield event.wait
    finally:
        event.set()


def _in(where: str, work: Callable[[], Any]) -> Any:
    if where == "main thread":
        return work()
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(work()))
    thread.start()
    thread.join()
    return box[0]


def _bits(trees: list[Tree], but: int | None = None) -> list[Any]:
    return [to_json(tree) for tree in trees if tree.task != but]
