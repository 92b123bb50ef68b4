"""The scheduler: the tokens of each conversation, which of them hold the slots of the cache, and what is fed next.

The cache mirrors the tokens and the record of which were fed as chunks; so it can always be dropped and fed again.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import methodcaller

import numpy as np
from numpy.typing import NDArray

from ...engine import Completion, Generation
from .runner import Runner, ceil_to, chunk_shape

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


class Gathering:
    """How long to wait for more turns before a decode, as few rows cost nearly what many do; no number depends on it.

    It waits while fewer than half of the seated conversations draw, at most `MOST` times what the last decode took, and
    after a wait in which no turn began for half as long, until one begins.
    """

    MOST, TICK = 2.0, 0.0005  # the latter in seconds

    def __init__(self) -> None:
        self._waited = self._took = 0.0
        self._share = 1.0
        self._begun = 0

    def pause(self, running: int, scheduler: "Scheduler") -> float:
        """Return the seconds to wait before another look; 0 where it is time to decode."""
        if scheduler.begun != self._begun:
            self._share, self._begun = 1.0, scheduler.begun
        limit = self.MOST * self._took * self._share
        seated = sum(sequence is not None for sequence in scheduler.slots)
        if 2 * running >= seated or self._waited >= limit:
            return 0.0
        pause = min(self.TICK, limit - self._waited)
        self._waited += pause
        return pause

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Measure a decode."""
        if self._waited:
            self._share /= 2
        began, self._waited = time.perf_counter(), 0.0
        yield
        self._took = time.perf_counter() - began


class Scheduler:
    """Seats requests in `slots` slots; `prefill_tokens` bounds the padded tokens of one chunk batch.

    slots: the sequence in each slot. moves: what is to be done with the cache before the next step, in order. rows:
    decoding feeds a multiple of this many slots.
    """

    def __init__(self, slots: int, prefill_tokens: int, rows: int = 1) -> None:
        self.slots: list[Sequence | None] = [None] * slots
        self.moves: list[Callable[[Runner], None]] = []
        self.begun = 0  # turns
        self._rows = rows
        self._prefill_tokens = prefill_tokens
        self._requests: list[Request] = []
        self._clock = 0

    def add(self, request: Request) -> None:
        """Take a request in."""
        self._requests.append(request)
        self.begun += 1

    def running(self) -> dict[int, Sequence]:
        """Return the sequences with a turn in progress by slot, lowest first; none only where no request is left.

        Free slots go to waiting requests in order. Where no request has a slot, idle sequences lose theirs.
        """
        self._requests = [request for request in self._requests if not request.future.done()]
        waiting = [request.sequence for request in self._requests if request.sequence.slot is None]
        if len(waiting) == len(self._requests) and None not in self.slots:
            # Every slot is idle, perhaps for a tool, perhaps for a sequence that waits here: only this surely goes on.
            idle = sorted((sequence for sequence in self.slots if sequence), key=lambda sequence: sequence.used)
            for sequence in idle[: len(waiting)]:
                self.release(sequence)
        for sequence in waiting:
            if None in self.slots:
                self._seat(sequence)
        return {slot: sequence for slot, sequence in enumerate(self.slots) if sequence and sequence.drawing}

    def next_chunks(self, running: dict[int, Sequence]) -> list[tuple[int, Sequence]]:
        """Return the slots and sequences whose next chunk goes into one batch: those of the first one's padded shape.

        Where sequences have the same tokens so far, as the branches of a group have, they are fed once and copied.
        """
        fresh: dict[Prefix, tuple[int, Sequence]] = {}
        for slot, sequence in running.items():
            if sequence.chunk is None:
                continue
            prefix = sequence.prefix(sequence.chunk[1])
            donor = next((other for other in self.slots if other and other.holds(prefix)), None)
            if donor is None or donor.slot is None:
                fresh.setdefault(prefix, (slot, sequence))
            else:
                sequence.cached = len(prefix[0])
                self._copy(donor.slot, slot, sequence.cached)
        shapes = [chunk_shape(*sequence.chunk) for _, sequence in fresh.values() if sequence.chunk]
        alike = [pair for pair, shape in zip(fresh.values(), shapes) if shape == shapes[0]]
        return alike[: max(self._prefill_tokens // shapes[0][0], 1)] if alike else []

    def compact(self, running: dict[int, Sequence]) -> dict[int, Sequence]:
        """Let running sequences change places with idle ones below them where fewer rows are fed then; return all."""
        rows = ceil_to(len(running), self._rows)
        above = [slot for slot in running if slot >= rows]
        below = [slot for slot in range(rows) if slot not in running]
        for slot, place in zip(above, below, strict=False):
            self.moves.append(methodcaller("exchange", slot, place))
            self.slots[slot], self.slots[place] = self.slots[place], self.slots[slot]
            for at in (slot, place):
                if (sequence := self.slots[at]) is not None:
                    sequence.slot = at
        return {slot: sequence for slot, sequence in enumerate(self.slots[:rows]) if sequence and sequence.drawing}

    def share(self, source: Sequence, twin: Sequence) -> None:
        """Copy what `source` has cached for its `twin`, if a slot is free."""
        if source.slot is not None and None in self.slots:
            twin.cached = min(source.cached, len(twin.tokens) - 1)  # the last token is fed with what comes behind it
            self._copy(source.slot, self._seat(twin), twin.cached)

    def finish(self, sequence: Sequence) -> None:
        """Note that a turn of the sequence has ended."""
        self._clock += 1
        sequence.used = self._clock

    def release(self, sequence: Sequence) -> None:
        """Free the sequence's slot, if it has one; what it had cached is gone."""
        if sequence.slot is not None:
            self.slots[sequence.slot] = None
            sequence.slot, sequence.cached = None, 0

    def clear(self) -> list[Request]:
        """Free all slots, and return the requests that were left."""
        for sequence in self.slots:
            if sequence is not None:
                self.release(sequence)
        self.moves.clear()
        requests, self._requests = self._requests, []
        return requests

    def _copy(self, source: int, target: int, length: int) -> None:
        self.moves.append(methodcaller("copy", source, target, length))

    def _seat(self, sequence: Sequence) -> int:
        """Take the lowest free slot, so that decoding covers few idle rows."""
        slot = sequence.slot = self.slots.index(None)
        self.slots[slot] = sequence
        return slot
