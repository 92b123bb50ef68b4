"""The format of Llama 3: a call is one JSON object that stands alone."""

import json
import re
from collections.abc import Sequence

from .base import _ARGUMENTS, Format, ToolCall, closing
from .json_call import _in_object, read_json_call, spell_json_call

_MARKS = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[{}]', re.DOTALL)


class LlamaJson(Format):
    """`{"name": …, "parameters": {…}}`: a bare object that begins with its name or its arguments; the first one counts.

    What stands in front of it (`<|python_tag|>`, prose) and behind it (`; {…}`) does not count. An object that has a
    name and no arguments, such as `{"name": "Alice"}`, is no call.
    """

    name = "llama-json"
    opening = re.compile(r'\{\s*+"(?:(?:name|parameters|arguments)"\s*+:|type"\s*+:\s*+"function")')
    closers = ("}",)
    native = True
    unclosed = "the object is never closed, or too large"

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        return closing(text, opening.start(), _MARKS)

    def _prose(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where an object ends that has no arguments and does not say that it is a call: it is data."""
        if (end := self._end(text, opening)) is None:
            return None
        source = text[opening.start() : end]
        try:
            value = json.loads(source)
        except (ValueError, RecursionError):
            return None if _ARGUMENTS.search(source) else end
        is_call = value.keys() & {"parameters", "arguments"} or value.get("type") == "function"
        return None if is_call else end

    def _inside(self, text: str, opening: re.Match[str], end: int) -> tuple[int, int] | None:
        return _in_object(text, opening.start(), end)

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        return read_json_call(
            text[opening.start() :], "the object", ("parameters", "arguments"), tools
        )

    def _spell(self, call: ToolCall) -> str:
        return spell_json_call(call, "parameters")
