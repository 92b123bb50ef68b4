"""The format of Hermes: a call is one JSON object between `<tool_call>` tags."""

import re
from collections.abc import Sequence

from ..thoughts import Mark
from .base import Format, ToolCall
from .json_call import find_json_arguments, read_json_call, spell_json_call

_OBJECT_START = re.compile(r"\s*+\{")
# A JSON string or the closing tag. A string ends at its line's end at the latest: JSON has none of
# several lines, so a quote that is never closed hides no tag on later lines.
_STRING_OR_CLOSING_TAG = re.compile(
    r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+(?:["\n]|\\?\Z)|</tool_call>', re.DOTALL
)


class Hermes(Format):
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: one JSON object between tags."""

    name = "hermes"
    opener = "<tool_call>"
    closer = "</tool_call>"
    opening = re.compile(opener)
    closers = (closer,)
    native = True
    unclosed = f"{opener} is never closed by {closer}"

    def _find_end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where the first closing tag ends that is not in a string of the JSON object.

        If there is no object behind the opening, the first closing tag counts.
        """
        if not _OBJECT_START.match(text, opening.end()):
            return super()._find_end(text, opening)
        for token in _STRING_OR_CLOSING_TAG.finditer(text, opening.end()):
            if token[0] == self.closer:
                return token.end()
        return None

    def _describe_unclosed(self, text: str, opening: re.Match[str]) -> str:
        """Return what is wrong with a block that does not end, for the agent.

        If there is a closing tag, but in a string that is never closed, the error is the one of the
        JSON in front of that tag.
        """
        end_in_string = super()._find_end(text, opening)
        if end_in_string is not None:
            try:
                self._read_call(text[:end_in_string], opening, ())
            except ValueError as error:
                return str(error)
        return super()._describe_unclosed(text, opening)

    def _is_in_arguments(self, text: str, opening: re.Match[str], end: int, mark: Mark) -> bool:
        is_object = _OBJECT_START.match(text, opening.end()) is not None
        return is_object and super()._is_in_arguments(text, opening, end, mark)

    def _find_arguments_in(
        self, text: str, opening: re.Match[str], end: int
    ) -> tuple[int, int] | None:
        return find_json_arguments(text, opening.end(), end - len(self.closer))

    def _read_call(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        source = text[opening.end() : -len(self.closer)]
        return read_json_call(source, "the text between the tags", ("arguments",), tools)

    def _spell_call(self, call: ToolCall) -> str:
        return f"{self.opener}\n{spell_json_call(call, 'arguments')}\n{self.closer}"
