"""The layout of a forward pass, in which the paths of a tree share their tokens.

In a `Layout` a token that several paths have is computed once. Tokens are in the order of the paths that bring them
first, cut into segments where a path leaves another. A segment sees a chain of segments, from the root of its tree,
where positions begin, to itself: what is computed of a path is what causal attention computes of the path alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

BLOCK, ROWS = 128, 8  # tokens; blocks of queries whose pairs are looked at together
LONGEST = 512  # tokens of a segment that sees others; bounds the mask of its attention


@dataclass(frozen=True, eq=False)
class Layout:
    """The tokens `[u]` of some paths, each once, in segments."""

    tokens: Int[Tensor, "u"]
    positions: Int[Tensor, "u"]
    sizes: tuple[int, ...]  # tokens of each segment
    chains: tuple[tuple[int, ...], ...]  # of each segment: those it sees, root first, itself last
    places: tuple[Int[Tensor, "_"], ...]  # of each path: the places of its tokens, root to leaf


def layout_of(tokens: Sequence[Int[Tensor, "_"]], names: Sequence[Int[Tensor, "_"]]) -> Layout:
    """Return the layout of some paths, of which `tokens` are the token ids, root to leaf.

    `names` has of each token a number that is equal where two paths share the token, and all before it.
    """
    lengths = [len(name) for name in names]
    _, first, label = np.unique(
        torch.cat(list(names)).numpy(), return_index=True, return_inverse=True
    )
    place_of = np.empty_like(first)
    place_of[np.argsort(first)] = np.arange(len(first))
    places = np.split(place_of[label], np.cumsum(lengths)[:-1])
    kept = torch.from_numpy(np.sort(first))
    positions = torch.cat([torch.arange(length) for length in lengths])[kept]
    jumps = []  # segments begin where a path jumps to another place, and behind the place it leaves
    for place in places:
        (left,) = np.nonzero(np.diff(place) != 1)
        jumps += [place[:1], place[left] + 1, place[left + 1]]
    starts = np.unique(np.concatenate(jumps))
    starts = _cut(starts[starts < len(first)], positions.numpy())
    chains: dict[int, tuple[int, ...]] = {}
    for place in places:
        path = np.unique(
            np.searchsorted(starts, place, "right") - 1
        ).tolist()  # ascending, as places along a path are
        for i, segment in enumerate(path):
            chains.setdefault(segment, tuple(path[: i + 1]))
    return Layout(
        tokens=torch.cat(list(tokens))[kept],
        positions=positions,
        sizes=tuple(np.diff(starts, append=len(first)).tolist()),
        chains=tuple(chains[segment] for segment in range(len(starts))),
        places=tuple(torch.from_numpy(place) for place in places),
    )


def _cut(starts: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the starts with those of the pieces of segments that are too long; what begins a tree needs no mask."""
    stops = [*starts[1:], len(positions)]
    pieces = [np.arange(a, b, LONGEST if positions[a] else b - a) for a, b in zip(starts, stops)]
    return np.concatenate(pieces)


def padding(layout: Layout) -> int:
    return -len(layout.tokens) % BLOCK
