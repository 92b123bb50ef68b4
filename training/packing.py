"""From trees to columns: every rewarded path becomes a row of tokens, every token that the policy drew becomes a slot.

The mask is applied here and nowhere else: what follows never sees a token that the policy did not draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..agents.trajectory import Leaf, Tree
from .columns import OUTCOMES, Batch, Turns


class NothingToLearn(ValueError):
    """No path of the trees was rewarded, or the policy had no turn on any."""


@dataclass(frozen=True, eq=False)
class Packed:
    """The paths of a step, shortest first, and their slots in the same order."""

    names: list[str]  # of the paths, for messages: task id and branch
    keys: list[tuple[int, ...]]  # of the paths: (seed, step, task, branch)
    tokens: list[Int[Tensor, "_"]]  # of each path, root to leaf
    sampled: list[Bool[Tensor, "_"]]
    token: Int[Tensor, "s"]  # token id of each slot
    temperature: Float[Tensor, "s"]
    batch: Batch

    def micro_batches(self, max_tokens: int, keep: Bool[Tensor, "p"]) -> Iterator[range]:
        """Yield ranges of paths whose padded size is at most `max_tokens`, leaving out paths that `keep` does not name.

        A path longer than `max_tokens` gets a range of its own.
        """
        start = 0
        while start < len(self.tokens):
            if not keep[start]:
                start += 1
                continue
            stop = start + 1
            while stop < len(self.tokens) and keep[stop] and len(self.tokens[stop]) * (stop + 1 - start) <= max_tokens:
                stop += 1
            yield range(start, stop)
            start = stop

    def padded(self, paths: range) -> tuple[Int[Tensor, "b t"], Bool[Tensor, "b t"]]:
        """Return the tokens of `paths`, padded on the right with 0, and where the policy drew them."""
        tokens = torch.nn.utils.rnn.pad_sequence([self.tokens[path] for path in paths], batch_first=True)
        sampled = torch.nn.utils.rnn.pad_sequence([self.sampled[path] for path in paths], batch_first=True)
        return tokens, sampled


def pack(trees: Sequence[Tree]) -> Packed:
    """Lay the rewarded paths of `trees` out as rows and slots.

    Raises:
        NothingToLearn: no path of the trees was rewarded, or the policy had no turn on any.
    """
    paths = [(group, tree, leaf) for group, tree in enumerate(trees) for leaf in tree.leaves if leaf.rewarded]
    if not any(tree.replies(leaf) for _, tree, leaf in paths):
        stops = sorted({f"{leaf.stop}" for tree in trees for leaf in tree.leaves})
        ended = f"; their paths ended by {', '.join(stops)}" if stops else ""
        raise NothingToLearn(f"{len(trees)} trees hold nothing to learn from{ended}")
    paths.sort(key=lambda path: len(path[1].tokens(path[2])))
    turns = _turns(paths)
    slots: dict[str, list[np.ndarray]] = {
        name: [] for name in ("logp", "entropy", "id", "temperature", "path", "row", "node")
    }
    row = 0
    node_of = turns.node.tolist()
    for number, (_, tree, leaf) in enumerate(paths):
        for node in tree.replies(leaf):
            turn = tree.turns[node]
            drawn = turn.sampled
            slots["logp"].append(turn.logp_roll[drawn])
            slots["entropy"].append(turn.entropy[drawn])
            slots["id"].append(turn.tokens[drawn].astype(np.int64))
            slots["temperature"].append(np.full(drawn.sum(), turn.temperature, np.float32))
            slots["path"].append(np.full(drawn.sum(), number))
            slots["row"].append(np.full(drawn.sum(), row))
            slots["node"].append(node_of[row] * (1 << 20) + np.flatnonzero(drawn))
            row += 1
    column = {name: torch.from_numpy(np.concatenate(parts)) for name, parts in slots.items()}
    _, token, uses = torch.unique(column["node"], return_inverse=True, return_counts=True)
    batch = Batch(
        logp_old=column["logp"],
        entropy=column["entropy"],
        logp_roll=column["logp"],
        path=column["path"],
        row=column["row"],
        token=token,
        share=1.0 / uses[token].float(),
        n_paths=len(paths),
        turns=turns,
    )
    return Packed(
        names=[f"{tree.task_id} branch {leaf.branch}" for _, tree, leaf in paths],
        keys=[(*tree.key, leaf.branch) for _, tree, leaf in paths],
        tokens=[torch.from_numpy(tree.tokens(leaf).astype(np.int64)) for _, tree, leaf in paths],
        sampled=[
            torch.from_numpy(np.concatenate([tree.turns[node].sampled for node in tree.path(leaf)]))
            for _, tree, leaf in paths
        ],
        token=column["id"],
        temperature=column["temperature"],
        batch=batch,
    )


def _turns(paths: Sequence[tuple[int, Tree, Leaf]]) -> Turns:
    """Return a row for each agent turn of each path; `anchor` numbers what the agent of a group had just observed."""
    rows: list[tuple[int, int, int, int, int, int, float, float, int]] = []
    nodes: dict[tuple[int, int], int] = {}
    anchors: dict[tuple[int, str], int] = {}
    for number, (group, tree, leaf) in enumerate(paths):
        for index, node in enumerate(tree.replies(leaf)):
            turn = tree.turns[node]
            seen = tree.turns[turn.parent].text
            rows.append(
                (
                    tree.task,
                    group,
                    number,
                    nodes.setdefault((group, node), len(nodes)),
                    index,
                    anchors.setdefault((group, seen), len(anchors)),
                    leaf.score,
                    turn.reward,
                    OUTCOMES.index(leaf.outcome),
                )
            )
    task, group_, path, node_, turn_, anchor, score, reward, outcome = zip(*rows)
    return Turns(
        task=torch.tensor(task),
        group=torch.tensor(group_),
        path=torch.tensor(path),
        node=torch.tensor(node_),
        turn=torch.tensor(turn_),
        phase=torch.zeros(len(rows), dtype=torch.long),
        anchor=torch.tensor(anchor),
        score=torch.tensor(score, dtype=torch.float32),
        reward=torch.tensor(reward, dtype=torch.float32),
        outcome=torch.tensor(outcome),
    )
