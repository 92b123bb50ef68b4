"""Copies of household episodes: fork, go different ways, compare with what was seen without any copy."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from turngym.envs.household.env import ALFWorldEnv
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.rows import Row, first

TURNS = 12


def fork_row(catalogue: Catalogue, seed: int, episodes: int) -> Row:
    """Count forks and snapshots that go on as the original, which goes on as if there were none."""
    drawn, held, of, bad = random.Random(f"forks {seed}"), 0, 0, list[str]()
    for _ in range(episodes):
        i = drawn.randrange(len(catalogue))
        env = catalogue.env([i], max_turns=TURNS)
        straight, actions = _straight(env, drawn)
        for turn in range(len(actions)):
            of += 1
            try:
                fault = _forked(catalogue.env([i], max_turns=TURNS), straight, actions, turn, drawn)
            except Exception as error:  # whatever it is, it counts
                fault = f"raises {type(error).__name__}"
            held += not fault
            bad += [f"{catalogue.entries[i].id} turn {turn}: {fault}"] if fault else []
    return Row(
        "forks and snapshots go on as the original and apart from it", held, of, first(bad, 3)
    )


def _straight(env: ALFWorldEnv, drawn: random.Random) -> tuple[list[Any], list[str]]:
    """Play random admissible commands, and some of the gold; return all that was seen, and the commands."""
    seen, actions = [_begin(env)], []
    while env.live:
        gold = drawn.random() < 0.5
        actions.append(env.gold()[0] if gold else drawn.choice(env.admissible_commands()))
        seen.append(_seen(env, actions[-1]))
    return seen, actions


def _forked(
    env: ALFWorldEnv,
    straight: Sequence[Any],
    actions: Sequence[str],
    turn: int,
    drawn: random.Random,
) -> str:
    _begin(env)
    before = [_seen(env, action) for action in actions[:turn]]
    twin, astray = env.fork(), env.fork()
    written = json.loads(json.dumps(env.snapshot()))
    while astray.live:
        astray.step(drawn.choice(astray.admissible_commands()))
    here, there = ([_seen(one, action) for action in actions[turn:]] for one in (env, twin))
    fresh = ALFWorldEnv(env.tasks, max_turns=env.max_turns)
    fresh.restore(written)
    again = [_seen(fresh, action) for action in actions[turn:]]
    wanted = list(straight[1:])
    faults = {
        "the original": before + here,
        "the fork": before + there,
        "the restored snapshot": before + again,
    }
    return ", ".join(f"{name} is another" for name, seen in faults.items() if seen != wanted)


def _begin(env: ALFWorldEnv) -> Any:
    return env.reset(seed=0, options={"task": 0}), env.admissible_commands()


def _seen(env: ALFWorldEnv, action: str) -> Any:
    return env.step(action), env.admissible_commands(), env.state
