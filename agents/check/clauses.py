"""The contract of environments: `turngym check ID` runs every clause, and so can the tests of other packages.

The clauses about an environment by itself are here: Gymnasium's own, its gold, its randomness.
"""

import json
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from ...envs import Outcome, TextEnv
from ...envs.registry import make, spec_of
from ...envs.split_episodes import task_count
from ...tools.progress import track
from .canary import check_canary
from .copies import check_fork, check_journal, check_snapshot, check_vector
from .episodes import Broken, Scenario, Subject, episode, moment, same, words
from .steps import check_any_text, check_steps, check_tasks

GOLDS = 8  # tasks whose gold is played
SEEDS = 16  # of which not all may give the same episode
SECONDS = 300.0  # that a second process may take


@dataclass(frozen=True)
class Clause:
    """One promise: its name, what it says, and the function that returns a note or raises where it is not kept."""

    name: str
    about: str
    check: Callable[[Subject], str]


@dataclass(frozen=True)
class Result:
    """Whether a clause is kept: `problem` says what broke, its value and the fix, `note` what was tried."""

    name: str
    about: str
    ok: bool
    problem: str = ""
    note: str = ""


def check_gymnasium(subject: Subject) -> str:
    """Gymnasium's check_env passes without a warning."""
    scenario, level = subject.scenarios[0], gymnasium.logger.min_level
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # these come whenever the collector runs, and from anyone
        gymnasium.logger.min_level = gymnasium.logger.WARN
        try:
            with subject.wrapped() as env:
                try:
                    check_env(env.unwrapped)
                except AssertionError as error:
                    # The reward of a failure is NaN, which equals nothing: Gymnasium then blames a comparison.
                    failure = _failure_of_words(subject)
                    if failure:
                        raise Broken(failure) from error
                    raise
                episode(env, scenario)
        finally:
            gymnasium.logger.min_level = level
    if caught:
        raise Broken(f"check_env gives {len(caught)} warnings; the first is: {caught[0].message}")
    return ""


def _failure_of_words(subject: Subject) -> str:
    """Return how an episode of random texts fails, such as by a grader that raises; "" if it does not."""
    with subject.bare() as env:
        for text in words(env, subject.seed):
            env.reset(seed=subject.seed)
            *_, info = env.step(text)
            if info.get("outcome") == Outcome.INFRA_ERROR:
                reason = info.get("error", "without an error")
                return f"the action {text!r:.60} ends in {info['outcome']} ({reason})"
    return ""


def check_gold(subject: Subject) -> str:
    """Playing the gold earns a total reward of 1."""
    with subject.bare() as env:
        for seed in range(subject.seed, subject.seed + GOLDS):
            env.reset(seed=seed)
            gold = list(env.gold())
            if gold != list(env.gold()):
                raise Broken(
                    f"seed {seed}: gold() called again is not {gold!r}; it must leave the episode as it is"
                )
            _earn(env, f"seed {seed}: the gold {gold!r}", iter(gold))
            env.reset(seed=seed)
            _earn(
                env,
                f"seed {seed}: the first of gold() at every turn",
                (env.gold()[0] for _ in iter(int, 1)),
            )
    return f"{GOLDS} tasks"


def _earn(env: TextEnv, what: str, actions: Iterator[str]) -> None:
    total = 0.0
    while env.live:
        action = next(actions, None)
        if action is None:
            raise Broken(
                f"{what} does not end the episode; gold() must hold an action for every turn left"
            )
        _, reward, _, _, info = env.step(action)
        total += reward
    if not abs(total - 1) < 1e-9:
        failure = f" ({info['error']})" if "error" in info else ""
        raise Broken(
            f"{what} earns {total} and ends with {info.get('stop')!r}{failure}; it must earn 1"
        )


def check_seeds(subject: Subject) -> str:
    """A seed gives the same episode in every instance, and not all seeds give the same one."""
    with subject.bare() as used:
        for scenario in subject.scenarios:
            first = _and_next(used, scenario)
            with subject.bare() as fresh:
                again = _and_next(fresh, scenario)
            advice = "draw randomness only from the rng of on_reset and self.np_random, and begin afresh in on_reset"
            what = f"seed {scenario.seed} is another episode"
            same(first, again, f"{what} in a fresh environment ({advice})")
            same(first, _and_next(used, scenario), f"{what} when it is played again ({advice})")
        seen = 1
        for place in (2, 0, 1):  # what is hidden shows in answers to an expert
            tried = [
                Scenario(subject.seed + i, subject.scenarios[place].actions) for i in range(SEEDS)
            ]
            seen = max(seen, len({tuple(episode(used, scenario)) for scenario in tried}))
            if seen > 1:
                break
        if seen == 1 and task_count(used) > 1:
            fix = "on_reset must draw from its rng, also what it hides"
            raise Broken(f"{SEEDS} seeds give one and the same episode; {fix}")
    return f"{len(subject.scenarios)} episodes; {SEEDS} seeds give {seen} different ones"


def _and_next(env: TextEnv, scenario: Scenario) -> list[str]:
    """Return what is seen of an episode, and of the opening that a reset without a seed gives after it."""
    return [*episode(env, scenario), moment(*env.reset())]


