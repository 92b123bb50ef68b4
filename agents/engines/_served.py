"""A conversation that servers draw, and the turn that is being drawn."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..engine import Completion, Cut, EngineFailure, EngineFault, Sampling, Stop
from ._wire import Drawn, entropies
from .generation import DecodedText, check_turn

if TYPE_CHECKING:
    from .vllm import VllmEngine

LEAST_TEMPERATURE = 0.01  # below it, but for 0, a server draws as if it were this


class VllmSession:
    """One conversation on a `VllmEngine`; `home` decides which server draws its turns, the same for a whole tree."""

    def __init__(self, engine: "VllmEngine") -> None:
        self.engine = engine
        self.tokens: list[int] = []
        self.home = b""
        self.version: int | None = None
        self.closed = False
        self._task: asyncio.Task[Completion] | None = None

    @property
    def length(self) -> int:
        """Tokens so far, given and drawn."""
        return len(self.tokens)

    async def sample(
        self, tokens: NDArray[np.int32], sampling: Sampling, key: tuple[int, ...], cut: Cut | None = None
    ) -> Completion:
        """Append `tokens` int32 [q], then draw one turn (see `engine.Session`).

        Raises RuntimeError when closed, already drawing, or under other weights than the session began or the servers
        have; ValueError on an id outside the vocabulary, nothing to begin with, a temperature that servers do not
        take, or a cut without closers.
        """
        check_turn(self, self.engine.policy, self._task is not None, tokens, cut)
        if 0 < sampling.temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"temperature is {sampling.temperature}; vLLM draws below {LEAST_TEMPERATURE} as if it were that: "
                "use it, or 0"
            )
        version = self.engine.check()
        room = self.engine.max_context - len(self.tokens) - len(tokens)
        if room <= 0:
            nothing = np.zeros(0, np.float32)
            return Completion(np.zeros(0, np.int32), nothing, nothing, "context", version, estimate=True)
        self.version = version
        self.home = self.home or np.asarray(tokens, np.int32).tobytes()
        self.tokens.extend(int(token) for token in tokens)
        turn = _Turn(self, sampling, key, cut)
        self._task = asyncio.get_running_loop().create_task(turn.draw(min(sampling.max_tokens, room), version))
        self.engine.drawing.add(self)
        try:
            return await self._task
        except BaseException as error:
            if self.closed and isinstance(error, asyncio.CancelledError):
                raise RuntimeError("the session was closed while it drew a turn") from None
            self.close()  # with given tokens and no turn behind them the session has no sensible next
            raise
        finally:
            self.engine.drawing.discard(self)
            self._task = None

    def fork(self, length: int | None = None) -> "VllmSession":
        """An independent sibling with the same first tokens.

        Raises RuntimeError while a turn is drawn; ValueError on a length that the session does not have.
        """
        if self._task is not None:
            raise RuntimeError("the session is drawing; fork it between two turns")
        length = self.length if length is None else length
        if not 0 <= length <= self.length:
            raise ValueError(f"length is {length}; the session has {self.length} tokens")
        twin = VllmSession(self.engine)
        twin.tokens, twin.home, twin.version = self.tokens[:length], self.home, self.version
        return twin

    def close(self) -> None:
        """End the session; a turn in progress ends with RuntimeError."""
        self.closed = True
        if self._task is not None:
            self._task.cancel()


class _Turn:
    """A turn in progress: what to draw with, and what has been drawn."""

    def __init__(self, session: VllmSession, sampling: Sampling, key: tuple[int, ...], cut: Cut | None) -> None:
        self.session, self.engine = session, session.engine
        self.sampling, self.key, self.cut = sampling, key, cut
        self.tokens: list[int] = []
        self.logp: list[NDArray[np.float64]] = []
        self.entropy: list[NDArray[np.float64]] = []
        self.said = DecodedText()

    async def draw(self, most: int, version: int) -> Completion:
        """Draw up to `most` tokens: ask, and ask on where a server stopped at a text that completes nothing."""
        stops = self.cut.closers if self.cut else ()
        async with self.engine.pool.place():
            ends = asyncio.get_running_loop().time() + self.engine.deadline
            stop = None
            while stop is None:
                n = len(self.tokens)
                prompt = self.session.tokens + self.tokens
                ask = self.engine.ask(prompt, most - n, self.sampling, (*self.key, n), stops)
                drawn = await self.engine.pool.run(self.session.home, partial(self.engine.answer, ask), ends)
                stop = self._take(drawn, most)
        tokens, logp = np.array(self.tokens, np.int32), np.concatenate(self.logp).astype(np.float32)
        self.session.tokens.extend(self.tokens)
        if self.sampling.temperature == 0:
            logp = np.zeros_like(logp)
        return Completion(tokens, logp, np.concatenate(self.entropy).astype(np.float32), stop, version, estimate=True)

    def _take(self, drawn: Drawn, most: int) -> Stop | None:
        """Take what was drawn up to where the turn ends, and say why it does; what lies behind is dropped."""
        stop, n = None, 0
        while stop is None and n < len(drawn.tokens):
            self.tokens.append(drawn.tokens[n])
            n += 1
            stop = self._stop(most)
        if stop is None:
            self._see(drawn.stopped)
        self.logp.append(drawn.logp[:n])
        # A truncated distribution has no more tokens than top_k; of top_p that number is not known.
        top_k = 0 if self.sampling.temperature == 0 else self.sampling.top_k
        vocabulary = self.engine.policy.vocabulary
        self.entropy.append(entropies(drawn.top[:n], self.sampling.temperature, vocabulary, top_k))
        return stop

    def _see(self, stopped: str | None) -> None:
        """Check that the text at which the server stopped was said."""
        if stopped is None:
            return
        tokens = self.tokens[-len(stopped.encode()) - 1 :]
        text = self.engine.policy.tokenizer.decode(tokens, skip_special_tokens=False)
        if stopped not in text:
            what = f"it stopped at {stopped!r}, and its tokens say {text[-60:]!r}"
            raise EngineFailure(EngineFault.MISMATCH, what)

    def _stop(self, most: int) -> Stop | None:
        if self.tokens[-1] in self.engine.policy.end_ids:
            return "end"
        if self.cut is not None and self.engine.closers.completes(self.tokens, self.cut, self.said):
            return "closer"
        if len(self.tokens) >= self.sampling.max_tokens:
            return "length"
        return "context" if len(self.tokens) >= most else None
