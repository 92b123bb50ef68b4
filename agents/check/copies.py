"""Promises about copies of an episode: forks, snapshots, journals, vectors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import gymnasium

from ...envs import fork
from ..journal import Origin, read_trees, write_trees
from ..players import Script
from ..players import play as play_task
from ..replay import replay
from .episodes import Broken, Case, Plan, episode, expert, moment, play, same, task_count

E = TypeVar("E", bound=gymnasium.Env[str, str])


def check_fork(case: Case) -> str:
    """Fork at every turn, bare and through wrappers: twins go on as the original, and none changes another."""
    forks = 0
    for plan in case.plans:
        with case.bare() as env:
            forks += _fork_everywhere(env, plan, type(env).fork)
        with case.wrapped() as wrapped:
            forks += _fork_everywhere(wrapped, plan, fork)
    return f"{forks} forks"


def _fork_everywhere(env: E, plan: Plan, copy: Callable[[E], E]) -> int:
    straight = [*episode(env, plan), moment(*env.reset())]  # what is seen without a fork
    opening, rest = straight[0], straight[1:-1]
    same(
        [opening], [moment(*env.reset(seed=plan.seed))], f"seed {plan.seed} is another episode when it is played again"
    )
    where = f"seed {plan.seed}, forked before turn"
    with ExitStack() as stack:
        late = []
        for turn, action in enumerate(plan.actions[: len(rest)]):
            twin, astray, last = (copy(env) for _ in range(3))
            late.append((turn, last))
            stack.callback(last.close)
            _closing(astray, (action, *plan.actions[:turn:-1]))  # twice what comes next, or what comes last
            seen = _closing(twin, plan.actions[turn:])
            same(rest[turn:], seen, f"{where} {turn + 1}, a twin goes another way (do twins share state?)", turn + 1)
            what = f"{where} {turn + 1}, what a twin does changes the original"
            same([rest[turn]], [moment(*env.step(action))], what, turn + 1)
        same(
            [straight[-1]],
            [moment(*env.reset())],
            f"seed {plan.seed}: the reset after an episode with forks is another",
        )
        for turn, last in late:
            what = f"{where} {turn + 1}, what the original does changes a twin"
            same(rest[turn:], play(last, plan.actions[turn:]), what, turn + 1)
            same([straight[-1]], [moment(*last.reset())], f"{where} {turn + 1}, the next reset of a twin is another")
    return 3 * len(rest)


def _closing(env: gymnasium.Env[str, str], actions: Sequence[str]) -> list[str]:
    try:
        return play(env, actions)
    finally:
        env.close()


def check_snapshot(case: Case) -> str:
    """Write the episode down at every turn; a fresh environment restored from it goes on as the original."""
    snapshots = 0
    for plan in case.plans:
        straight = case.episode(plan)[1:]
        with case.bare() as env:
            env.reset(seed=plan.seed)
            for turn in range(len(straight) + 1):
                snapshots += 1
                where = f"seed {plan.seed}, snapshot after {turn} turns"
                text = _as_json(env.snapshot(), where)
                with case.bare() as fresh:
                    fresh.restore(json.loads(text))
                    if _as_json(fresh.snapshot(), where) != text:
                        raise Broken(f"{where}: once restored, the snapshot is {fresh.snapshot()!r} and not {text}")
                    left = plan.actions[turn:] if turn < len(straight) else ()
                    same(straight[turn:], play(fresh, left), f"{where}, restored in a fresh environment", turn + 1)
                if turn < len(straight):
                    env.step(plan.actions[turn])
    return f"{snapshots} snapshots"


def _as_json(snapshot: Any, where: str) -> str:
    text = json.dumps(snapshot, allow_nan=False)
    if json.loads(text) != snapshot:
        raise Broken(f"{where}: {snapshot!r} comes back from JSON as {text}; use str keys, lists, numbers and strings")
    return text


def check_journal(case: Case) -> str:
    """Play tasks, write the journal, read it back and replay it in a fresh environment."""
    with case.bare() as env:
        trees = []
        for plan in case.plans:
            task = plan.seed % task_count(env)
            known = expert(env, plan.seed, {"task": task}) if plan in case.plans[:2] else plan.actions
            trees.append(play_task(env, Script(known), task, plan.seed))
    with tempfile.TemporaryDirectory(prefix="turngym-check-") as folder:
        path = Path(folder) / "trees.jsonl"
        write_trees(path, trees, Origin(case.env_id, {}))
        with case.bare() as fresh:
            for tree in read_trees(path):
                divergence = replay(fresh, tree)
                if divergence is not None:
                    raise Broken(f"a replay of the journal diverges: {divergence}")
    return f"{len(trees)} episodes"
