"""The tokens of one conversation, the part of them that is cached, and the turn that is requested of it.

The cache mirrors the tokens and the record of which were fed as chunks; so it can always be dropped and fed again.
"""

import asyncio
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...engine import Completion
from ..generation import Generation

Prefix = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]  # tokens, and the chunks they were fed in

LONGEST_CHUNK = 512  # longer chunks are fed in pieces of this many tokens, which bounds the attention matrix


@dataclass(eq=False, kw_only=True)
class Request(Generation):
    """A turn that a caller waits for: token i is drawn at `uniforms[i]`, float64 [most]."""

    sequence: "Sequence"
    uniforms: NDArray[np.float64]
    future: asyncio.Future[Completion]


@dataclass(eq=False)
class Sequence:
    """The tokens of a conversation; the first `cached` of them lie in slot `slot`.

    chunks: start -> stop of what was fed at once; other tokens were fed one by one. used: when its last turn ended, on
    the scheduler's clock.
    """

    tokens: list[int] = field(default_factory=list)
    chunks: dict[int, int] = field(default_factory=dict)
    cached: int = 0
    slot: int | None = None
    request: Request | None = None
    used: int = 0

    @property
    def drawing(self) -> bool:
        """Whether a turn is in progress."""
        return self.request is not None and not self.request.future.done()

    @property
    def chunk(self) -> tuple[int, int] | None:
        """Start and stop of the chunk to feed next; None where the next token is fed alone."""
        return (self.cached, self.chunks[self.cached]) if self.cached in self.chunks else None

    def append(self, tokens: NDArray[np.int32]) -> None:
        """Add tokens of a prompt. All but the last are fed as chunks, the last by the decode step that follows."""
        start = max(len(self.tokens) - 1, 0)  # the token drawn last has not been fed
        self.tokens.extend(int(token) for token in tokens)
        last = len(self.tokens) - 1
        for piece in range(start, last, LONGEST_CHUNK):
            self.chunks[piece] = min(piece + LONGEST_CHUNK, last)

    def prefix(self, stop: int) -> Prefix:
        """Return the first `stop` tokens and how they were fed: what equals it has the same cache, to the bit."""
        return tuple(self.tokens[:stop]), tuple(chunk for chunk in self.chunks.items() if chunk[1] <= stop)

    def holds(self, prefix: Prefix) -> bool:
        """Return whether the slot caches this prefix."""
        tokens = prefix[0]
        return self.cached >= len(tokens) and self.tokens[0] == tokens[0] and self.prefix(len(tokens)) == prefix

    def fork(self, length: int) -> "Sequence":
        """Return a sequence of the first `length` tokens; ValueError where that cuts through what was fed at once."""
        tokens, chunks = self.prefix(length)
        cuts = any(stop > length > start + 1 for start, stop in self.chunks.items())
        if not 0 <= length <= len(self.tokens) or cuts:
            raise ValueError(
                f"length is {length}; a fork of this session of {len(self.tokens)} tokens cannot begin there"
            )
        return Sequence(list(tokens), dict(chunks))
