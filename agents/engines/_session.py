"""A conversation of the embedded engine, and the turn it is drawing.

A session is its tokens and the record of which were fed as chunks; the cache mirrors that and can always be dropped.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..engine import Completion, Cut, Sampling, Stop, keyed_rng
from ._cut import Said

if TYPE_CHECKING:
    from ._served import VllmSession
    from .torch import TorchEngine

Prefix = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]  # tokens, and the chunks they were fed in

LONGEST_CHUNK = 512  # longer chunks are fed in pieces of this many tokens, which bounds the attention matrix


@dataclass(eq=False)
class Turn:
    """A turn in progress: what to draw with, and what has been drawn."""

    session: "TorchSession"
    sampling: Sampling
    uniforms: NDArray[np.float64]
    cut: Cut | None
    future: asyncio.Future[Completion]
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    said: Said = field(default_factory=Said)

    def finish(self, stop: Stop, version: int) -> None:
        """Hand the drawn turn to the caller who waits for it."""
        tokens, logp = np.array(self.tokens, np.int32), np.array(self.logp, np.float32)
        self.future.set_result(Completion(tokens, logp, np.array(self.entropy, np.float32), stop, version))


class TorchSession:
    """One conversation on a `TorchEngine`; the first `cached` of its `tokens` lie in slot `slot`."""

    def __init__(self, engine: "TorchEngine") -> None:
        self.engine = engine
        self.tokens: list[int] = []
        self.chunks: dict[int, int] = {}  # start -> stop of what was fed at once; other tokens were fed one by one
        self.cached = 0
        self.slot: int | None = None
        self.turn: Turn | None = None
        self.version: int | None = None
        self.used = 0  # when the engine last gave or took its slot
        self.closed = False

    @property
    def length(self) -> int:
        """Tokens so far, given and drawn."""
        return len(self.tokens)

    def prefix(self, stop: int) -> Prefix:
        """The first `stop` tokens and how they were fed: what equals it has the same cache, to the bit."""
        return tuple(self.tokens[:stop]), tuple(chunk for chunk in self.chunks.items() if chunk[1] <= stop)

    def holds(self, prefix: Prefix) -> bool:
        """Whether the slot caches this prefix."""
        tokens = prefix[0]
        return self.cached >= len(tokens) and self.tokens[0] == tokens[0] and self.prefix(len(tokens)) == prefix

    @property
    def drawing(self) -> bool:
        """Whether a turn is in progress."""
        return self.turn is not None and not self.turn.future.done()

    async def sample(
        self, tokens: NDArray[np.int32], sampling: Sampling, key: tuple[int, ...], cut: Cut | None = None
    ) -> Completion:
        """Append `tokens` int32 [q], then draw one turn (see `engine.Session`).

        Raises RuntimeError when closed, already drawing, or continued under other weights; ValueError on an id outside
        the vocabulary, nothing to begin with or a cut without closers; FloatingPointError where the policy's logits are
        not finite.
        """
        check_turn(self, self.turn is not None, tokens, cut)
        version = self.engine.policy.version
        room = self.engine.max_context - len(self.tokens) - len(tokens)
        if room <= 0:
            nothing = np.zeros(0, np.float32)
            return Completion(np.zeros(0, np.int32), nothing, nothing, "context", version)
        self.version = version
        self._append(tokens)
        uniforms = keyed_rng(key).random(min(sampling.max_tokens, room))
        self.turn = Turn(self, sampling, uniforms, cut, asyncio.get_running_loop().create_future())
        try:
            self.engine.begin(self.turn)
            return await self.turn.future
        except BaseException:
            self.close()  # with half a turn among its tokens the session has no sensible next
            raise
        finally:
            self.turn = None

    def fork(self, length: int | None = None) -> "TorchSession":
        """An independent sibling: its prefix is copied where a slot is free, else replayed when it next draws.

        Raises RuntimeError while a turn is drawn; ValueError on a length that cuts through what was fed at once.
        """
        if self.turn is not None:
            raise RuntimeError("the session is drawing; fork it between two turns")
        length = self.length if length is None else length
        tokens, chunks = self.prefix(length)
        if not 0 <= length <= self.length or any(stop > length > start + 1 for start, stop in self.chunks.items()):
            raise ValueError(f"length is {length}; a fork of this session of {self.length} tokens cannot begin there")
        twin = TorchSession(self.engine)
        twin.tokens, twin.chunks, twin.version = list(tokens), dict(chunks), self.version
        if length:
            self.engine.share(self, twin)
        return twin

    def close(self) -> None:
        """Free the slot; a turn in progress ends with RuntimeError."""
        if not self.closed:
            self.closed = True
            self.engine.release(self)
            if self.turn is not None and not self.turn.future.done():
                self.turn.future.set_exception(RuntimeError("the session was closed while it drew a turn"))

    def _append(self, tokens: NDArray[np.int32]) -> None:
        """Add given tokens. All but the last are fed as chunks, the last by the decode step that draws after it."""
        start = max(len(self.tokens) - 1, 0)  # the token drawn last has not been fed
        self.tokens.extend(int(token) for token in tokens)
        last = len(self.tokens) - 1
        for piece in range(start, last, LONGEST_CHUNK):
            self.chunks[piece] = min(piece + LONGEST_CHUNK, last)


def check_turn(
    session: "TorchSession | VllmSession", drawing: bool, tokens: NDArray[np.int32], cut: Cut | None
) -> None:
    """Raise RuntimeError or ValueError where a session cannot draw behind `tokens` (see `TorchSession.sample`)."""
    policy = session.engine.policy
    if session.closed or drawing:
        raise RuntimeError(f"the session is {'closed' if session.closed else 'drawing a turn'}; open or fork another")
    if session.version not in (None, policy.version):
        raise RuntimeError(
            f"the session began with weights {session.version} and the policy is at {policy.version}; "
            f"end sessions before the policy is updated"
        )
    if not session.tokens and not len(tokens):
        raise ValueError("tokens is empty and so is the session; begin with at least 1 token")
    outside = [int(token) for token in tokens if not 0 <= token < policy.vocabulary]
    if outside:
        raise ValueError(f"tokens hold id {outside[0]}; the policy's ids lie in 0..{policy.vocabulary - 1}")
    if cut is not None and not (cut.closers and all(cut.closers)):
        raise ValueError(f"the cut's closers are {cut.closers}; it needs texts, and none that is empty")
