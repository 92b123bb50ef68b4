"""Trees that grow at random in worlds with a state: whatever a path was forked from, it is what its actions make it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from turngym.agents.chat.chat import Chat
from turngym.agents.engine import Sampling, keyed_rng
from turngym.agents.journal.replay import replay
from turngym.agents.models.resolve import TINY
from turngym.agents.rollout.collect import collect
from turngym.agents.rollout.path import Actor
from turngym.agents.trajectory import Event, Key, Spawn, Tree
from turngym.envs import TextEnv
from turngym.envs.registry import make
from turngym.tests.support.scripted_engine import Says, ScriptedEngine
from turngym.tests.verify.rows import Row, Tally

BUDGET = 6  # trained paths a tree
AT_ONCE = 50  # trees whose rollouts are collected together
VERBS = (
    "go to {}",
    "open {}",
    "close {}",
    "examine {}",
    "use {}",
    "take {} from {}",
    "move {} to {}",
    "inventory",
)
MOVES = (
    "x = {n}",
    "x = x + {n}; print(x)",
    "words = globals().get('words', []); words.append({n}); print(words)",
    "print(sorted(k for k in globals() if not k.startswith('_')))",
    "def grow(by): global x; x = x * by + {n}; return x",
    "print(grow({n}))",
    "import random; random.seed({n}); print(random.random())",
)


def household_row(trees: int, seed: int) -> Row:
    """Count random trees in the made-up house whose paths all come out of their own actions again."""
    env = make("turngym/Household-v0", size="tiny", max_turns=6)
    return branch_row("branching: household", env, acts, trees, seed)


def python_row(trees: int, seed: int) -> Row:
    """Count random trees in a persistent Python session whose paths all come out of their own programs again."""
    env = make("turngym/MathPython-v0", max_turns=4, timeout=60.0)
    return branch_row("branching: persistent Python session", env, programs, trees, seed)


def branch_row(what: str, env: TextEnv, says: Says, trees: int, seed: int) -> Row:
    """Grow `trees` trees in `env` where `at_random` says and replay each path; a tree's budget must be exact, too."""
    chat = Chat.from_folder(TINY)
    actor = Actor(ScriptedEngine(chat, says), chat, chat.end_ids)
    tally, forks, inside = Tally(what), 0, 0
    try:
        for start in range(0, trees, AT_ONCE):
            tasks = range(start, min(start + AT_ONCE, trees))
            sampling = Sampling(max_tokens=128)
            for tree in collect(
                actor, env, tasks, group=BUDGET, key=(seed, 0), sampling=sampling, plan=at_random
            ):
                tally.add(tree.task_id, fault(env, tree))
                forks += sum(leaf.parent >= 0 for leaf in tree.leaves)
                inside += sum(leaf.token > 0 for leaf in tree.leaves)
    finally:
        env.close()
    return tally.row(
        f"{trees * BUDGET} trained paths; {forks} forks, {inside} of them inside a turn"
    )


def fault(env: TextEnv, tree: Tree) -> str:
    """Return what a tree breaks: its budget, or the first path that its own actions do not make again."""
    trained = sum(leaf.trained for leaf in tree.leaves)
    failed = sum(not leaf.rewarded for leaf in tree.leaves)
    if trained != BUDGET or failed:
        return f"{trained} trained paths of {BUDGET}, {failed} failed"
    found = replay(env, tree)
    return "" if found is None else str(found)


def at_random(tree: Tree, event: Event, key: Key) -> list[Spawn]:
    """Fork now and then behind what was just answered, behind an earlier answer, inside a turn, or at the prompt."""
    rng = keyed_rng((*key, event.node, len(event.kind)))
    if event.kind == "start":
        return [Spawn(0, n=int(rng.integers(1, 3)))]
    if rng.random() < 0.4:
        return []
    said = [node for node, turn in enumerate(tree.turns) if turn.role == "assistant"]
    answers = [
        node
        for node, turn in enumerate(tree.turns)
        if turn.role not in ("assistant", "system") and node
    ]
    if rng.random() < 0.2:
        node = int(rng.choice(said))
        return [Spawn(node, token=int(rng.integers(1, len(tree.turns[node].tokens) + 1)))]
    here = (
        event.node
        if event.kind == "turn" and rng.random() < 0.5
        else int(rng.choice([0, *answers]))
    )
    return [Spawn(here, n=int(rng.integers(1, 3)), trained=bool(rng.random() < 0.95))]


def acts(heard: str, rng: np.random.Generator) -> str:
    """Return a household command about things that were named."""
    named = re.findall(r"\b[a-z]+ \d+\b", heard) or ["house 1"]
    command = str(rng.choice(VERBS))
    return command.format(*_chosen(named, command.count("{}"), rng))


def programs(heard: str, rng: np.random.Generator) -> str:
    """Return a call whose program defines or changes variables; now and then an answer."""
    if rng.random() < 0.1:
        return f"\\boxed{{{int(rng.integers(9))}}}"
    lines = [
        str(move).format(n=int(rng.integers(100)))
        for move in rng.choice(MOVES, int(rng.integers(1, 3)))
    ]
    return f"<tool_call>\n{json.dumps({'name': 'python', 'arguments': {'code': chr(10).join(lines)}})}\n</tool_call>"


def _chosen(named: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    return [named[int(i)] for i in rng.integers(len(named), size=count)]
