"""Replay: take the actions of a journal again and report the first difference.

A replay needs no policy, because an environment that keeps its contract gives the same answers to the same texts. What
an agent's code reads from a clock or from an address in memory differs, and is reported like any other difference.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from ...envs import StopReason, TextEnv
from ...envs.options import check_levels
from ...envs.reserved_choices import refuse_unnamed, reserved_choices
from ...envs.split_episodes import make_with_examples
from ...tools import Status
from ...tools.progress import track
from ..players import Script, play
from ..trajectory import Leaf, Tree, Turn
from .trees import read_count, read_origin, read_trees

OPENING = -1  # in place of a turn: what `reset` gave
SHOWN = 160  # characters of a value that a sentence shows
NOTHING = "(nothing)"  # in place of a value that is not there
_Fact = tuple[
    int, str, Any, bool
]  # turn, field, value, and whether a deadline of a tool cut the turn


@dataclass(frozen=True)
class Divergence:
    """Where a replay first saw something else than the journal says.

    key: (seed, step, task, branch) of the path.
    turn: Which of the agent's turns was answered otherwise, from 0; -1 for the opening.
    field: What of the answer: task_id, info[…], reward, stop, outcome, score, role or text.
    deadline: A deadline of a tool cut this turn, now or then: what it leaves depends on the machine's speed.
    """

    key: tuple[int, ...]
    turn: int
    field: str
    recorded: Any
    replayed: Any
    deadline: bool = False

    def __str__(self) -> str:
        *_, task, branch = self.key
        where = "the opening" if self.turn == OPENING else f"turn {self.turn}"
        why = (
            "; a deadline cut this turn, and what it leaves depends on the machine's speed"
            if self.deadline
            else ""
        )
        was, now = _shortened(repr(self.recorded), repr(self.replayed))
        return f"task {task}, branch {branch}, {where}: {self.field} was {was}, is {now}{why}"


@dataclass(frozen=True)
class Replayed:
    """One path, taken again. Of a path that failed, all but the failure itself is repeated."""

    task_id: str
    key: tuple[int, ...]  # (seed, step, task, branch)
    turns: int  # of the agent that were taken again
    failed: bool  # the path ended in an infrastructure failure
    divergence: Divergence | None


def replay(env: TextEnv, tree: Tree) -> Divergence | None:
    """Take every path of a tree again, each in a fork of `env`, and return the first divergence."""
    return next(
        (found for leaf in tree.leaves if (found := replay_path(env, tree, leaf).divergence)), None
    )


def replay_path(env: TextEnv, tree: Tree, leaf: Leaf) -> Replayed:
    nodes, key = [tree.turns[node] for node in tree.path(leaf)], (*tree.key, leaf.branch)
    if not leaf.rewarded and (
        nodes[-1].role == "assistant" or (leaf.node == 0 and not nodes[0].info)
    ):
        nodes.pop()  # the action, or the opening, that was not answered
    texts = [turn.text for turn in nodes if turn.role == "assistant"]
    found = None
    if nodes:
        try:
            again = play(env, Script(texts), tree.task, tree.key[0])
        except Exception as error:
            found = Divergence(
                key, OPENING, "text", nodes[0].text, f"{type(error).__name__}: {error}"
            )
        else:
            stop = leaf.stop if leaf.rewarded and not _left(leaf, nodes) else None
            recorded = _facts(tree.task_id, nodes, stop, leaf if leaf.rewarded else None)
            found = _first(key, recorded, _replayed(again, leaf, nodes))
    return Replayed(tree.task_id, key, len(texts), not leaf.rewarded, found)


def replay_journal(
    path: Path,
    *,
    task: int | None = None,
    branch: int | None = None,
    options: Mapping[str, Any] | None = None,
    env_id: str = "",
) -> Iterator[Replayed]:
    """Make a journal's environment again and yield each of its paths when it has been replayed.

    `task` and `branch` leave out other paths. `options` of the environment take the place of the recorded ones, where,
    say, a task file has moved; `env_id` is the environment where it is not turngym's own.

    Raises ValueError where the journal is damaged, has no such path, asks for what only `options` and `env_id` may
    choose (`reserved_choices`), or its environment cannot be made; LevelRefused where this machine cannot isolate a
    tool as asked.
    """
    origin = read_origin(path)
    merged = {**origin.options, **(options or {})}
    asked = reserved_choices(merged, env_id or origin.env)
    refuse_unnamed(asked, reserved_choices(options or {}, env_id), str(path))
    env = make_with_examples(env_id or origin.env, merged)
    check_levels(env)
    count = 0
    with closing(env):
        for tree in track(read_trees(path), "trees", read_count(path)):
            for leaf in tree.leaves:
                if task in (None, tree.task) and branch in (None, leaf.branch):
                    count += 1
                    yield replay_path(env, tree, leaf)
    if not count:
        named = {"task": task, "branch": branch}
        chosen = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        raise ValueError(
            f"{path} holds no path{chosen and f' of {chosen}'}; there is nothing to replay"
        )


def _replayed(again: Tree, leaf: Leaf, nodes: list[Turn]) -> list[_Fact]:
    """Return the facts of a replay. Where the policy ended the path that is replayed, it ends this one too."""
    turns = again.turns[: len(nodes)]
    if again.leaves:
        return _facts(again.task_id, turns, again.leaves[0].stop, again.leaves[0])
    if not leaf.rewarded or not _left(leaf, nodes):
        return _facts(again.task_id, turns, None, None)
    score = reduce(
        add, (turn.reward for turn in turns), 0.0
    )  # one after the other, as a rollout adds; `sum` is exact
    end = Leaf.ended(
        len(turns) - 1,
        0,
        StopReason.CONTEXT,
        score,
        turns[-1].info if turns[-1].parent >= 0 else {},
    )
    return _facts(again.task_id, turns, None, end)


def _left(leaf: Leaf, nodes: list[Turn]) -> bool:
    """Return whether the policy ended the path: its context was full, of which an environment knows nothing."""
    return leaf.stop == StopReason.CONTEXT and (
        nodes[-1].role != "assistant" or nodes[-1].ended == "context"
    )


def _facts(task_id: str, nodes: list[Turn], stop: str | None, end: Leaf | None) -> list[_Fact]:
    """Return all that an environment says on a path, in the order in which it is seen; `stop` ended its episode."""
    turn, cut = OPENING, False
    facts: list[_Fact] = [(turn, "task_id", task_id, cut), (turn, "text", nodes[0].text, cut)]
    for node in nodes:
        if node.parent < 0:
            values: dict[str, Any] = {name: node.info.get(name) for name in ("messages", "tools")}
        elif node.role == "assistant":
            turn, cut = turn + 1, node.info.get("tool_status") == Status.TIMEOUT
            last = stop if node is nodes[-1] else None
            values = {"info": dict(node.info), "reward": node.reward, "stop": last}
        else:
            values = {"role": node.role, "text": node.text}
        facts += [(turn, name, value, cut) for name, value in values.items()]
    if end is not None:
        values = {"outcome": str(end.outcome), "score": end.score, "info": dict(end.info)}
        facts += [(turn, name, value, cut) for name, value in values.items()]
    return facts


def _first(key: tuple[int, ...], recorded: list[_Fact], replayed: list[_Fact]) -> Divergence | None:
    facts = zip(
        recorded, replayed, strict=False
    )  # where one of them ends early, its `stop` differs
    for (turn, field, old, cut), (_, _, new, cut_now) in facts:
        was, now = (json.loads(json.dumps(value, default=repr)) for value in (old, new))
        for name in ("valid", "foreign_call") if field == "info" else ():
            if name not in was:  # a journal of a version that did not write it
                now.pop(name, None)
        if _bits(was) == _bits(now):
            continue
        if field == "info":
            name = next(
                n
                for n in sorted({*was, *now})
                if _bits(was.get(n, NOTHING)) != _bits(now.get(n, NOTHING))
            )
            field, was, now = f"info[{name!r}]", was.get(name, NOTHING), now.get(name, NOTHING)
        return Divergence(key, turn, field, was, now, cut or cut_now)
    return None


def _bits(value: Any) -> str:
    """Return what two values must share to be the same: numbers to the last bit, NaN like NaN."""
    return json.dumps(value, sort_keys=True)


def _shortened(one: str, other: str) -> list[str]:
    parts = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(parts - SHOWN // 4, 0) if max(len(one), len(other)) > SHOWN else 0
    end = start + SHOWN
    return [
        f"{'…' * (start > 0)}{text[start:end]}{'…' * (len(text) > end)}" for text in (one, other)
    ]
