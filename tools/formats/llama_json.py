"""The format of Llama 3: a call is one JSON object without anything around it."""

import json
import re
from collections.abc import Sequence

from .base import ARGUMENTS_KEY, Format, ToolCall, find_closing_bracket
from .json_call import find_json_arguments, read_json_call, spell_json_call

# A JSON string or a brace. A string that is not closed reaches to the end of the text.
_STRING_OR_BRACE = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[{}]', re.DOTALL)


class LlamaJson(Format):
    """`{"name": …, "parameters": {…}}`: an object that begins with its name or its arguments.

    The first such object is the call. Text in front of it (`<|python_tag|>`,
    prose) and behind it (`; {…}`) does not count. An object with a name and no arguments, such as
    `{"name": "Alice"}`, is not a call.
    """

    name = "llama-json"
    opening = re.compile(r'\{\s*+"(?:(?:name|parameters|arguments)"\s*+:|type"\s*+:\s*+"function")')
    closers = ("}",)
    native = True
    unclosed = "the object is never closed, or too large"

    def _find_end(self, text: str, opening: re.Match[str]) -> int | None:
        return find_closing_bracket(text, opening.start(), _STRING_OR_BRACE)

    def _find_prose_end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where a JSON object ends that is data, not a call; None if it may be a call.

        An object is data if it has no arguments and does not say that it is a function call.
        """
        end = self._find_end(text, opening)
        if end is None:
            return None
        source = text[opening.start() : end]
        try:
            json_object = json.loads(source)
        except (ValueError, RecursionError):
            # Malformed JSON is a call if it has arguments: then the agent must see the error.
            looks_like_call = ARGUMENTS_KEY.search(source) is not None
        else:
            has_arguments = "parameters" in json_object or "arguments" in json_object
            looks_like_call = has_arguments or json_object.get("type") == "function"
        return None if looks_like_call else end

    def _find_arguments_in(
        self, text: str, opening: re.Match[str], end: int
    ) -> tuple[int, int] | None:
        return find_json_arguments(text, opening.start(), end)

    def _read_call(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        source = text[opening.start() :]
        return read_json_call(source, "the object", ("parameters", "arguments"), tools)

    def _spell_call(self, call: ToolCall) -> str:
        return spell_json_call(call, "parameters")
