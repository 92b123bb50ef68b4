"""Promises about copies of an episode: forks, snapshots, journals, vectors."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from multiprocessing import TimeoutError as Late
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, VectorEnv
from gymnasium.wrappers import Autoreset

from ...envs import fork
from ...envs.registry import spec_of
from ...envs.split_episodes import task_count
from ..journal.replay import replay
from ..journal.trees import Origin, read_trees, write_trees
from ..players import Script
from ..players import play as play_task
from .episodes import Broken, Scenario, Subject, as_json, episode, expert, moment, play, same

MODES = ("sync", "async")
SECONDS = 120.0  # that an asynchronous vector may take for a turn
E = TypeVar("E", bound=gymnasium.Env[str, str])


def check_fork(subject: Subject) -> str:
    """A fork at every turn, also through wrappers, continues as the original does and does not affect it."""
    forks = 0
    for scenario in subject.scenarios:
        with subject.bare() as env:
            forks += _fork_everywhere(env, scenario, type(env).fork)
        with subject.wrapped() as wrapped:
            forks += _fork_everywhere(wrapped, scenario, fork)
    return f"{forks} forks"


def _fork_everywhere(env: E, scenario: Scenario, copy: Callable[[E], E]) -> int:
    straight = [*episode(env, scenario), moment(*env.reset())]  # what is seen without a fork
    opening, rest = straight[0], straight[1:-1]
    again = f"seed {scenario.seed} is another episode when it is played again"
    same([opening], [moment(*env.reset(seed=scenario.seed))], again)
    where = f"seed {scenario.seed}, forked before turn"
    with ExitStack() as stack:
        late = []
        for turn, action in enumerate(scenario.actions[: len(rest)]):
            twin, astray, last = (copy(env) for _ in range(3))
            late.append((turn, last))
            stack.callback(last.close)
            _closing(
                astray, (action, *scenario.actions[:turn:-1])
            )  # twice what comes next, or what comes last
            seen = _closing(twin, scenario.actions[turn:])
            same(
                rest[turn:],
                seen,
                f"{where} {turn + 1}, a twin goes another way (do twins share state?)",
                turn + 1,
            )
            what = f"{where} {turn + 1}, what a twin does changes the original"
            same([rest[turn]], [moment(*env.step(action))], what, turn + 1)
        what = f"seed {scenario.seed}: the reset after an episode with forks is another"
        same([straight[-1]], [moment(*env.reset())], what)
        for turn, last in late:
            what = f"{where} {turn + 1}, what the original does changes a twin"
            same(rest[turn:], play(last, scenario.actions[turn:]), what, turn + 1)
            same(
                [straight[-1]],
                [moment(*last.reset())],
                f"{where} {turn + 1}, the next reset of a twin is another",
            )
    return 3 * len(rest)


def _closing(env: gymnasium.Env[str, str], actions: Sequence[str]) -> list[str]:
    with closing(env):
        return play(env, actions)


def check_snapshot(subject: Subject) -> str:
    """A snapshot is JSON; restored in a fresh environment, it continues as the original does."""
    snapshots = 0
    for scenario in subject.scenarios:
        straight = subject.episode(scenario)[1:]
        with subject.bare() as env:
            env.reset(seed=scenario.seed)
            for turn in range(len(straight) + 1):
                snapshots += 1
                where = f"seed {scenario.seed}, snapshot after {turn} turns"
                text = as_json(f"{where}: it", env.snapshot())
                with subject.bare() as fresh:
                    fresh.restore(json.loads(text))
                    if as_json(f"{where}: it", fresh.snapshot()) != text:
                        raise Broken(
                            f"{where}: once restored, the snapshot is {fresh.snapshot()!r} and not {text}"
                        )
                    left = scenario.actions[turn:] if turn < len(straight) else ()
                    same(
                        straight[turn:],
                        play(fresh, left),
                        f"{where}, restored in a fresh environment",
                        turn + 1,
                    )
                if turn < len(straight):
                    env.step(scenario.actions[turn])
    return f"{snapshots} snapshots"


def check_journal(subject: Subject) -> str:
    """Replaying the journal of an episode gives the same episode."""
    with subject.bare() as env:
        trees = []
        for scenario in subject.scenarios:
            task = scenario.seed % task_count(env)
            known = (
                expert(env, scenario.seed, task)
                if scenario in subject.scenarios[:2]
                else scenario.actions
            )
            trees.append(play_task(env, Script(known), task, scenario.seed))
    with tempfile.TemporaryDirectory(prefix="turngym-check-") as folder:
        path = Path(folder) / "trees.jsonl"
        write_trees(path, trees, Origin(subject.env_id, {}))
        with subject.bare() as fresh:
            for tree in read_trees(path):
                divergence = replay(fresh, tree)
                if divergence is not None:
                    raise Broken(f"a replay of the journal diverges: {divergence}")
    return f"{len(trees)} episodes"


def check_vector(subject: Subject) -> str:
    """make_vec, sync and async, with default arguments gives the same episodes as single environments."""
    scenarios = subject.scenarios[1:3]
    rounds = max(len(scenario.actions) for scenario in scenarios) + 2
    singles = [_single(subject, scenario, rounds) for scenario in scenarios]
    for mode in MODES:
        for scenario, single, seen in zip(
            scenarios, singles, _vector(subject, scenarios, rounds, mode), strict=True
        ):
            same(
                single, seen, f"seed {scenario.seed} is another episode in a vector in {mode} mode"
            )
    return f"{rounds} rounds of 2 environments in {len(MODES)} modes"


def _single(subject: Subject, scenario: Scenario, rounds: int) -> list[str]:
    """Return what is seen of an environment by itself that is reset instead of stepped after the end of an episode."""
    with subject.wrapped() as single:
        env = Autoreset(single)
        opening = _moment(*env.reset(seed=scenario.seed))
        return [opening, *(_moment(*env.step(action)) for action in _actions(scenario, rounds))]


def _vector(
    subject: Subject, scenarios: Sequence[Scenario], rounds: int, mode: str
) -> list[list[str]]:
    envs = gymnasium.make_vec(
        spec_of(subject.env_id), len(scenarios), vectorization_mode=mode, **subject.options
    )
    whole = False
    try:
        opening, info = _ask(envs, "reset", seed=[scenario.seed for scenario in scenarios])
        seen = [[_moment(opening[i], _pick(info, i))] for i in range(len(scenarios))]
        for actions in zip(*(_actions(scenario, rounds) for scenario in scenarios)):
            *columns, info = _ask(envs, "step", actions=actions)
            for i in range(len(scenarios)):
                seen[i].append(_moment(*(values[i] for values in columns), _pick(info, i)))
        whole = True
    except Late:
        raise Broken(f"a vector in {mode} mode did not answer within {SECONDS:g} s") from None
    finally:
        envs.close(**({} if whole or mode == "sync" else {"terminate": True}))
    return seen


def _ask(envs: VectorEnv[Any, Any, Any], what: str, **given: Any) -> Any:
    if not isinstance(envs, AsyncVectorEnv):
        return getattr(envs, what)(**given)
    getattr(envs, f"{what}_async")(**given)
    return getattr(envs, f"{what}_wait")(timeout=SECONDS)


def _actions(scenario: Scenario, rounds: int) -> list[str]:
    return [*scenario.actions, *["more"] * rounds][:rounds]


def _pick(info: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return the info of environment `i`: a vector holds an array of each value and a mask `_name` beside it."""
    return {
        name: _pick(values, i) if isinstance(values, dict) else values[i]
        for name, values in info.items()
        if f"_{name}" in info and info[f"_{name}"][i]
    }


def _moment(*seen: Any) -> str:
    return moment(*(_plain(value) for value in seen))


def _plain(value: Any) -> Any:
    """Return a value as text, flags and floats, as a vector may hold them in an array of another type."""
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, np.generic):
        value = value.item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
