"""`{"name": …, "parameters": {…}}`, the JSON format of Llama 3: bare objects, of which the first counts."""

import re
from collections.abc import Sequence
from typing import Any

from .core import BlockFormat, ToolCall, closing, opens
from .jsoncall import read_json_call, spell_json_call

# A string that is not closed reaches to the end, so that no brace in it counts before its end is written.
_MARKS = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[{}]', re.DOTALL)


class LlamaJson(BlockFormat):
    """An object that begins with its name or its arguments; the chat template shows the tools.

    What stands in front of it (`<|python_tag|>`, prose) and behind it (`; {…}`) does not count.
    """

    name = "llama-json"
    opening = opens(r'\{\s*+"(?:(?:name|parameters|arguments)"\s*+:|type"\s*+:\s*+"function")')
    closers = ("}",)
    native = True

    def observe(self, text: str, tool: str | None) -> tuple[str, str]:
        """The role `tool`, which the templates of Llama call `ipython`."""
        return "tool", text

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Empty: the chat template does it."""
        return ""

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        return closing(text, opening.start(), _MARKS)

    def _unclosed(self, opening: re.Match[str]) -> str:
        return "the object is never closed, or too large"

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        return read_json_call(text[opening.start() :], "the object", ("parameters", "arguments"), tools)

    def _spell(self, call: ToolCall) -> str:
        return spell_json_call(call, "parameters")
