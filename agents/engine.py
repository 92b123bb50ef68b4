"""What every generation engine offers: token ids in, drawn token ids with their log-probabilities and entropies out.

A session is one conversation whose prefix the engine keeps cached. Randomness is keyed: token i of a turn is the
inverse CDF at the i-th uniform of a generator seeded by the turn's key alone, so no draw depends on batching order.
What the engines share is here too: a turn in progress and the rule by which it ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from .policy import Policy

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
            raise ValueError(
                f"temperature is {self.temperature}; it must be finite and 0 or more (0 draws greedily)"
            )
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
    """A cut for turns whose first words, `opened`, stand in the prompt.

    `tokens` are those of `opened`, where they are known: a character may begin in the last of them and end in the first
    that is drawn.
    """

    inner: Cut
    opened: str
    tokens: tuple[int, ...] = ()

    @property
    def closers(self) -> tuple[str, ...]:
        return self.inner.closers

    def complete(self, text: str) -> bool:
        return self.inner.complete(self.opened + text)


def _begun(cut: Cut) -> tuple[int, ...]:
    """Return the tokens of a turn that stand in the prompt, as far as they are known."""
    return cut.tokens if isinstance(cut, Continued) else ()


def _opened(cut: Cut) -> str:
    """Return the text of a turn that stands in the prompt in front of `_begun`."""
    if not isinstance(cut, Continued):
        return ""
    before = _opened(cut.inner)
    return before if cut.tokens else before + cut.opened


class Session(Protocol):
    """One conversation with its cached prefix."""

    @property
    def length(self) -> int:
        """Tokens so far, fed and drawn."""

    async def sample(
        self,
        tokens: NDArray[np.int32],
        sampling: Sampling,
        key: tuple[int, ...],
        cut: Cut | None = None,
    ) -> Completion:
        """Append `tokens` int32 [q], then draw one turn, which becomes part of the session.

        `key` is (seed, step, task, branch, turn); the turn ends with the token that makes its text complete for
        `cut`. Where `tokens` leave no room in the context the completion is empty, stops with "context", and nothing is
        appended. Raises EngineFailure where the engine could not draw; the session cannot go on then.
        """

    def fork(self, length: int | None = None) -> "Session":
        """Return an independent sibling with the same first `length` tokens, all where it is left out.

        What it draws is what this session would have drawn behind them. A closed session can be forked too.
        """

    def close(self) -> None:
        """Free the session's place; a turn in progress is cancelled."""


class Engine(Protocol):
    """A source of sessions; `max_context` is the most tokens one may hold."""

    max_context: int

    def session(self) -> Session:
        """Return a new, empty conversation."""

    async def sync(self) -> None:
        """Draw with the policy's weights as they are now; no session may be open. Raises EngineFailure: it cannot."""

    def close(self) -> None:
        """Release threads, memory and connections; open sessions end."""


