"""The embedded engine: conversations share one batch, each keeps its cache across turns, and none waits for another.

While turns are in progress a scheduler task steps on one worker thread: given chunks first, else one token for every
running turn. A session's cache can be dropped and replayed to the same bits, so having more sessions than slots delays
them and changes nothing.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import TracebackType
from typing import Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..engine import Stop
from ..policy import Policy
from ._cache import SlotCache, ceil_to
from ._cut import Closers
from ._draw import Knobs, draw
from ._runner import ROWS, Runner, check_supported, chunk_shape, evaluating, probe, set_threads
from ._session import Prefix, TorchSession, Turn

T = TypeVar("T")


class TorchEngine:
    """Draws turns from a `Policy` on its own device.

    `slots` conversations are cached at a time; `prefill_tokens` bounds the padded tokens of one chunk batch;
    `max_context` (tokens) lowers the policy's own limit; `threads` are the CPU threads of its worker alone (None: as
    the process; 1 suits small models next to busy tools). Raises ValueError on a value out of range or an unfit model.
    """

    def __init__(
        self,
        policy: Policy,
        slots: int = 64,
        prefill_tokens: int = 4096,
        max_context: int | None = None,
        threads: int | None = None,
    ) -> None:
        for name, value in (("slots", slots), ("prefill_tokens", prefill_tokens), ("threads", threads)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; the engine needs at least 1")
        self.policy = policy
        self.max_context = policy.max_context if max_context is None else max_context
        if not 2 <= self.max_context <= policy.max_context:
            raise ValueError(f"max_context is {max_context}; the policy takes 2..{policy.max_context} tokens")
        check_supported(policy.base.config, self.max_context)
        self._prefill_tokens = prefill_tokens
        self._runner = Runner(policy.base, policy.device, self.max_context)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="turngym-engine")
        if threads is not None:
            set_threads(self._worker, threads)
        self._closers = Closers(policy.tokenizer)
        self._owners: list[TorchSession | None] = [None] * slots
        self._copies: list[tuple[int, int, int]] = []
        self._turns: list[Turn] = []
        self._task: asyncio.Task[None] | None = None
        self._clock = 0
        self._open = True

    def session(self) -> TorchSession:
        """A new, empty conversation; it takes a slot when it first draws."""
        return TorchSession(self)

    async def sync(self) -> None:
        """Nothing is to be done: the engine draws from the policy itself."""

    @property
    def mode(self) -> Literal["exact", "batch-dependent"]:
        """Whether a row's bits are independent of the batch on this machine, found by comparing them once."""
        return "batch-dependent" if self.mode_reason else "exact"

    @cached_property
    def mode_reason(self) -> str:
        """What `mode` found; "" when exact."""
        rows = ceil_to(max(len(self._owners), 2 * ROWS), ROWS)
        with evaluating(self.policy.model):
            return self._worker.submit(probe, self.policy.base, self.policy.device, rows).result()

    def close(self) -> None:
        """End every turn in progress with RuntimeError and release the worker thread and the cache."""
        self._open = False
        self._worker.shutdown()
        self._fail(RuntimeError("the engine was closed while it drew a turn"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, turn: Turn) -> None:
        """Take a session's turn into the batch."""
        if not self._open:
            raise RuntimeError("the engine is closed; open another")
        self._turns.append(turn)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def share(self, source: TorchSession, twin: TorchSession) -> None:
        """Copy what `source` has cached for its `twin`, if a slot is free."""
        if source.slot is not None and None in self._owners:
            twin.cached = min(source.cached, twin.length - 1)  # the last token is fed with what comes behind it
            self._copies.append((source.slot, self._seat(twin), twin.cached))

    def release(self, session: TorchSession) -> None:
        """Free the session's slot, if it has one; what it had cached is gone."""
        if session.slot is not None:
            self._owners[session.slot] = None
            session.slot, session.cached = None, 0

    async def _run(self) -> None:
        """Step while there are turns. Ends when idle, so nothing outlives the caller's event loop."""
        try:
            with evaluating(self.policy.model):
                while seated := self._seated():
                    chunked = [(slot, s) for slot, s in seated.items() if s.cached in s.chunks]
                    await (self._prefill(chunked) if chunked else self._decode(seated))
        except Exception as error:
            self._fail(error)
        except BaseException:
            self._fail(RuntimeError("the event loop stopped while the engine drew a turn"))
            raise

    async def _prefill(self, chunked: list[tuple[int, TorchSession]]) -> None:
        """Feed the next chunk of the first session and of those whose chunk has the same padded shape.

        Where sessions have the same tokens so far, as the branches of a group have, they are fed once and copied.
        """
        fresh: dict[Prefix, tuple[int, TorchSession]] = {}
        for slot, session in chunked:
            prefix = session.prefix(session.chunks[session.cached])
            donor = next((owner for owner in self._owners if owner and owner.holds(prefix)), None)
            if donor is None or donor.slot is None:
                fresh.setdefault(prefix, (slot, session))
            else:
                session.cached = len(prefix[0])
                self._copies.append((donor.slot, slot, session.cached))
        if fresh:
            await self._feed(list(fresh.values()))

    async def _feed(self, chunked: list[tuple[int, TorchSession]]) -> None:
        shapes = [chunk_shape(s.cached, s.chunks[s.cached] - s.cached) for _, s in chunked]
        most = max(self._prefill_tokens // shapes[0][0], 1)
        group = [pair for pair, shape in zip(chunked, shapes) if shape == shapes[0]][:most]
        slots, starts = [slot for slot, _ in group], [s.cached for _, s in group]
        chunks = [np.array(s.tokens[s.cached : s.chunks[s.cached]], np.int64) for _, s in group]
        await self._work(lambda: self._runner.prefill(slots, starts, chunks))
        for (_, session), start, chunk in zip(group, starts, chunks):
            session.cached = start + len(chunk)

    async def _decode(self, seated: dict[int, TorchSession]) -> None:
        """Feed one token of every session that has a turn; where it was the last, draw the next."""
        rows = ceil_to(max(seated) + 1, ROWS)
        lengths = np.array([owner.cached if owner else 0 for owner in self._owners[:rows]])
        lengths = np.pad(lengths, (0, rows - len(lengths)))
        tokens, knobs, drawing = np.zeros(rows, np.int64), Knobs.neutral(rows), {}
        for slot, session in seated.items():
            tokens[slot] = session.tokens[session.cached]
            if session.turn is not None and session.cached == session.length - 1:
                drawing[slot] = session.turn
                knobs.set(slot, session.turn.sampling, session.turn.uniforms[len(session.turn.tokens)])
        longest = max(session.cached for session in seated.values())
        drawn = await self._work(lambda: draw(self._runner.decode(tokens, lengths, longest), knobs))
        for session in seated.values():
            session.cached += 1
        self._accept(drawing, *drawn)

    def _accept(
        self,
        drawing: dict[int, Turn],
        tokens: NDArray[np.int64],
        logps: NDArray[np.float32],
        entropies: NDArray[np.float32],
    ) -> None:
        for slot, turn in drawing.items():
            if turn.future.done():
                continue
            token, logp, entropy = int(tokens[slot]), float(logps[slot]), float(entropies[slot])
            if not np.isfinite(entropy):
                raise FloatingPointError(
                    f"the policy's logits are not finite after {turn.session.length} tokens (entropy {entropy}); "
                    f"its weights (version {self.policy.version}) are broken: go back to a checkpoint"
                )
            turn.tokens.append(token)
            turn.logp.append(logp)
            turn.entropy.append(entropy)
            turn.session.tokens.append(token)
            stop = self._stop(turn)
            if stop is not None:
                self._clock += 1
                turn.session.used = self._clock
                turn.finish(stop, self.policy.version)

    def _stop(self, turn: Turn) -> Stop | None:
        if turn.tokens[-1] in self.policy.end_ids:
            return "end"
        if turn.cut is not None and self._closers.complete(turn.tokens, turn.cut, turn.said):
            return "closer"
        if len(turn.tokens) >= turn.sampling.max_tokens:
            return "length"
        return "context" if turn.session.length >= self.max_context else None

    def _seated(self) -> dict[int, TorchSession]:
        """Sessions with a turn in progress by slot, lowest first; none only where no turn is left.

        Free slots go to waiting turns in order. Where no turn has a slot they are taken from sessions that rest.
        """
        self._turns = [turn for turn in self._turns if not turn.future.done()]
        waiting = [turn.session for turn in self._turns if turn.session.slot is None]
        if len(waiting) == len(self._turns) and None not in self._owners:
            # Every slot rests, perhaps for a tool, perhaps for a session that waits here: only this surely goes on.
            resting = sorted((owner for owner in self._owners if owner), key=lambda owner: owner.used)
            for owner in resting[: len(waiting)]:
                self.release(owner)
        for session in waiting:
            if None in self._owners:
                self._seat(session)
        return {slot: owner for slot, owner in enumerate(self._owners) if owner and owner.drawing}

    def _seat(self, session: TorchSession) -> int:
        """Take the lowest free slot, so that decoding covers few idle rows."""
        slot = session.slot = self._owners.index(None)
        self._owners[slot] = session
        return slot

    async def _work(self, step: Callable[[], T]) -> T:
        """Run a model step on the worker thread, behind the copies that forks asked for."""
        copies, self._copies = self._copies, []

        def all_of_it() -> T:
            for copy in copies:
                self._runner.copy(*copy)
            return step()

        return await asyncio.get_running_loop().run_in_executor(self._worker, all_of_it)

    def _fail(self, error: Exception) -> None:
        """End every turn with `error`; forget the cache, where numbers that are not finite would spoil other rows."""
        for owner in self._owners:
            if owner is not None:
                self.release(owner)
        self._copies.clear()
        self._runner.cache = SlotCache()
        turns, self._turns = self._turns, []
        for turn in turns:
            if not turn.future.done() and not turn.future.get_loop().is_closed():
                turn.future.set_exception(error)
