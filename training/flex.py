"""Attention over a layout in one fused call: FlexAttention (Dong et al. 2024, arXiv 2412.05496), for CUDA.

A token sees those of its chain of segments up to itself. Segments are numbered depth first, so that those behind a
segment are an interval of numbers: what a token sees takes two numbers a token, and blocks of 128 by 128 in which none
is seen are never computed. No [tokens, tokens] mask ever exists.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .layout import Layout

BLOCK = 128  # tokens


def padding(layout: Layout) -> int:
    """Return how many tokens a layout lacks to whole blocks."""
    return -len(layout.tokens) % BLOCK


def block_mask(layout: Layout, device: torch.device) -> BlockMask:
    """Return what each token of a layout, padded to whole blocks, sees; padding sees and is seen by padding alone."""
    sizes, chains = layout.sizes, layout.chains
    if spare := padding(layout):
        sizes, chains = (*sizes, spare), (*chains, (len(chains),))
    enter, leave = (torch.from_numpy(np.repeat(part, sizes)).to(device) for part in _intervals(chains))

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (enter[key] <= enter[query]) & (enter[query] < leave[key])

    pairs = _pairs(sizes, chains)
    whole = pairs == BLOCK * BLOCK
    (some, which), (full, which_full) = _ordered((pairs > 0) & ~whole, device), _ordered(whole, device)
    return BlockMask.from_kv_blocks(some, which, full, which_full, BLOCK_SIZE=BLOCK, mask_mod=sees)


def attend(query: Tensor, key: Tensor, value: Tensor, blocks: BlockMask, scaling: float | None) -> Tensor:
    """Return `[1, heads, s, d]` of queries `[1, heads, s, d]` and keys and values `[1, kv_heads, s, d]`.

    PyTorch has no backward pass of it on CPU.
    """
    # Within a compiled layer it is compiled with the rest; alone it would compute all scores unless compiled.
    fused: Any = flex_attention if torch.compiler.is_compiling() else _compiled()
    out: Tensor = fused(query, key, value, block_mask=blocks, scale=scaling, enable_gqa=key.shape[1] != query.shape[1])
    return out


@cache
def _compiled() -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(flex_attention)
    return compiled


def _intervals(chains: tuple[tuple[int, ...], ...]) -> tuple[Int[NDArray[np.int32], "n"], Int[NDArray[np.int32], "n"]]:
    """Return of each segment its number, depth first, and the first number behind those of the segments that see it."""
    enter, within = np.empty(len(chains), np.int32), np.ones(len(chains), np.int32)
    enter[sorted(range(len(chains)), key=chains.__getitem__)] = np.arange(len(chains))
    for segment in reversed(range(len(chains))):  # a segment lies behind all that it sees
        if len(chains[segment]) > 1:
            within[chains[segment][-2]] += within[segment]
    return enter, enter + within


def _pairs(sizes: tuple[int, ...], chains: tuple[tuple[int, ...], ...]) -> Int[NDArray[np.int64], "b b"]:
    """Return of each block of queries how many of its pairs with each block of keys are seen."""
    ends = np.cumsum(sizes)
    count = int(ends[-1]) // BLOCK
    pairs, known = np.zeros((count, count), np.int64), dict[int, NDArray[np.int64]]()
    for segment, (chain, size, end) in enumerate(zip(chains, sizes, ends)):
        blocks = np.arange((end - size) // BLOCK, (end - 1) // BLOCK + 1)
        own = np.minimum((blocks + 1) * BLOCK, end) - np.maximum(blocks * BLOCK, end - size)
        seen = known[chain[-2]].copy() if len(chain) > 1 else np.zeros(count, np.int64)
        pairs[blocks] += np.outer(own, seen)
        pairs[blocks[:, None], blocks] += np.tril(np.outer(own, own), -1) + np.diag(own * (own + 1) // 2)
        seen[blocks] += own
        known[segment] = seen
    return pairs


def _ordered(blocks: NDArray[np.bool_], device: torch.device) -> tuple[Int[Tensor, "1 1 b"], Int[Tensor, "1 1 b b"]]:
    """Return how many blocks of keys each block of queries has, and which, first."""
    which = torch.from_numpy(np.argsort(~blocks, axis=1, kind="stable").astype(np.int32))
    return torch.from_numpy(blocks.sum(1, dtype=np.int32))[None, None].to(device), which[None, None].to(device)
