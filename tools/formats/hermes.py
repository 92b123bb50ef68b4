"""The format of Hermes: a call is one JSON object between `<tool_call>` tags."""

import re
from collections.abc import Sequence

from ..thoughts import Mark
from .base import Format, ToolCall
from .json_call import _in_object, read_json_call, spell_json_call

_OBJECT = re.compile(r"\s*+\{")
_STRING_OR_TAG = re.compile(
    r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+(?:["\n]|\\?\Z)|</tool_call>', re.DOTALL
)


class Hermes(Format):
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: one JSON object between tags."""

    name = "hermes"
    opener, closer = "<tool_call>", "</tool_call>"
    opening = re.compile(opener)
    closers = (closer,)
    native = True
    unclosed = f"{opener} is never closed by {closer}"

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where the first closing tag ends that is in no string of the JSON object.

        JSON has no strings of several lines, so that a quote which is never closed hides no tag behind its line.
        """
        if not _OBJECT.match(text, opening.end()):
            return super()._end(text, opening)
        marks = _STRING_OR_TAG.finditer(text, opening.end())
        return next((mark.end() for mark in marks if mark[0] == self.closer), None)

    def _unclosed(self, text: str, opening: re.Match[str]) -> str | None:
        """Return what is wrong; if a string that never ends holds a closing tag, what is wrong with the JSON before."""
        if (end := super()._end(text, opening)) is None:
            return super()._unclosed(text, opening)
        try:
            self._read(text[:end], opening, ())
        except ValueError as error:
            return str(error)
        return super()._unclosed(text, opening)

    def _in_arguments(self, text: str, opening: re.Match[str], end: int, mark: Mark) -> bool:
        is_object = _OBJECT.match(text, opening.end()) is not None
        return is_object and super()._in_arguments(text, opening, end, mark)

    def _inside(self, text: str, opening: re.Match[str], end: int) -> tuple[int, int] | None:
        return _in_object(text, opening.end(), end - len(self.closer))

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        body = text[opening.end() : -len(self.closer)]
        return read_json_call(body, "the text between the tags", ("arguments",), tools)

    def _spell(self, call: ToolCall) -> str:
        return f"{self.opener}\n{spell_json_call(call, 'arguments')}\n{self.closer}"
