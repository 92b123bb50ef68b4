"""Trees as JSON lines: tokens, statistics and text of every turn, exact to the last bit, and no wall-clock time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..envs import Outcome
from .trajectory import Leaf, Tree, Turn

_COLUMNS = {"tokens": np.int32, "sampled": np.bool_, "logp_roll": np.float32, "entropy": np.float32}


def write_trees(path: Path, trees: Iterable[Tree]) -> None:
    """Write one tree a line to `path`, first under a temporary name, so that a file is whole or absent."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    with temporary.open("w", encoding="utf-8", errors="surrogatepass") as file:
        for tree in trees:
            file.write(json.dumps(to_json(tree), ensure_ascii=False, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_trees(path: Path) -> Iterator[Tree]:
    """Read the trees of a journal.

    Raises:
        ValueError: a line is not a tree; the message names the file and the line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from_json(json.loads(line))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{path}, line {number}: not a tree of this version ({error!r})") from error


def to_json(tree: Tree) -> dict[str, Any]:
    """Return a tree as JSON data; a missing score or reward (NaN) is null."""
    return {
        "key": list(tree.key),
        "task": tree.task,
        "task_id": tree.task_id,
        "turns": [_turn_json(turn) for turn in tree.turns],
        "leaves": [
            {**vars(leaf), "outcome": str(leaf.outcome), "score": _number(leaf.score), "info": dict(leaf.info)}
            for leaf in tree.leaves
        ],
    }


def from_json(data: dict[str, Any]) -> Tree:
    """Return the tree that `to_json` wrote."""
    turns = []
    for row in data["turns"]:
        columns: dict[str, Any] = {name: np.array(row[name], kind) for name, kind in _COLUMNS.items()}
        turns.append(Turn(**{**row, **columns, "reward": _score(row["reward"])}))
    leaves = [
        Leaf(**{**row, "outcome": Outcome(row["outcome"]), "score": _score(row["score"])}) for row in data["leaves"]
    ]
    return Tree(tuple(data["key"]), data["task"], data["task_id"], turns, leaves)


def _turn_json(turn: Turn) -> dict[str, Any]:
    columns: dict[str, Any] = {name: getattr(turn, name).tolist() for name in _COLUMNS}
    columns["sampled"] = [int(value) for value in columns["sampled"]]
    return {**vars(turn), **columns, "reward": _number(turn.reward), "info": dict(turn.info)}


def _number(value: float) -> float | None:
    return None if value != value else value


def _score(value: float | None) -> float:
    return float("nan") if value is None else float(value)
