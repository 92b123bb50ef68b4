"""Calls whose single argument is a fenced block of code in Markdown."""

import re
from collections.abc import Sequence
from typing import Any

from .base import Format, ToolCall, check_tool

TAB_WIDTH = 4  # columns, in Markdown
# What may be in front of a fence on its line: blanks, and a marker of a list item such as "- " or
# "1. ".
_FENCE_INDENT = re.compile(r"[ \t]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++)?")
# Code in a fence. Python code never begins with a fence. Some models forget the closing fence.
_FENCED_CODE = re.compile(
    r"""
    \s*? (?P<indent>[ \t]*+) ```(?i:python3?|py)? [ \t]*+ \r?\n
    (?P<code>.*?)
    (?: (?: (?<=\n) | \n ) [ \t]*+ ``` \s*+ )?
    """,
    re.DOTALL | re.VERBOSE,
)
_FENCE = re.compile(r"^[ \t]*+```", re.MULTILINE)


class Fenced(Format):
    """A Markdown fence ```` ```python … ``` ```` runs its code, as in ToRA and ROLL.

    The output comes back in a fence, too.

    The first fence of Python (`python` or `py`, in upper or lower case) is a call of the tool
    `python`; other fences are text. If the fence is indented, by blanks or as part of a list, its
    lines lose as much indentation, as in CommonMark.
    """

    name = "fenced"
    opening = re.compile(r"```(?i:python|py)[ \t]*+\r?\n")
    closers = ("```",)
    unclosed = "{} is never closed by a line that begins with ```"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Return how to run Python; raises ValueError if there is another tool."""
        lines: list[str] = []
        for schema in schemas:
            function = schema["function"]
            if function["name"] != "python":
                raise ValueError(
                    f"the format {self.name} calls python alone, not {function['name']!r}; "
                    "use hermes, llama-json or pythonic"
                )
            lines.append(
                "To run Python code, write it in a block that opens with ```python and closes "
                "with ```, and stop; the result comes back in a block that opens with ```output. "
                f"{function['description']}"
            )
        return "\n".join(lines)

    def _frame_result(self, text: str, tool: str | None) -> tuple[str, str]:
        return "user", f"```output\n{text}\n```"

    def _find_end(self, text: str, opening: re.Match[str]) -> int | None:
        fence = _FENCE.search(text, opening.end())
        return None if fence is None else fence.end()

    def _read_call(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        check_tool("python", tools)
        # The text ends with the closing fence, which may be indented.
        code = text[opening.end() : -len("```")].rstrip(" \t").removesuffix("\n")
        # An indented fence, such as one in a list, has code that is indented as far as the fence.
        line_start = text.rfind("\n", 0, opening.start()) + 1
        indent = _FENCE_INDENT.fullmatch(text, line_start, opening.start())
        if indent is not None and indent[0]:
            code = _remove_indent(code, columns=len(indent[0].expandtabs(TAB_WIDTH)))
        return ToolCall("python", {"code": code})

    def _spell_call(self, call: ToolCall) -> str:
        code = call.arguments.get("code")
        if not isinstance(code, str):
            raise ValueError(
                f"the format {self.name} can only write the argument 'code' of python, "
                f"as text: {call}"
            )
        return f"```python\n{code}\n```"


def remove_fence(code: str) -> str:
    """Return the code inside a Markdown fence, if there is one around all of it.

    Some models put a fence around the code in a call's arguments.
    """
    fence = _FENCED_CODE.fullmatch(code)
    if fence is None:
        return code
    return _remove_indent(fence["code"], columns=len(fence["indent"].expandtabs(TAB_WIDTH)))


def _remove_indent(code: str, *, columns: int) -> str:
    """Remove up to `columns` columns of blanks from the start of each line.

    A tab extends to the next multiple of `TAB_WIDTH` columns. Indentation that remains is written
    with spaces.
    """
    lines: list[str] = []
    for line in code.split("\n"):
        unindented = line.lstrip(" \t")
        indent = line[: len(line) - len(unindented)]
        indent_columns = len(indent.expandtabs(TAB_WIDTH))
        remaining_columns = max(0, indent_columns - columns)
        lines.append(" " * remaining_columns + unindented)
    return "\n".join(lines)
