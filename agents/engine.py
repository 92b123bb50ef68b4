"""What every generation engine offers: token ids in, drawn token ids with their log-probabilities and entropies out.

A session is one conversation whose prefix the engine keeps cached. Randomness is keyed: token i of a turn is the
inverse CDF at the i-th uniform of a generator seeded by the turn's key alone, so no draw depends on batching order.
"""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from math import isfinite
from types import TracebackType
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Stop = Literal["end", "closer", "length", "context"]


class EngineFault(StrEnum):
    """Why an engine could not draw."""

    CONNECT = "connect"  # no connection, or it broke
    TIMEOUT = "timeout"
    STATUS = "status"  # the server refused
    FULL = "full"  # for load
    DOWN = "down"  # the server's process has ended
    MALFORMED = "malformed"  # the answer is not of the protocol
    MISMATCH = "mismatch"  # its token ids and log-probabilities do not belong together, or not to the prompt
    NUMBERS = "numbers"  # a log-probability that is none
    VERSION = "version"  # other weights answered


class EngineFailure(RuntimeError):
    """An engine could not draw: a failure of infrastructure, never a score.

    wait: least seconds before another try of the same request; None where another try would not help.
    """

    def __init__(self, fault: EngineFault, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.fault, self.wait = fault, wait


@dataclass(frozen=True)
class Sampling:
    """How a turn's tokens are drawn.

    `temperature` 0 is greedy; `top_p` keeps the smallest set of tokens with that mass; `top_k` 0 keeps all;
    `max_tokens` bounds the turn. Truncation acts on the tempered distribution. Raises ValueError out of range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; it must be finite and 0 or more (0 draws greedily)")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must lie in (0, 1] (1 keeps every token)")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (keeps every token) or more")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; a turn needs at least 1 token")


@dataclass(frozen=True, eq=False)
class Completion:
    """One drawn turn.

    tokens: int32 [n], the end-of-turn token included. logp: float32 [n], nats, the sampler's own (at its temperature
    and truncation; 0 when greedy). entropy: float32 [n], nats, full vocabulary at temperature 1. stop: why it ended (an
    end-of-turn token, its cut, `max_tokens`, a full context). version: of the weights that drew it. estimate: True
    where `entropy` is the sampler's estimate from its most likely tokens, entropy_topk.
    """

    tokens: NDArray[np.int32]
    logp: NDArray[np.float32]
    entropy: NDArray[np.float32]
    stop: Stop
    version: int
    estimate: bool = False


class Cut(Protocol):
    """What ends a turn before the policy does: its first complete call."""

    @property
    def closers(self) -> tuple[str, ...]:
        """Texts behind which a call may be complete; `complete` is asked only where one was just drawn."""

    def complete(self, text: str) -> bool:
        """Return whether `text`, a turn so far, holds a complete call or a final answer."""


@dataclass(frozen=True)
class Continued:
    """A cut for turns whose first words, `opened`, stand in the prompt."""

    inner: Cut
    opened: str

    @property
    def closers(self) -> tuple[str, ...]:
        """Those of the cut."""
        return self.inner.closers

    def complete(self, text: str) -> bool:
        """Return whether the turn is complete with `text` behind its first words."""
        return self.inner.complete(self.opened + text)


class Session(Protocol):
    """One conversation with its cached prefix; `length` counts its tokens, fed and drawn."""

    @property
    def length(self) -> int:
        """Tokens so far, fed and drawn."""
        ...

    async def sample(
        self, tokens: NDArray[np.int32], sampling: Sampling, key: tuple[int, ...], cut: Cut | None = None
    ) -> Completion:
        """Append `tokens` int32 [q], then draw one turn, which becomes part of the session.

        `key` is (seed, step, task, branch, turn); the turn ends with the token that makes its text complete for
        `cut`. Where `tokens` leave no room in the context the completion is empty, stops with "context", and nothing is
        appended. Raises EngineFailure where the engine could not draw; the session cannot go on then.
        """
        ...

    def fork(self, length: int | None = None) -> "Session":
        """Return an independent sibling with the same first `length` tokens, all where it is left out.

        What it draws is what this session would have drawn behind them. A closed session can be forked too.
        """
        ...

    def close(self) -> None:
        """Free the session's place; a turn in progress is cancelled."""
        ...


class Engine(Protocol):
    """A source of sessions; `max_context` is the most tokens one may hold."""

    max_context: int

    def session(self) -> Session:
        """Return a new, empty conversation."""
        ...

    async def sync(self) -> None:
        """Draw from now on with the policy's weights as they are now; no session may be open.

        Raises:
            EngineFailure: that cannot be had, or cannot be verified.
        """
        ...

    def close(self) -> None:
        """Release threads, memory and connections; open sessions end."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def keyed_rng(key: tuple[int, ...]) -> np.random.Generator:
    """Return a generator that depends on `key` alone: Philox keyed by its 128-bit blake2b digest."""
    digest = blake2b(",".join(str(int(part)) for part in key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
