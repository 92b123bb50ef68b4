"""Calls whose single argument is written verbatim between tags: `<python>…</python>`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .base import Format, ToolCall, check_tool


@dataclass(frozen=True)
class Tag:
    """A tag that calls a tool.

    Args:
        name: The tag's name.
        tool: The tool that it calls.
        argument: The name of the tool's argument that is written between the tags.
        result: The name of the tag in which the result comes back.
    """

    name: str
    tool: str
    argument: str
    result: str


TAGS = (  # prompts show the first tag of a tool
    Tag("python", "python", "code", "result"),
    Tag("search", "search", "query", "information"),
    Tag("visit", "visit", "url", "information"),
    Tag("execute", "python", "code", "result"),
    Tag("llm-code", "python", "code", "result"),
)
ANSWER_TAGS = ("answer", "solution")  # of a final answer, which ends the turn without a call
_TAG_NAMES = [*(tag.name for tag in TAGS), *ANSWER_TAGS]


class Tags(Format):
    """`<python>code</python>`, `<search>query</search>`: a tag for each tool and for answers.

    They are those of Search-R1 and ARPO (`python`, `search`, `answer`), MINT (`execute`,
    `solution`) and OpenMath (`llm-code`).
    """

    name = "tags"
    opening = re.compile(f"<({'|'.join(_TAG_NAMES)})>")
    closers = tuple([f"</{name}>" for name in _TAG_NAMES])
    unclosed = "<{0}> is never closed by </{0}>"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Return a line for each tool: how it is called, and its own description."""
        lines: list[str] = []
        for schema in schemas:
            function = schema["function"]
            tag = self._tag_of_tool(function["name"])
            lines.append(
                f"To call {tag.tool}, write <{tag.name}>{tag.argument}</{tag.name}> and stop; "
                f"the result comes back between <{tag.result}> and </{tag.result}>. "
                f"{function['description']}"
            )
        return "\n".join(lines)

    def _frame_result(self, text: str, tool: str | None) -> tuple[str, str]:
        """Return a user message: templates of models without tools have no role for results."""
        result_tag = next((tag.result for tag in TAGS if tag.tool == tool), "result")
        return "user", f"<{result_tag}>\n{text}\n</{result_tag}>"

    def _tag_of_tool(self, tool: str) -> Tag:
        for tag in TAGS:
            if tag.tool == tool:
                return tag
        raise ValueError(
            f"the format {self.name} has no tag for the tool {tool!r}; "
            "use hermes, llama-json or pythonic"
        )

    def _closer_of(self, opening: re.Match[str]) -> str:
        return f"</{opening[1]}>"

    def _is_answer(self, opening: re.Match[str]) -> bool:
        return opening[1] in ANSWER_TAGS

    def _describe_unclosed(self, text: str, opening: re.Match[str]) -> str:
        return self.unclosed.format(opening[1])

    def _read_call(
        self, text: str, opening: re.Match[str], tools: Sequence[str]
    ) -> ToolCall | None:
        if self._is_answer(opening):
            return None
        tag = next(tag for tag in TAGS if tag.name == opening[1])
        check_tool(tag.tool, tools)
        argument = text[opening.end() : -len(self._closer_of(opening))]
        # Strip one line break next to each tag, or the blanks if the argument begins on the line of
        # the opening tag. If it begins on the next line, its first blanks may indent code: keep
        # them.
        if argument.startswith("\n"):
            argument = argument.removeprefix("\n")
        else:
            argument = argument.strip(" \t")
        argument = argument.removesuffix("\n")
        return ToolCall(tag.tool, {tag.argument: argument})

    def _spell_call(self, call: ToolCall) -> str:
        tag = self._tag_of_tool(call.name)
        argument = call.arguments.get(tag.argument)
        if not isinstance(argument, str):
            raise ValueError(
                f"the format {self.name} can only write the argument {tag.argument!r} of "
                f"{tag.tool}, as text: {call}"
            )
        # Blanks at the ends of an argument would be stripped if it were on the line of its tags.
        needs_own_lines = "\n" in argument or argument != argument.strip(" \t")
        line_break = "\n" if needs_own_lines else ""
        return f"<{tag.name}>{line_break}{argument}{line_break}</{tag.name}>"
