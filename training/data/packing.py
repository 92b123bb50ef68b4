"""Trees become the flat columns of a batch.

Every rewarded path becomes a row of tokens, every token that the policy drew a slot. The
mask is applied there and nowhere else: a token that the policy did not draw has no slot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from math import nan
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ...agents.evaluation.votes import Same, spelled_alike
from ...agents.trajectory import CLASSES, PHASES, Leaf, Tree, Turn
from .batch import OUTCOMES, Batch, Column, Turns, _cut
from .layout import Layout, layout_of


@dataclass(frozen=True, eq=False)
class Vote:
    """A column that is made of which answers of a tree are the same. `pack` gives it the environment's `same`."""

    make: Callable[[Tree, Same], Sequence[float]]

    def __call__(self, tree: Tree, same: Same = spelled_alike) -> Sequence[float]:
        return self.make(tree, same)


class NothingToLearn(ValueError):
    """No path of the trees was rewarded, or the policy had no turn on any."""


@dataclass(frozen=True, eq=False)
class Packed:
    """The paths of a step, those of a tree next to each other, and their slots in the same order."""

    names: list[str]  # of the paths, for messages: task id and branch
    keys: list[tuple[int, ...]]  # of the paths: (seed, step, task, branch)
    tokens: list[Int[Tensor, "_"]]  # of each path, root to leaf
    shared: list[
        Int[Tensor, "_"]
    ]  # of each of these tokens a number, equal where paths share it and all before it
    sampled: list[Bool[Tensor, "_"]]
    token: Int[Tensor, "s"]  # token id of each slot
    temperature: Float[Tensor, "s"]
    batch: Batch
    estimate: bool = False  # whether the batch has log-probabilities and entropies of another engine than the learner's

    def micro_batches(self, max_tokens: int, keep: Bool[Tensor, "p"]) -> Iterator[range]:
        """Yield ranges of the paths in `keep`, each of at most `max_tokens` different tokens or of one longer path."""
        start, known = 0, set[int]()
        for path, shared in enumerate(self.shared):
            names = shared.tolist() if keep[path] else []
            if start < path and (not names or len(known.union(names)) > max_tokens):
                yield range(start, path)
                start, known = path, set()
            known.update(names)
            start += not names
        if start < len(self.shared):
            yield range(start, len(self.shared))

    def parts(self, number: int) -> list[range]:
        """Return the paths cut into `number` parts of whole trees, or as many as there are trees."""
        trees = [
            index
            for index, key in enumerate(self.keys)
            if not index or key[:-1] != self.keys[index - 1][:-1]
        ]
        ends = [*trees, len(self.keys)]
        size = min(number, len(trees))
        cuts = [ends[len(trees) * part // size] for part in range(size + 1)]
        return [range(start, stop) for start, stop in pairwise(cuts)]

    def part(self, paths: range) -> Packed:
        """Return contiguous `paths`, whole trees, as data of their own: `turns` has their rows alone."""
        if len(paths) == self.batch.n_paths:
            return self
        span, which = self.batch.span(paths), slice(paths.start, paths.stop)
        first = int((self.batch.turns.path < paths.start).sum())
        rows = slice(first, int((self.batch.turns.path < paths.stop).sum()))
        turns = self.batch.turns
        cut = _cut(vars(turns), rows) | {
            "path": turns.path[rows] - paths.start,
            "columns": _cut(turns.columns, rows),
        }
        batch = self.batch.slice(paths)
        lists = {
            name: getattr(self, name)[which]
            for name in ("names", "keys", "tokens", "shared", "sampled")
        }
        return replace(
            self,
            **lists,
            token=self.token[span],
            temperature=self.temperature[span],
            batch=replace(batch, row=batch.row - first, turns=replace(turns, **cut)),
        )

    def layout(self, paths: range) -> Layout:
        """Return the tokens of `paths`, each once."""
        return layout_of(
            [self.tokens[path] for path in paths], [self.shared[path] for path in paths]
        )


def pack(
    trees: Sequence[Tree],
    columns: Mapping[str, Column] = MappingProxyType({}),
    same: Same = spelled_alike,
) -> Packed:
    """Return the rewarded paths of `trees`, without probes, as rows and slots, with `columns` made of whole trees.

    `same` says which answers are the same, for columns that are a `Vote`. Raises NothingToLearn: no path of the trees
    was rewarded, or the policy had no turn on any.
    """
    paths = [
        (group, tree, leaf)
        for group, tree in enumerate(trees)
        for leaf in tree.leaves
        if leaf.learned
    ]
    if not any(tree.replies(leaf) for _, tree, leaf in paths):
        stops = sorted({f"{leaf.stop}" for tree in trees for leaf in tree.leaves})
        ended = f"; their paths ended by {', '.join(stops)}" if stops else ""
        raise NothingToLearn(f"{len(trees)} trees hold nothing to learn from{ended}")
    kept = torch.tensor([leaf.learned for tree in trees for leaf in tree.leaves])
    by_leaf = {}
    for name, make in columns.items():
        made = partial(make, same=same) if isinstance(make, Vote) else make
        by_leaf[name] = torch.tensor([value for tree in trees for value in made(tree)])
    table = _turns(paths)
    turns = replace(
        table, columns={name: of.float()[kept][table.path] for name, of in by_leaf.items()}
    )
    slots: dict[str, list[np.ndarray]] = {}
    replies = [
        (number, *path[:2], node)
        for number, path in enumerate(paths)
        for node in path[1].replies(path[2])
    ]
    for row, (number, group, tree, node) in enumerate(replies):
        turn = tree.turns[node]
        of: dict[str, Any] = {
            "path": np.int64(number),
            "row": np.int64(row),
            "id": turn.tokens.astype(np.int64),
        }
        of |= {
            "temperature": np.float32(turn.temperature),
            "logp_roll": turn.logp_roll,
            "entropy": turn.entropy,
        }
        after = PHASES.index("answer" if "answer" in turn.info else "call")
        of["phase"] = np.where(
            np.arange(len(turn.tokens)) < turn.thought, PHASES.index("think"), after
        )
        of |= {"kind": _classes(turn), "token": _names(group, tree, node)}
        for name, value in of.items():
            slots.setdefault(name, []).append(
                np.broadcast_to(value, turn.sampled.shape)[turn.sampled]
            )
    column: dict[str, Any] = {
        name: torch.from_numpy(np.concatenate(parts)) for name, parts in slots.items()
    }
    ids, temperature = column.pop("id"), column.pop("temperature")
    _, column["token"], uses = torch.unique(
        column["token"], return_inverse=True, return_counts=True
    )
    share = 1.0 / uses[column["token"]].float()
    batch = Batch(
        **column, logp_old=column["logp_roll"], share=share, n_paths=len(paths), turns=turns
    )

    def along(of: Callable[[int, Tree, int], NDArray[Any]]) -> list[Tensor]:
        whole = ([of(group, tree, node) for node in tree.path(leaf)] for group, tree, leaf in paths)
        return [torch.from_numpy(np.concatenate(parts)) for parts in whole]

    return Packed(
        names=[f"{tree.task_id} branch {leaf.branch}" for _, tree, leaf in paths],
        keys=[(*tree.key, leaf.branch) for _, tree, leaf in paths],
        tokens=[torch.from_numpy(tree.tokens(leaf).astype(np.int64)) for _, tree, leaf in paths],
        shared=along(_names),
        sampled=along(lambda group, tree, node: tree.turns[node].sampled),
        token=ids,
        temperature=temperature,
        batch=batch,
        estimate=any(turn.estimate for _, tree, _ in paths for turn in tree.turns),
    )


def _classes(turn: Turn) -> NDArray[np.int64]:
    """Return the class of each token of a turn, as an index in `CLASSES`; what is in no whole block is words."""
    kinds = np.full(len(turn.tokens), CLASSES.index("words"))
    if turn.values is not None:
        kinds[turn.thought :] = CLASSES.index("format")
        kinds[slice(*turn.values)] = CLASSES.index("arguments")
    return kinds


def _names(group: int, tree: Tree, node: int) -> NDArray[np.int64]:
    """Return for each token of a turn a number that is equal where paths share the token."""
    drawers = tree.drawers(node)
    return (((group << 20) + drawers) << 20) + np.arange(len(drawers))


def _turns(paths: Sequence[tuple[int, Tree, Leaf]]) -> Turns:
    """Return a row for each agent turn of each path; `anchor` numbers what the agent of a group had just observed."""
    rows: list[tuple[int | float, ...]] = []  # in the order of the fields of `Turns`
    nodes, anchors, choices = (
        defaultdict[Any, int](count().__next__) for _ in range(3)
    )  # what is new gets a number
    for number, (group, tree, leaf) in enumerate(paths):
        for index, node in enumerate(tree.replies(leaf)):
            turn = tree.turns[node]
            anchor = anchors[group, tree.turns[turn.parent].text]
            valid = float(said) if isinstance(said := turn.info.get("valid"), bool) else nan
            paid = (float(leaf.score), float(turn.reward), OUTCOMES.index(leaf.outcome))
            labels = (tree.task, group, number, nodes[group, node], index, anchor)
            rows.append((*labels, *paid, valid, choices[choice_of(turn.info)]))
    return Turns(*map(torch.tensor, zip(*rows)))


def choice_of(info: Mapping[str, Any]) -> str:
    """Return what a turn came down to, one of a few: where it led, `answer`, the tool, or the command's first word."""
    if "answer" in info:
        return "answer"
    return str(info.get("led") or info.get("tool") or info.get("command") or "").partition(" ")[0]
