"""What the engines share: a turn in progress, the rule by which it ends, what a session checks, dropout off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..engine import Completion, Cut, Sampling, Stop

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..policy import Policy


class DecodedText:
    """The text of a turn, decoded step by step: asking often costs no more than asking once."""

    def __init__(self) -> None:
        self._text = ""
        self._last, self._next = 0, 0  # `_text` is that of the first `_next` tokens; a piece begins at `_last`

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
        """Return what has been drawn as a finished turn."""
        logp, entropy = (np.array(numbers, np.float32) for numbers in (self.logp, self.entropy))
        return Completion(np.array(self.tokens, np.int32), logp, entropy, stop, version, estimate)


class StopRule:
    """Decides whether the newest token of a turn ends it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
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
        """Return whether the newest token completes what `cut` looks for; `text` is kept between calls for a turn."""
        return self._closes(tokens, cut.closers) and cut.complete(text.extend(tokens, self._decode))

    def _closes(self, tokens: list[int], closers: tuple[str, ...]) -> bool:
        """Return False only where the newest token cannot hold the end of a closing text."""
        piece = self._pieces.get(tokens[-1])
        if piece is None:
            piece = self._pieces[tokens[-1]] = self._decode(tokens[-1:])
        # The tail is decoded only where this token can hold a closer's last character, perhaps a part of it.
        if not any(closer[-1] in piece for closer in closers) and "\ufffd" not in piece:
            return False
        longest = max(len(closer.encode()) for closer in closers)
        tail = self._decode(tokens[-longest - 1 :])
        return any(closer in tail for closer in closers)

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=False)
        return text


class OpenSession(Protocol):
    """What `check_turn` looks at."""

    version: int | None
    closed: bool

    @property
    def tokens(self) -> list[int]:
        """All tokens so far."""


def check_turn(session: OpenSession, policy: Policy, drawing: bool, tokens: NDArray[np.int32], cut: Cut | None) -> None:
    """Check that a session can draw behind `tokens`.

    Raises:
        RuntimeError: it is closed, is drawing, or began with other weights.
        ValueError: an id is outside the vocabulary, there is no token at all, or the cut has no closers.
    """
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
