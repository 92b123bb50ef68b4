"""Calls whose one argument stands as it is between two marks: tags, or the fences of Markdown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .core import Format, ToolCall, check_tool, opens


@dataclass(frozen=True)
class Tag:
    """Which tool a tag calls, which argument stands between the tags, and in which tags the result comes back."""

    name: str
    tool: str
    argument: str
    result: str


TAGS = (  # the first of a tool is the one that is taught
    Tag("python", "python", "code", "result"),
    Tag("search", "search", "query", "information"),
    Tag("visit", "visit", "url", "information"),
    Tag("execute", "python", "code", "result"),
    Tag("llm-code", "python", "code", "result"),
)
_FENCE = re.compile(r"^[ \t]*+```", re.MULTILINE)
ANSWERS = ("answer", "solution")  # a final answer: no call, and nothing behind it counts


class Tags(Format):
    """`<python>code</python>`, `<search>query</search>`: a tag a tool, and tags for final answers.

    The tags are those of Search-R1 and ARPO (`python`, `search`, `answer`), MINT (`execute`, `solution`) and OpenMath
    (`llm-code`).
    """

    name = "tags"
    opening = opens(f"<({'|'.join([tag.name for tag in TAGS] + list(ANSWERS))})>")
    closers = tuple(f"</{name}>" for name in (*(tag.name for tag in TAGS), *ANSWERS))
    native = False
    unclosed = "<{0}> is never closed by </{0}>"

    def _frame(self, text: str, tool: str | None) -> tuple[str, str]:
        """Return a user message: templates of models that know no tools have no role for them."""
        tag = next((tag.result for tag in TAGS if tag.tool == tool), "result")
        return "user", f"<{tag}>\n{text}\n</{tag}>"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Return a line a tool: how it is called, and its own description."""
        lines = []
        for function in (schema["function"] for schema in schemas):
            tag = self._of(function["name"])
            call = f"To call {tag.tool}, write <{tag.name}>{tag.argument}</{tag.name}> and stop"
            result = f"the result comes back between <{tag.result}> and </{tag.result}>"
            lines.append(f"{call}; {result}. {function['description']}")
        return "\n".join(lines)

    def _of(self, tool: str) -> Tag:
        if found := [tag for tag in TAGS if tag.tool == tool]:
            return found[0]
        raise ValueError(f"the format {self.name} has no tag for the tool {tool!r}; use hermes, llama-json or pythonic")

    def _closer(self, opening: re.Match[str]) -> str:
        return f"</{opening[1]}>"

    def _unclosed(self, opening: re.Match[str]) -> str | None:
        return None if opening[1] in ANSWERS else self.unclosed.format(opening[1])

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall | None:
        if opening[1] in ANSWERS:
            return None
        tag = next(tag for tag in TAGS if tag.name == opening[1])
        check_tool(tag.tool, tools)
        body = text[opening.end() : -len(self._closer(opening))]
        # One newline next to each tag is frame, and so are blanks on the tag's own line: code cannot begin with them.
        body = body[1:] if body.startswith("\n") else body.strip(" \t")
        return ToolCall(tag.tool, {tag.argument: body.removesuffix("\n")})

    def _spell(self, call: ToolCall) -> str:
        tag = self._of(call.name)
        if not isinstance(body := call.arguments.get(tag.argument), str):
            raise ValueError(
                f"the format {self.name} spells {tag.tool} with the argument {tag.argument!r} alone: {call}"
            )
        frame = "\n" if "\n" in body or body != body.strip(" \t") else ""
        return f"<{tag.name}>{frame}{body}{frame}</{tag.name}>"


class Fenced(Format):
    """A Markdown fence ```` ```python … ``` ```` runs its code, as ToRA and ROLL write it; output comes in a fence.

    The first fence of Python (`python` or `py`) is a call of the tool `python`; other fences are text.
    """

    name = "fenced"
    opening = opens(r"```(?:python|py)[ \t]*+\r?\n")
    closers = ("```",)
    native = False
    unclosed = "{} is never closed by a line that begins with ```"

    def _frame(self, text: str, tool: str | None) -> tuple[str, str]:
        return "user", f"```output\n{text}\n```"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        if other := [name for schema in schemas if (name := schema["function"]["name"]) != "python"]:
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
        return ToolCall("python", {"code": text[opening.end() : -3].rstrip(" \t").removesuffix("\n")})

    def _spell(self, call: ToolCall) -> str:
        if not isinstance(code := call.arguments.get("code"), str):
            raise ValueError(f"the format {self.name} spells python with the argument 'code' alone: {call}")
        return f"```python\n{code}\n```"
