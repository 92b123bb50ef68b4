"""Where a turn is cut: the token that completes its first call, found without decoding the turn again and again."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..engine import Cut

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Said:
    """The text of a turn, decoded as far as it has been asked for; asking often costs no more than asking once."""

    def __init__(self) -> None:
        self._text = ""
        self._last, self._next = 0, 0  # `_text` is that of the first `_next` tokens, and at `_last` a piece begins

    def grow(self, tokens: list[int], decode: Callable[[list[int]], str]) -> str:
        """Return the text of all `tokens`, of which those of the last time are the first."""
        # Decoders may strip a blank in front, so new tokens are decoded behind those of the last piece.
        seen = decode(tokens[self._last : self._next])
        text = self._text + decode(tokens[self._last :])[len(seen) :]
        if not text.endswith("\ufffd"):  # else the last character may not be whole
            self._text, self._last, self._next = text, self._next, len(tokens)
        return text


class Closers:
    """Says whether the newest token of a turn completes its first call."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def complete(self, tokens: list[int], cut: Cut, said: Said) -> bool:
        """Does the newest of `tokens` complete what `cut` looks for? `said` is what is kept of this turn's text."""
        return self._closes(tokens, cut.closers) and cut.complete(said.grow(tokens, self._decode))

    def _closes(self, tokens: list[int], closers: tuple[str, ...]) -> bool:
        """Can the newest token hold the end of a closing text? Where it does the answer is True."""
        piece = self._pieces.get(tokens[-1])
        if piece is None:
            piece = self._pieces[tokens[-1]] = self._decode(tokens[-1:])
        # Decoding the tail is needed only where this token can hold a closer's last character, maybe a split one.
        if not any(closer[-1] in piece for closer in closers) and "\ufffd" not in piece:
            return False
        longest = max(len(closer.encode()) for closer in closers)
        tail = self._decode(tokens[-longest - 1 :])
        return any(closer in tail for closer in closers)

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=False)
        return text