def check_process(subject: Subject) -> str:
    """A seed gives the same episode in another process with another hash seed."""
    spec = spec_of(subject.env_id)
    if not isinstance(spec.entry_point, str):
        return f"not checked: {subject.env_id} is registered with an object; register it by name, as 'module:factory'"
    request: dict[str, Any] = {
        "id": subject.env_id,
        "entry_point": spec.entry_point,
        "kwargs": spec.kwargs,
    }
    played = [(scenario.seed, scenario.actions) for scenario in subject.scenarios]
    request |= {"options": dict(subject.options), "scenarios": played}
    try:
        text = json.dumps(request)
    except TypeError as error:
        return f"not checked: the options of {subject.env_id} have no JSON form: {error}"
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
    told: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "errors": "replace"}
    try:
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        done = subprocess.run(command, input=text, timeout=SECONDS, env=env, **told)
    except subprocess.TimeoutExpired:
        raise Broken(f"a second process did not play its episodes within {SECONDS:g} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines()[-1:] or ["it wrote no error message"]
        raise Broken(f"a second process ended with exit code {done.returncode}: {words[0]}")
    found: list[list[str]] = json.loads(done.stdout)
    for scenario, seen in zip(subject.scenarios, found, strict=True):
        doubt = "is another episode in a second process (does it use hash() or the order of a set?)"
        same(subject.episode(scenario), seen, f"seed {scenario.seed} {doubt}")
    return f"{len(found)} episodes"


def main() -> None:
    """Play what the request on standard input says and write what was seen to standard output."""
    request, output = json.load(sys.stdin), sys.stdout
    sys.stdout = sys.stderr  # whatever an environment prints is no answer
    if request["id"] not in gymnasium.registry:
        gymnasium.register(
            request["id"], entry_point=request["entry_point"], kwargs=request["kwargs"]
        )
    subject = Subject(request["id"], request["options"])
    json.dump(
        [subject.episode(Scenario(seed, tuple(actions))) for seed, actions in request["scenarios"]],
        output,
    )


def check_generators(subject: Subject) -> str:
    """The global generators of random and numpy.random do not change."""
    scenarios, generators = subject.scenarios, (random.getstate(), np.random.get_state())
    try:
        # A state that no environment sets by itself: one that seeds with 0 would leave that of 0 as it is.
        random.seed(f"turngym {subject.seed}")
        np.random.seed([subject.seed, 0x7A11])
        before = random.getstate(), repr(np.random.get_state())
        with subject.bare() as env:
            for scenario in scenarios:
                episode(env, scenario)
        moved = ["random"] if random.getstate() != before[0] else []
        moved += ["numpy.random"] if repr(np.random.get_state()) != before[1] else []
    finally:
        random.setstate(generators[0])
        np.random.set_state(generators[1])
    if moved:
        raise Broken(
            f"episodes draw from the generator of the module {' and '.join(moved)}; use self.np_random"
        )
    return ""


def check_threads(subject: Subject) -> str:
    """Environments that are stepped in turn, each from its own thread, behave as they do alone."""
    scenarios = subject.scenarios
    with ExitStack() as stack:
        envs = [stack.enter_context(subject.bare()) for _ in scenarios]
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in scenarios]
        actors = list(zip(envs, pools, scenarios, strict=True))
        found = [
            [moment(*pool.submit(env.reset, seed=scenario.seed).result())]
            for env, pool, scenario in actors
        ]
        for turn in range(max(len(scenario.actions) for scenario in scenarios)):
            for (env, pool, scenario), seen in zip(actors, found, strict=True):
                if turn < len(scenario.actions) and env.live:
                    seen.append(moment(*pool.submit(env.step, scenario.actions[turn]).result()))
    for scenario, seen in zip(scenarios, found, strict=True):
        what = f"seed {scenario.seed} is another episode beside others, each on its own thread (do they share state?)"
        same(subject.episode(scenario), seen, what)
    return f"{len(scenarios)} environments"


def _clause(promise: Callable[[Subject], str]) -> Clause:
    about = (promise.__doc__ or "").rstrip(".")
    name = promise.__name__.removeprefix("check_").replace("_", "-")
    return Clause(name, about[:1].lower() + about[1:], promise)


PROMISES = (
    *(
        check_gymnasium,
        check_gold,
        check_seeds,
        check_tasks,
        check_process,
        check_generators,
        check_threads,
    ),
    *(
        check_fork,
        check_snapshot,
        check_journal,
        check_vector,
        check_steps,
        check_any_text,
        check_canary,
    ),
)
CLAUSES = tuple(_clause(promise) for promise in PROMISES)


def check(env_id: str, options: Mapping[str, Any] | None = None, seed: int = 0) -> Iterator[Result]:
    """Yield the result of each clause of the contract for an environment that is made with `options`.

    seed: chooses tasks, actions and the canary.

    Raises ValueError, TypeError where there is no such environment, its options are others, or it is no `TextEnv`.
    """
    subject = Subject(env_id, options or {}, seed)
    make(env_id, **subject.options).close()
    return (run(clause, subject) for clause in track(CLAUSES, "clauses", len(CLAUSES)))


def run(clause: Clause, subject: Subject) -> Result:
    """Return the result of one clause; whatever comes out of the environment breaks it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a clause that minds them says so itself
            note = clause.check(subject)
    except (Broken, AssertionError) as problem:
        return Result(clause.name, clause.about, False, str(problem))
    except Exception as error:
        return Result(
            clause.name, clause.about, False, f"it raises {type(error).__name__}: {error}"
        )
    return Result(clause.name, clause.about, True, note=note)
