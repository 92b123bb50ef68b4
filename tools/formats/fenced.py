"""A Markdown fence ```` ```python … ``` ```` runs its code, as ToRA and ROLL write it; output comes back in a fence."""

import re
from collections.abc import Sequence
from typing import Any

from .core import BlockFormat, ToolCall, check_tool, opens

_CLOSER = re.compile(r"^[ \t]*+```", re.MULTILINE)


class Fenced(BlockFormat):
    """The first fence of Python (`python` or `py`) is a call of the tool `python`; other fences are text."""

    name = "fenced"
    opening = opens(r"```(?:python|py)[ \t]*+\r?\n")
    closers = ("```",)
    native = False

    def observe(self, text: str, tool: str | None) -> tuple[str, str]:
        """A user message with a fence, as the code had one."""
        return "user", f"```output\n{text}\n```"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """How to run code, and the tool's own description."""
        for schema in schemas:
            if schema["function"]["name"] != "python":
                raise ValueError(
                    f"the format {self.name} calls python alone, not {schema['function']['name']!r}; "
                    "use hermes, llama-json or pythonic"
                )
        return "\n".join(
            "To run Python code, write it in a block that opens with ```python and closes with ```, and stop; the "
            f"result comes back in a block that opens with ```output. {schema['function']['description']}"
            for schema in schemas
        )

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        end = _CLOSER.search(text, opening.end())
        return end and end.end()

    def _unclosed(self, opening: re.Match[str]) -> str:
        return f"{opening[0].rstrip()} is never closed by a line that begins with ```"

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        check_tool("python", tools)
        return ToolCall("python", {"code": text[opening.end() : -3].rstrip(" \t").removesuffix("\n")})

    def _spell(self, call: ToolCall) -> str:
        code = call.arguments.get("code")
        if not isinstance(code, str):
            raise ValueError(f"the format {self.name} spells python with the argument 'code' alone: {call}")
        return f"```python\n{code}\n```"
