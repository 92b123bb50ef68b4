"""An engine without a model: what it says is chosen from what it was told, by a generator keyed as any engine's."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from turngym.agents.chat.chat import Chat
from turngym.agents.engine import Completion, Cut, Sampling, keyed_rng

Says = Callable[[str, np.random.Generator], str]
"""What is said to all that stands in a session so far."""


class ScriptedEngine:
    """Sessions that say what `says` chooses. Log-probabilities and entropies are drawn, too: at most 1 nat a token."""

    max_context = 10**6

    def __init__(self, chat: Chat, says: Says) -> None:
        self.chat, self.says = chat, says

    def session(self) -> ScriptedSession:
        """A new, empty conversation."""
        return ScriptedSession(self, np.zeros(0, np.int32))

    async def sync(self) -> None:
        """It has no weights."""

    def close(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ScriptedSession:
    """One conversation: its tokens."""

    def __init__(self, engine: ScriptedEngine, tokens: NDArray[np.int32]) -> None:
        self.engine, self.tokens = engine, tokens

    @property
    def length(self) -> int:
        """Tokens so far, given and drawn."""
        return len(self.tokens)

    async def sample(
        self,
        tokens: NDArray[np.int32],
        sampling: Sampling,
        key: tuple[int, ...],
        cut: Cut | None = None,
    ) -> Completion:
        """Append `tokens`, then say one turn of at most `max_tokens`, ended by the token that ends turns."""
        chat, rng = self.engine.chat, keyed_rng(key)
        heard = np.concatenate((self.tokens, tokens))
        text = self.engine.says(chat.tokenizer.decode(heard.tolist()), rng)
        said = [
            *chat.tokenizer.encode(text, add_special_tokens=False).ids,
            *sorted(chat.end_ids)[:1],
        ]
        drawn = np.array(said[: sampling.max_tokens], np.int32)
        self.tokens = np.concatenate((heard, drawn))
        logp, entropy = -rng.random(len(drawn), np.float32), rng.random(len(drawn), np.float32)
        return Completion(drawn, logp, entropy, "end" if len(drawn) == len(said) else "length", 0)

    def fork(self, length: int | None = None) -> ScriptedSession:
        """An independent sibling with the same first `length` tokens."""
        return ScriptedSession(self.engine, self.tokens[:length])

    def close(self) -> None:
        """Nothing is held."""
