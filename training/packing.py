"""From trees to columns: every rewarded path becomes a row of tokens, every token that the policy drew becomes a slot.

The mask is applied here and nowhere else: what follows never sees a token that the policy did not draw.

For a forward pass the paths of a micro-batch share a `Layout`, in which a token that several of them have is computed
once. Tokens are in the order of the paths that bring them first; they are cut into segments where a path
leaves another. A segment sees a chain of segments, from the root of its tree to itself. Positions count from that root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ..agents.trajectory import PHASES, Leaf, Tree, Turn
from .columns import OUTCOMES, Batch, Turns

LONGEST = 512  # tokens of a segment that sees others; bounds the mask of its attention


class NothingToLearn(ValueError):
    """No path of the trees was rewarded, or the policy had no turn on any."""


@dataclass(frozen=True, eq=False)
class Packed:
    """The paths of a step, those of a tree next to each other, and their slots in the same order."""

    names: list[str]  # of the paths, for messages: task id and branch
    keys: list[tuple[int, ...]]  # of the paths: (seed, step, task, branch)
    tokens: list[Int[Tensor, "_"]]  # of each path, root to leaf
    shared: list[Int[Tensor, "_"]]  # of each of these tokens a number, equal where paths share it and all before it
    sampled: list[Bool[Tensor, "_"]]
    token: Int[Tensor, "s"]  # token id of each slot
    temperature: Float[Tensor, "s"]
    batch: Batch
    estimate: bool = False  # whether the batch has log-probabilities and entropies of another engine than the learner's

    def micro_batches(self, max_tokens: int, keep: Bool[Tensor, "p"]) -> Iterator[range]:
        """Yield ranges of paths of at most `max_tokens` different tokens, leaving out paths that `keep` does not name.

        A path longer than `max_tokens` gets a range of its own.
        """
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

    def layout(self, paths: range) -> Layout:
        """Return the tokens of `paths`, each once."""
        return layout_of([self.tokens[path] for path in paths], [self.shared[path] for path in paths])


def pack(trees: Sequence[Tree]) -> Packed:
    """Return the rewarded paths of `trees`, without probes, as rows and slots.

    Raises:
        NothingToLearn: no path of the trees was rewarded, or the policy had no turn on any.
    """
    paths = [(group, tree, leaf) for group, tree in enumerate(trees) for leaf in tree.leaves if leaf.learned]
    if not any(tree.replies(leaf) for _, tree, leaf in paths):
        stops = sorted({f"{leaf.stop}" for tree in trees for leaf in tree.leaves})
        ended = f"; their paths ended by {', '.join(stops)}" if stops else ""
        raise NothingToLearn(f"{len(trees)} trees hold nothing to learn from{ended}")
    turns = _turns(paths)
    slots: dict[str, list[np.ndarray]] = {
        name: [] for name in ("logp", "entropy", "id", "temperature", "path", "row", "token", "phase")
    }
    row = 0
    for number, (group, tree, leaf) in enumerate(paths):
        for node in tree.replies(leaf):
            turn = tree.turns[node]
            drawn = turn.sampled
            slots["logp"].append(turn.logp_roll[drawn])
            slots["entropy"].append(turn.entropy[drawn])
            slots["id"].append(turn.tokens[drawn].astype(np.int64))
            slots["temperature"].append(np.full(drawn.sum(), turn.temperature, np.float32))
            slots["path"].append(np.full(drawn.sum(), number))
            slots["row"].append(np.full(drawn.sum(), row))
            slots["phase"].append(_phases(turn)[drawn])
            slots["token"].append(_names(group, tree, node)[drawn])
            row += 1
    column = {name: torch.from_numpy(np.concatenate(parts)) for name, parts in slots.items()}
    _, token, uses = torch.unique(column["token"], return_inverse=True, return_counts=True)
    batch = Batch(
        logp_old=column["logp"],
        entropy=column["entropy"],
        logp_roll=column["logp"],
        path=column["path"],
        row=column["row"],
        token=token,
        share=1.0 / uses[token].float(),
        phase=column["phase"],
        n_paths=len(paths),
        turns=turns,
    )
    return Packed(
        names=[f"{tree.task_id} branch {leaf.branch}" for _, tree, leaf in paths],
        keys=[(*tree.key, leaf.branch) for _, tree, leaf in paths],
        tokens=[torch.from_numpy(tree.tokens(leaf).astype(np.int64)) for _, tree, leaf in paths],
        shared=[
            torch.from_numpy(np.concatenate([_names(group, tree, node) for node in tree.path(leaf)]))
            for group, tree, leaf in paths
        ],
        sampled=[
            torch.from_numpy(np.concatenate([tree.turns[node].sampled for node in tree.path(leaf)]))
            for _, tree, leaf in paths
        ],
        token=column["id"],
        temperature=column["temperature"],
        batch=batch,
        estimate=any(turn.estimate for _, tree, _ in paths for turn in tree.turns),
    )


def _phases(turn: Turn) -> NDArray[np.int64]:
    """Return the phase of each token of a turn, as an index in `PHASES`."""
    action = PHASES.index("answer" if "answer" in turn.info else "call")
    return np.where(np.arange(len(turn.tokens)) < turn.thought, PHASES.index("think"), action)


def _names(group: int, tree: Tree, node: int) -> NDArray[np.int64]:
    """Return for each token of a turn a number that is equal where paths share the token."""
    drawers = tree.drawers(node)
    return (((group << 20) + drawers) << 20) + np.arange(len(drawers))


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
        anchor=torch.tensor(anchor),
        score=torch.tensor(score, dtype=torch.float32),
        reward=torch.tensor(reward, dtype=torch.float32),
        outcome=torch.tensor(outcome),
    )


@dataclass(frozen=True, eq=False)
class Layout:
    """The tokens `[u]` of some paths, each once, in segments."""

    tokens: Int[Tensor, "u"]
    positions: Int[Tensor, "u"]
    sizes: tuple[int, ...]  # tokens of each segment
    chains: tuple[tuple[int, ...], ...]  # of each segment: those it sees, root first, itself last
    places: tuple[Int[Tensor, "_"], ...]  # of each path: the places of its tokens, root to leaf


def layout_of(tokens: Sequence[Int[Tensor, "_"]], names: Sequence[Int[Tensor, "_"]]) -> Layout:
    """Return the layout of some paths.

    Args:
        tokens: The token ids of each path, root to leaf.
        names: Of each of these tokens a number that is equal where two paths share the token, and all before it.
    """
    lengths = [len(name) for name in names]
    _, first, label = np.unique(torch.cat(list(names)).numpy(), return_index=True, return_inverse=True)
    place_of = np.empty_like(first)
    place_of[np.argsort(first)] = np.arange(len(first))
    places = np.split(place_of[label], np.cumsum(lengths)[:-1])
    kept = torch.from_numpy(np.sort(first))
    positions = torch.cat([torch.arange(length) for length in lengths])[kept]
    starts = _cut(_starts(places, len(first)), positions.numpy())
    return Layout(
        tokens=torch.cat(list(tokens))[kept],
        positions=positions,
        sizes=tuple(np.diff(starts, append=len(first)).tolist()),
        chains=_chains(places, starts),
        places=tuple(torch.from_numpy(place) for place in places),
    )


def _starts(places: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    """Return where segments begin: where a path jumps to another place, and behind the place it leaves."""
    found = []
    for place in places:
        (left,) = np.nonzero(np.diff(place) != 1)
        found += [place[:1], place[left] + 1, place[left + 1]]
    starts = np.unique(np.concatenate(found))
    return starts[starts < size]


def _cut(starts: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the starts with those of the pieces of segments that are too long; what begins a tree needs no mask."""
    stops = [*starts[1:], len(positions)]
    pieces = [np.arange(a, b, LONGEST if positions[a] else b - a) for a, b in zip(starts, stops)]
    return np.concatenate(pieces)


def _chains(places: Sequence[NDArray[np.int64]], starts: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    chains: dict[int, tuple[int, ...]] = {}
    for place in places:
        path = np.unique(np.searchsorted(starts, place, "right") - 1).tolist()  # ascending, as places along a path are
        for i, segment in enumerate(path):
            chains.setdefault(segment, tuple(path[: i + 1]))
    return tuple(chains[segment] for segment in range(len(starts)))
