"""The scheduler: the tokens of each conversation, which of them hold the slots of the cache, and what is fed next.

The cache mirrors the tokens and the record of which were fed as chunks; so it can always be dropped and fed again.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ...engine import Completion, Generation
from .runner import chunk_shape

LONGEST_CHUNK = (
    512  # longer chunks are fed in pieces of this many tokens, which bounds the attention matrix
)


@dataclass(eq=False, kw_only=True)
class PendingTurn(Generation):
    """A turn that a caller waits for: token i is drawn at `uniforms[i]`, float64 [most]."""

    sequence: "Sequence"
    uniforms: NDArray[np.float64]
    future: asyncio.Future[Completion]


@dataclass(eq=False)
class Sequence:
    """The tokens of a conversation; the first `cached` of them lie in slot `slot`.

    chunks: start -> stop of what was fed at once; other tokens were fed one by one. marks: stop -> digest of all tokens
    up to there and how they were fed; what has the same has the same cache, to the bit. used: when its last turn ended,
    on the scheduler's clock.
    """

    tokens: list[int] = field(default_factory=list)
    chunks: dict[int, int] = field(default_factory=dict)
    marks: dict[int, bytes] = field(default_factory=dict)
    cached: int = 0
    slot: int | None = None
    request: PendingTurn | None = None
    used: int = 0

    @property
    def drawing(self) -> bool:
        return self.request is not None and not self.request.future.done()

    @property
    def chunk(self) -> tuple[int, int] | None:
        """Start and stop of the chunk to feed next; None where the next token is fed alone."""
        return (self.cached, self.chunks[self.cached]) if self.cached in self.chunks else None

    def append(self, tokens: NDArray[np.int32]) -> None:
        """Add tokens of a prompt. All but the last are fed as chunks, the last by the decode step that follows."""
        start = max(len(self.tokens) - 1, 0)  # the token drawn last has not been fed
        self.tokens.extend(tokens.tolist())
        last = len(self.tokens) - 1
        for piece in range(start, last, LONGEST_CHUNK):
            stop = self.chunks[piece] = min(piece + LONGEST_CHUNK, last)
            before = next(reversed(self.marks), 0)
            fed = np.array([piece, *self.tokens[before:stop]], np.int64).tobytes()
            self.marks[stop] = blake2b(self.marks.get(before, b"") + fed, digest_size=16).digest()

    def fork(self, length: int) -> "Sequence":
        """Return a sequence of the first `length` tokens; ValueError where that cuts through what was fed at once."""
        cuts = any(stop > length > start + 1 for start, stop in self.chunks.items())
        if not 0 <= length <= len(self.tokens) or cuts:
            what = f"a fork of this session of {len(self.tokens)} tokens"
            raise ValueError(f"length is {length}; {what} cannot begin there")
        chunks = {start: stop for start, stop in self.chunks.items() if stop <= length}
        marks = {stop: mark for stop, mark in self.marks.items() if stop <= length}
        return Sequence(self.tokens[:length], chunks, marks)


class Gathering:
    """How long to wait for more turns before a step, as few rows cost nearly what many do; no number depends on it.

    It waits while fewer than half of the seated conversations draw, at most `MOST` times what the last decode took, and
    after a wait in which no turn began for half as long, until one begins. `clock` is in seconds.
    """

    MOST = 2.0

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since: float | None = None
        self._took, self._share = 0.0, 1.0
        self._begun = 0

    def pause(self, running: int, scheduler: "Scheduler") -> float:
        """Return the seconds to wait for a turn to begin; 0 where it is time for a step."""
        if scheduler.begun != self._begun:
            self._share, self._begun = 1.0, scheduler.begun
        limit, now = self.MOST * self._took * self._share, self._clock()
        if not limit or 2 * running >= sum(sequence is not None for sequence in scheduler.slots):
            return 0.0
        self._since = now if self._since is None else self._since
        return max(self._since + limit - now, 0.0)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        if self._since is not None:
            self._share /= 2
        began, self._since = self._clock(), None
        yield
        self._took = self._clock() - began


class Scheduler:
    """Seats requests in `slots` slots; `prefill_tokens` bounds the padded tokens of one chunk batch.

    slots: the sequence in each slot. copies: source, targets and length of what is to be copied before the next step,
    in order; a slot that is free again has no targets.
    """

    def __init__(self, slots: int, prefill_tokens: int) -> None:
        self.slots: list[Sequence | None] = [None] * slots
        self.copies: list[tuple[int, list[int], int]] = []
        self.begun = 0  # turns
        self._more: asyncio.Future[None] | None = None
        self._prefill_tokens = prefill_tokens
        self._requests: list[PendingTurn] = []
        self._clock = 0

    def add(self, request: PendingTurn) -> None:
        self._requests.append(request)
        self.begun += 1
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def more(self, seconds: float) -> None:
        """Wait until a turn begins, at most so long."""
        self._more = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._more], timeout=seconds)

    def running(self) -> list[Sequence]:
        """Return the sequences with a turn in progress and a slot; none only where no request is left.

        Free slots go to waiting requests in order. Where no request has a slot, idle sequences lose theirs.
        """
        self._requests = [request for request in self._requests if not request.future.done()]
        waiting = [request.sequence for request in self._requests if request.sequence.slot is None]
        if len(waiting) == len(self._requests) and None not in self.slots:
            # Every slot is idle, perhaps for a tool, perhaps for a sequence that waits here: only this surely goes on.
            idle = sorted(
                (sequence for sequence in self.slots if sequence),
                key=lambda sequence: sequence.used,
            )
            for sequence in idle[: len(waiting)]:
                self.release(sequence)
        for sequence in waiting:
            if None in self.slots:
                self._seat(sequence)
        return [sequence for sequence in self.slots if sequence and sequence.drawing]

    def next_chunks(self, running: list[Sequence]) -> list[Sequence]:
        """Return the sequences whose next chunks are fed together, at most `prefill_tokens` unless there is only one.

        Where sequences have the same tokens so far, as the branches of a group have, they are fed once and copied.
        """
        fresh: dict[bytes, Sequence] = {}
        room = self._prefill_tokens
        for sequence in running:
            if sequence.chunk is None or sequence.slot is None:
                continue
            start, stop = sequence.chunk
            mark = sequence.marks[stop]
            seated = (
                other
                for other in self.slots
                if other and other.cached >= stop and other.marks.get(stop) == mark
            )
            donor = next(seated, None)
            if donor is not None and donor.slot is not None:
                sequence.cached = stop
                self._copy(donor.slot, sequence.slot, stop)
            elif mark not in fresh and (
                room >= (queries := chunk_shape(start, stop)[0]) or not fresh
            ):
                room -= queries
                fresh[mark] = sequence
        return list(fresh.values())

    def share(self, source: Sequence, twin: Sequence) -> None:
        """Copy what `source` has cached for its `twin`, if a slot is free."""
        if source.slot is not None and None in self.slots:
            twin.cached = min(
                source.cached, len(twin.tokens) - 1
            )  # the last token is fed with what comes behind it
            self._copy(source.slot, self._seat(twin), twin.cached)

    def finish(self, sequence: Sequence) -> None:
        self._clock += 1
        sequence.used = self._clock

    def release(self, sequence: Sequence) -> None:
        """Free the sequence's slot, if it has one; what it had cached is gone."""
        if sequence.slot is not None:
            self.slots[sequence.slot] = None
            self.copies.append((sequence.slot, [], 0))
            sequence.slot, sequence.cached = None, 0

    def clear(self) -> list[PendingTurn]:
        """Free all slots, and return the requests that were left."""
        for sequence in self.slots:
            if sequence is not None:
                self.release(sequence)
        self.copies.clear()
        requests, self._requests = self._requests, []
        return requests

    def _copy(self, source: int, target: int, length: int) -> None:
        if self.copies and self.copies[-1][::2] == (source, length):
            self.copies[-1][1].append(target)
        else:
            self.copies.append((source, [target], length))

    def _seat(self, sequence: Sequence) -> int:
        slot = sequence.slot = self.slots.index(None)
        self.slots[slot] = sequence
        return slot
