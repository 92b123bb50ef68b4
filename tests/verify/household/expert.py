"""The expert that sees what an agent sees: how often it succeeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from turngym.envs.household.env import ALFWorldEnv, make_household
from turngym.envs.household.expert import Expert
from turngym.envs.household.generate import SIZES
from turngym.tests.verify.household.catalogue import Catalogue
from turngym.tests.verify.rows import Row, first

TURNS = 50
NEED = 0.95
LEVELS = (1, 2, 3, 4, 5)


def official_rows(catalogue: Catalogue) -> Iterator[Row]:
    """Count successes on the solvable games of valid_seen and valid_unseen, in both forms of the text, if any."""
    entries = catalogue.entries
    chosen = [
        i
        for i, one in enumerate(entries)
        if one.solvable and one.split in ("valid_seen", "valid_unseen")
    ]
    kinds, names = ([getattr(entries[i], name) for i in chosen] for name in ("task_type", "id"))
    for text in ("current", "old") if chosen else ():
        env = catalogue.env(chosen, text, TURNS)
        what = (
            f"the expert succeeds within {TURNS} turns on valid_seen and valid_unseen, {text} text"
        )
        yield _row(what, env, kinds, names, NEED)


def generated_rows(seed: int, tasks: int) -> Iterator[Row]:
    """Count golds that win and successes of the expert, on generated tasks of every size and all difficulties."""
    for size in SIZES:
        env = make_household("test", size, LEVELS, seed=seed)
        names = [f"{size} {i}" for i in range(tasks)]
        lost = [name for i, name in enumerate(names) if not _gold_wins(env, i)]
        yield Row(
            f"{size} generated tasks are won by their golds", tasks - len(lost), tasks, first(lost)
        )
        yield _row(f"the expert solves {size} generated tasks", env, [""] * tasks, names, 1.0)


def success(env: ALFWorldEnv, task: int) -> tuple[bool, int]:
    """Play one task from observations alone; return whether it succeeded and its turns."""
    expert, won, reward = Expert(), False, 0.0
    observation, _ = env.reset(seed=0, options={"task": task})
    while env.live:
        observation, reward, won, _, _ = env.step(expert.act(observation))
    return won and reward == 1, env.turn


def _gold_wins(env: ALFWorldEnv, task: int) -> bool:
    env.reset(seed=0, options={"task": task})
    for command in env.gold():
        if command not in env.admissible_commands():
            return False
        env.step(command)
    return not env.live and sum(env.turn_rewards) == 1


def _row(
    what: str, env: ALFWorldEnv, kinds: Sequence[str], names: Sequence[str], need: float
) -> Row:
    lost, turns, tried, won = list[str](), list[int](), Counter[str](), Counter[str]()
    for i, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        good, used = success(env, i)
        tried[kind] += 1
        won[kind] += good
        turns += [used] if good else []
        lost += [] if good else [name]
    by = ", ".join(f"{kind} {won[kind]}/{tried[kind]}" for kind in sorted(tried) if kind)
    mean = f"{sum(turns) / len(turns):.1f} turns a success" if turns else ""
    note = "; ".join(filter(None, [f"failed: {first(lost)}" if lost else "", by, mean]))
    return Row(what, won.total(), tried.total(), note, need)
