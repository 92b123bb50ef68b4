"""Calls whose one argument stands as it is between two tags, as in `<python>…</python>`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .base import Format, ToolCall, check_tool


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
ANSWERS = ("answer", "solution")  # a final answer: no call, and nothing behind it counts


class Tags(Format):
    """`<python>code</python>`, `<search>query</search>`: a tag a tool, and tags for final answers.

    They are of Search-R1 and ARPO (`python`, `search`, `answer`), MINT (`execute`, `solution`), OpenMath (`llm-code`).
    """

    name = "tags"
    opening = re.compile(f"<({'|'.join([tag.name for tag in TAGS] + list(ANSWERS))})>")
    closers = tuple(f"</{name}>" for name in (*(tag.name for tag in TAGS), *ANSWERS))
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
        raise ValueError(
            f"the format {self.name} has no tag for the tool {tool!r}; use hermes, llama-json or pythonic"
        )

    def _closer(self, opening: re.Match[str]) -> str:
        return f"</{opening[1]}>"

    def _unclosed(self, text: str, opening: re.Match[str]) -> str | None:
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
            only = f"with the argument {tag.argument!r} alone"
            raise ValueError(f"the format {self.name} spells {tag.tool} {only}: {call}")
        frame = "\n" if "\n" in body or body != body.strip(" \t") else ""
        return f"<{tag.name}>{frame}{body}{frame}</{tag.name}>"