def keyed_rng(key: tuple[int, ...]) -> np.random.Generator:
    """Return a generator that depends on `key` alone: Philox keyed by its 128-bit blake2b digest."""
    digest = blake2b(",".join(str(int(part)) for part in key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


class DecodedText:
    """The text of a turn, decoded step by step: asking often costs no more than asking once."""

    def __init__(self) -> None:
        self._text = ""
        self._last, self._next = (
            0,
            0,
        )  # `_text` is that of the first `_next` tokens; a piece begins at `_last`

    def extend(self, tokens: list[int], decode: Callable[[list[int]], str]) -> str:
        """Return the text of all `tokens`, which begin with those of the previous call."""
        # Decoders may strip a leading blank, so new tokens are decoded behind those of the last piece.
        before = decode(tokens[self._last : self._next])
        text = self._text + decode(tokens[self._last :])[len(before) :]
        if not text.endswith("\ufffd"):  # else the last character may be incomplete
            self._text, self._last, self._next = text, self._next, len(tokens)
        return text


@dataclass(eq=False)
class Generation:
    """A turn in progress: how it is sampled, and what has been drawn. It ends after `most` tokens at the latest."""

    sampling: Sampling
    most: int
    cut: Cut | None
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    text: DecodedText = field(default_factory=DecodedText)

    def completion(self, stop: Stop, version: int, estimate: bool = False) -> Completion:
        logp, entropy = (np.array(numbers, np.float32) for numbers in (self.logp, self.entropy))
        return Completion(np.array(self.tokens, np.int32), logp, entropy, stop, version, estimate)


class StopRule:
    """Decides whether the newest token of a turn ends it."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._decode: Callable[[list[int]], str] = partial(
            tokenizer.decode, skip_special_tokens=False
        )
        self._pieces: dict[int, str] = {}

    def reason(self, turn: Generation, end_ids: frozenset[int]) -> Stop | None:
        """Return why the turn ends with its newest token; None where it goes on."""
        if turn.tokens[-1] in end_ids:
            return "end"
        if turn.cut is not None and self.completes(turn.tokens, turn.cut, turn.text):
            return "closer"
        if len(turn.tokens) >= turn.sampling.max_tokens:
            return "length"
        return "context" if len(turn.tokens) >= turn.most else None

    def completes(self, tokens: list[int], cut: Cut, text: DecodedText) -> bool:
        """Return whether the newest token completes what `cut` looks for; `text` is kept between calls for a turn.

        A turn that was begun in the prompt ends where it would have ended if it had been drawn as a whole.
        """
        piece = self._pieces.get(tokens[-1])
        if piece is None:
            piece = self._pieces[tokens[-1]] = self._decode(tokens[-1:])
        # The tail is decoded only where this token can hold a closer's last character, perhaps a part of it. What was
        # given may hold a whole closer already: it is looked at with the first token that is drawn.
        closing = any(closer[-1] in piece for closer in cut.closers) or "\ufffd" in piece
        if not closing and not (len(tokens) == 1 and isinstance(cut, Continued)):
            return False
        tail = self.tail(tokens, cut)
        if not any(closer in tail for closer in cut.closers):
            return False
        begun = _begun(cut)
        if begun and isinstance(cut, Continued):
            return cut.inner.complete(text.extend([*begun, *tokens], self._decode))
        return cut.complete(text.extend(tokens, self._decode))

    def tail(self, tokens: list[int], cut: Cut) -> str:
        """Return the end of a turn's text, with what of it stands in the prompt, that can hold any of its closers."""
        most = (
            max(len(closer.encode()) for closer in cut.closers) + 1
        )  # no token is shorter than a byte
        begun = _begun(cut)
        text = self._decode([*begun[-most:], *tokens[-most:]][-most:])
        if len(begun) + len(tokens) < most:
            text = _opened(cut)[-most:] + text
        return text

    def unfinished(self, tokens: list[int], cut: Cut) -> int:
        """Return the most tokens that may be missing of a closer that a turn ends inside; 0 where it is in none."""
        tail, missing = self.tail(tokens, cut), 0
        for closer in cut.closers:
            for size in range(1, len(closer)):
                if tail.endswith(closer[:size]):
                    missing = max(missing, len(closer[size:].encode()))
        return missing


class OpenSession(ABC):
    """What the sessions of engines share: a conversation's tokens, and the version of the weights that drew there."""

    engine: Any

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.version: int | None = None
        self.closed = False

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    @abstractmethod
    def drawing(self) -> bool:
        """Whether a turn is being drawn."""

    def turn(self, tokens: NDArray[np.int32], sampling: Sampling, cut: Cut | None) -> Generation:
        """Return the turn to draw behind `tokens`, of at most 0 tokens where they leave no room in the context.

        Raises RuntimeError where the session is closed, is drawing, or began with other weights; ValueError where an id
        is outside the vocabulary, there is no token at all, or the cut has no closers.
        """
        policy: Policy = self.engine.policy
        if self.closed or self.drawing:
            what = "closed" if self.closed else "drawing a turn"
            raise RuntimeError(f"the session is {what}; open or fork another")
        if self.version not in (None, policy.version):
            what = f"the session began with weights {self.version} and the policy is at {policy.version}"
            raise RuntimeError(f"{what}; end sessions before the policy is updated")
        if not self.tokens and not len(tokens):
            raise ValueError("tokens is empty and so is the session; begin with at least 1 token")
        outside = tokens[(tokens < 0) | (tokens >= policy.vocabulary)]
        if len(outside):
            raise ValueError(
                f"tokens hold id {outside[0]}; the policy's ids lie in 0..{policy.vocabulary - 1}"
            )
        if cut is not None and not (cut.closers and all(cut.closers)):
            raise ValueError(
                f"the cut's closers are {cut.closers}; it needs texts, and none that is empty"
            )
        room = self.engine.max_context - self.length - len(tokens)
        return Generation(sampling, max(min(sampling.max_tokens, room), 0), cut)

    def fork(self, length: int | None = None) -> Self:
        """Return an independent sibling (see `Session`). Raises RuntimeError where a turn is being drawn."""
        if self.drawing:
            raise RuntimeError("the session is drawing; fork it between two turns")
        twin = self._twin(self.length if length is None else length)
        twin.version = self.version
        return twin

    @abstractmethod
    def _twin(self, length: int) -> Self:
        """Return a sibling with the first `length` tokens; ValueError where it cannot have them."""


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch dropout off inside; every module has its former mode after."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
