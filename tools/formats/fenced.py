"""Calls whose one argument is a fenced block of code in Markdown."""

import re
from collections.abc import Sequence
from typing import Any

from .base import Format, ToolCall, check_tool

TAB = 4  # columns, in Markdown
_LIST_ITEM = re.compile(
    r"[ \t]*+(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]++)?"
)  # what stands in front of a fence on its line
# Code that begins with a fence is never Python; some models forget the fence at its end.
_FENCED_CODE = re.compile(
    r"\s*?(?P<blanks>[ \t]*+)```(?i:python3?|py)?[ \t]*+\r?\n(?P<code>.*?)(?:(?:(?<=\n)|\n)[ \t]*+```\s*+)?",
    re.DOTALL,
)
_FENCE = re.compile(r"^[ \t]*+```", re.MULTILINE)


class Fenced(Format):
    """A Markdown fence ```` ```python … ``` ```` runs its code, as ToRA and ROLL write it; output comes in a fence.

    The first fence of Python (`python` or `py`, in any case) is a call of the tool `python`; other fences are text. If
    the fence is indented, by blanks or as part of a list, so much is removed from its lines, as CommonMark has it.
    """

    name = "fenced"
    opening = re.compile(r"```(?i:python|py)[ \t]*+\r?\n")
    closers = ("```",)
    unclosed = "{} is never closed by a line that begins with ```"

    def _frame(self, text: str, tool: str | None) -> tuple[str, str]:
        return "user", f"```output\n{text}\n```"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        if other := [
            name for schema in schemas if (name := schema["function"]["name"]) != "python"
        ]:
            fix = "use hermes, llama-json or pythonic"
            raise ValueError(f"the format {self.name} calls python alone, not {other[0]!r}; {fix}")
        return "\n".join(
            "To run Python code, write it in a block that opens with ```python and closes with ```, and stop; the "
            f"result comes back in a block that opens with ```output. {schema['function']['description']}"
            for schema in schemas
        )

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        end = _FENCE.search(text, opening.end())
        return end and end.end()

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        check_tool("python", tools)
        code = text[opening.end() : -3].rstrip(" \t").removesuffix("\n")
        before = _LIST_ITEM.fullmatch(
            text, text.rfind("\n", 0, opening.start()) + 1, opening.start()
        )
        if before is not None and before[0]:
            code = _outdented(code, len(before[0].expandtabs(TAB)))
        return ToolCall("python", {"code": code})

    def _spell(self, call: ToolCall) -> str:
        if not isinstance(code := call.arguments.get("code"), str):
            raise ValueError(
                f"the format {self.name} spells python with the argument 'code' alone: {call}"
            )
        return f"```python\n{code}\n```"


def unfenced(code: str) -> str:
    """Return code without the Markdown fence around it, as some models write it in a call; other code as it is."""
    fence = _FENCED_CODE.fullmatch(code)
    return (
        code if fence is None else _outdented(fence["code"], len(fence["blanks"].expandtabs(TAB)))
    )


def _outdented(code: str, columns: int) -> str:
    """Return code without so many columns of blanks in front of each line, or all blanks of a line that has fewer."""
    lines = []
    for line in code.split("\n"):
        blanks = line[: len(line) - len(line.lstrip(" \t"))]
        wider = len(blanks.expandtabs(TAB)) - columns
        lines.append(" " * wider + line[len(blanks) :] if wider > 0 else line[len(blanks) :])
    return "\n".join(lines)
