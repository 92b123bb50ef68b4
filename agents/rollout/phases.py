"""Parts of an agent's turn: what it thinks, and what it does with it, a call or its answer.

A turn is thought up to where its call or its marked answer begins; without either, up to the end of its last thought in
tags, and where there is none of those it is all action.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

PHASES = ("think", "call", "answer")

BOX = "\\boxed{"
END_OF_THOUGHT = "</think>"


def begins(text: str, block: int | None) -> int:
    """Return how many characters of a turn's text are thought; `block` is where its call or tagged answer begins."""
    if block is not None:
        return block
    end = text.rfind(END_OF_THOUGHT)
    box = text.rfind(BOX, max(end, 0))
    return box if box >= 0 else end + len(END_OF_THOUGHT) if end >= 0 else 0


def tokens_before(tokens: NDArray[np.int32], characters: int, decode: Callable[[list[int]], str]) -> int:
    """Return how many `tokens` there are in front of the one that holds the character behind the first `characters`."""
    if characters <= 0:
        return 0
    ids = tokens.tolist()
    low, high = 0, len(ids)
    while low < high:  # the text of more tokens is never shorter
        middle = (low + high) // 2
        low, high = (middle + 1, high) if len(decode(ids[: middle + 1])) <= characters else (low, middle)
    return low
