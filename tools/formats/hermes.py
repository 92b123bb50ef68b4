"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, the format of Hermes and Qwen."""

import re
from collections.abc import Sequence
from typing import Any

from .core import BlockFormat, ToolCall, opens
from .jsoncall import read_json_call, spell_json_call


class Hermes(BlockFormat):
    """One JSON object between tags; the chat template shows the tools."""

    name = "hermes"
    opener, closer = "<tool_call>", "</tool_call>"
    opening = opens(opener)
    closers = (closer,)
    native = True

    def observe(self, text: str, tool: str | None) -> tuple[str, str]:
        """The role `tool`; the chat template adds its own frame."""
        return "tool", text

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Empty: the chat template does it."""
        return ""

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        end = text.find(self.closer, opening.end())
        return None if end < 0 else end + len(self.closer)

    def _unclosed(self, opening: re.Match[str]) -> str:
        return f"{self.opener} is never closed by {self.closer}"

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        body = text[opening.end() : -len(self.closer)]
        return read_json_call(body, "the text between the tags", ("arguments",), tools)

    def _spell(self, call: ToolCall) -> str:
        return f"{self.opener}\n{spell_json_call(call, 'arguments')}\n{self.closer}"
