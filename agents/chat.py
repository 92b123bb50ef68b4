"""Token-exact chat: messages to token ids, never re-encoding what the model drew (DESIGN §5).

Invariant: a path's tokens are `prompt` + drawn tokens + `reply` + drawn tokens + …; control tokens come from the
template only, because text of messages is broken apart wherever it spells one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ..envs import Message
from .template import Template, TemplateError

_BREAKS = range(0xE000, 0x110000)  # code points for the mark where a message must not be encoded across; private first


class Chat:
    """A tokenizer with a chat template that is prefix-preserving.

    Raises:
        TemplateError: the template is not prefix-preserving, so that tokens laid along a path could not be what the
            model saw.
    """

    def __init__(self, tokenizer: Tokenizer, template: Template) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.template = template
        added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
        # Some tokenizers have added tokens for runs of blanks: those are text.
        control = {content for content in added.values() if len(content.strip()) > 1}
        self._control = re.compile("|".join(map(re.escape, sorted(control, key=len, reverse=True))) or "(?!)")
        self._added = frozenset(added)
        template.check()

    @classmethod
    def from_folder(cls, folder: str | Path) -> Chat:
        """Load `tokenizer.json` and the chat template of a model folder.

        Raises:
            FileNotFoundError: a file is missing; the message says how to write it.
        """
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} has no tokenizer.json; save the model's tokenizer there: "
                "transformers.AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
            )
        return cls(Tokenizer.from_file(str(path)), Template.from_folder(folder))

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> NDArray[np.int32]:
        """Return the tokens `(n,)` that open an episode, up to where the policy starts to draw."""
        mark, safe = self._guard([list(messages), list(tools)])
        return self._encode(self.template.render(safe[0], safe[1], generate=True), mark)

    def reply(self, messages: Sequence[Message], last: int | None) -> NDArray[np.int32]:
        """Return the tokens `(n,)` between a turn that the policy drew and its next one.

        They are the end of its turn (less what it drew itself: `last` is its last token), the messages, and the start
        of the next turn.
        """
        mark, safe = self._guard(list(messages))
        tokens = self._encode(self.template.after_turn(safe), mark)
        return tokens[1:] if last in self._added and last in tokens[:1] else tokens

    def text(self, tokens: NDArray[np.int32], end_ids: frozenset[int]) -> str:
        """Return what the policy said, without the token that ended its turn."""
        ids = [int(token) for token in tokens]
        if ids and ids[-1] in end_ids:
            ids.pop()
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def end_ids(self) -> frozenset[int]:
        """Return the token that the template ends a turn with, as a set (empty if it ends turns with plain text)."""
        tokens = self._encode(self.template.turn_end(), chr(_BREAKS[0]))
        return frozenset({int(tokens[0])} if len(tokens) and int(tokens[0]) in self._added else ())

    def _guard(self, value: Any) -> tuple[str, Any]:
        """Return a mark that `value` does not hold, and `value` with the mark inside every spelled control token."""
        used = set(json.dumps(value, ensure_ascii=False))
        mark = next(char for char in map(chr, _BREAKS) if char not in used)
        return mark, _map_text(value, lambda text: self._break(text, mark))

    def _break(self, text: str, mark: str) -> str:
        while (broken := self._control.sub(lambda found: found[0][0] + mark + found[0][1:], text)) != text:
            text = broken
        return text

    def _encode(self, text: str, mark: str) -> NDArray[np.int32]:
        ids: list[int] = []
        for piece in text.split(mark):
            ids += self.tokenizer.encode(piece, add_special_tokens=False).ids
        return np.array(ids, np.int32)


def _map_text(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_text(key, change): _map_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_text(item, change) for item in value]
    return value


__all__ = ["Chat", "Template", "TemplateError"]
