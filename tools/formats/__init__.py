"""How an agent writes a tool call in text: formats, chosen by name, the rows of `FORMATS`.

- `core`: `Format`, from which all derive; `Hermes` and `LlamaJson`, calls as one JSON object
- `foreign`: calls in the format of another model, which are counted

Here are `Tags` and `Fenced`, calls whose one argument stands as it is between two marks, and `Pythonic`, calls as
Python writes them. Nothing is evaluated, and Python's own parser is not used: it warns, can use up the stack, and is
slow on hostile text.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

from ..core import brief, pick
from .core import LARGEST, Format, Hermes, LlamaJson, Parsed, ToolCall, check_tool, closing

__all__ = ["FORMATS", "Format", "Parsed", "ToolCall", "get_format", "text_format"]

_NAME = r"[^\W\d][\w.]*+"
# A string that is not closed reaches to the end, so that no bracket in it counts before its end is written.
_STRING = "|".join(
    rf"{q * 3}[^{q}\\]*+(?:(?:\\.?|{q}(?!{q * 2}))[^{q}\\]*+)*+(?:{q * 3}|\Z)"
    rf"|{q}[^{q}\\]*+(?:\\.?[^{q}\\]*+)*+(?:{q}|\Z)"
    for q in "\"'"
)
_MARKS = re.compile(rf"{_STRING}|[][(){{}}]", re.DOTALL)
_BEHIND = re.compile(r"[^],]*+[],]")
_NUMBER = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_TOKEN = re.compile(
    rf"\s*+(?:(?P<text>{_STRING})|(?P<number>{_NUMBER})|(?P<word>[^\W\d]\w*+)|.|\Z)", re.DOTALL
)
_CONSTANTS = {
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "false": False,
    "null": None,
}
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"\n])|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3}))",
    re.ASCII,
)
_ESCAPED = dict(
    zip("abfnrtv\\'\"\n", ["\a", "\b", "\f", "\n", "\r", "\t", "\v", "\\", "'", '"', ""])
)


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


class Pythonic(Format):
    """Calls with named arguments, whose values are literals of Python or JSON.

    A first call ends with the `]` or the `,` behind it: what more the list would hold does not count.
    """

    name = "pythonic"
    opening = re.compile(
        rf"\[\s*+(?P<name>{_NAME})\s*+(?P<bracket>\()(?=\s*+(?:[)\"']|{_NAME}\s*+=))"
    )
    closers = ("]", ",")
    unclosed = "the list of calls is never closed by ], or too large"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        functions = "\n".join(
            json.dumps(schema["function"], ensure_ascii=False) for schema in schemas
        )
        return (
            "To call a function, write [name(argument=value)] with its arguments by name and their values as Python "
            f"literals, and stop; the result comes back in the next message. The functions are:\n{functions}"
        )

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        end = closing(text, opening.start("bracket"), _MARKS)
        behind = None if end is None else _BEHIND.match(text, end)
        return behind and behind.end()

    def _inside(self, text: str, opening: re.Match[str], end: int) -> tuple[int, int]:
        return opening.end("bracket"), text.rindex(")", 0, end)

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        check_tool(opening["name"], tools)
        reader = _Reader(text, opening.end("bracket"))
        arguments = reader.arguments()
        if reader.next() not in ("]", ","):
            raise ValueError(f"expected , or ] behind the call, found {reader.shown()}")
        return ToolCall(opening["name"], arguments)

    def _spell(self, call: ToolCall) -> str:
        arguments = ", ".join(f"{name}={_literal(value)}" for name, value in call.arguments.items())
        return f"[{call.name}({arguments})]"


class _Reader:
    """Reads values token by token. It recurs as deep as brackets nest, which `closing` has bounded."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.at, self.left = text, start, LARGEST
        self.token, self.comma = (
            "",
            False,
        )  # the latest token, and whether a comma stood behind the latest member

    def next(self) -> str:
        """Go to the next token: its text where it is a mark of its own, its kind otherwise; empty at the end."""
        found = _TOKEN.match(self.text, self.at)
        self.left -= 1
        if found is None or not self.left:  # it always matches, at least the end
            raise ValueError(f"the call holds more than {LARGEST} values and marks")
        self.at, self.token = found.end(), found[0].lstrip()
        return found.lastgroup or self.token

    def take(self, mark: str) -> bool:
        before = self.at
        if self.next() == mark:
            return True
        self.at = before
        return False

    def shown(self) -> str:
        return repr(brief(self.token)) if self.token else "the end"

    def members(self, closer: str) -> Iterator[None]:
        """Yield once for each member up to `closer`, which is to be read then; go past the commas behind them."""
        while not self.take(closer):
            yield
            if (mark := self.next()) not in (",", closer):
                raise ValueError(f"expected , or {closer}, found {self.shown()}")
            self.comma = mark == ","
            if not self.comma:
                return

    def arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in self.members(")"):
            if self.next() != "word":
                raise ValueError(
                    f"expected an argument by name, as in f(x=1), found {self.shown()}"
                )
            if (name := self.token) in found:
                raise ValueError(f"the argument {brief(name)!r} is given twice")
            if self.next() != "=":
                raise ValueError(f"expected = behind {brief(name)!r}, found {self.shown()}")
            found[name] = self.value()
        return found

    def value(self) -> Any:
        kind = self.next()
        if kind == "text":
            quotes = 3 if self.token[:3] in ('"""', "'''") else 1
            return _ESCAPE.sub(_character, self.token[quotes:-quotes])
        if kind == "number":
            return _number(self.token)
        if kind == "word" and self.token in _CONSTANTS:
            return _CONSTANTS[self.token]
        if kind == "[":
            return [self.value() for _ in self.members("]")]
        if kind == "(":
            items = [self.value() for _ in self.members(")")]
            return items[0] if len(items) == 1 and not self.comma else items
        if kind == "{":
            return self._pairs()
        raise ValueError(
            f"expected a literal (text, number, list, dict, True, False, None), found {self.shown()}"
        )

    def _pairs(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in self.members("}"):
            if not isinstance(key := self.value(), str):
                raise ValueError("the keys of a dict must be strings")
            if self.next() != ":":
                raise ValueError(f"expected : behind a key, found {self.shown()}")
            found[key] = self.value()
        return found


def _character(escape: re.Match[str]) -> str:
    simple, *hexadecimal, octal = escape.groups()
    if simple is not None:
        return _ESCAPED[simple]
    code = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
    if code > 0x10FFFF:
        raise ValueError(f"{escape[0]} is no character")
    return chr(code)


def _number(digits: str) -> int | float:
    if digits.lstrip("+-").isdigit():
        return int(digits)
    if not isfinite(value := float(digits)):
        raise ValueError(f"the number {brief(digits)} is too large")
    return value


def _literal(value: Any) -> str:
    """Return the literal of a JSON value; `</` is escaped so that no argument can close a thought."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("</", "<\\x2f")
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items())
            + "}"
        )
    return "[" + ", ".join(map(_literal, value)) + "]" if isinstance(value, list) else repr(value)


FORMATS: dict[str, Format] = {
    style.name: style for style in (Hermes(), Tags(), Fenced(), LlamaJson(), Pythonic())
}
"""The formats by name."""

get_format = partial(pick, FORMATS, "tool-call format")
"""Return the format of a name; raises ValueError with the nearest name."""


def text_format(schemas: Sequence[dict[str, Any]]) -> Format:
    """Return the format that a system prompt teaches best for tools: tags if each has one, else calls as in Python."""
    every_tool_has_a_tag = all(_has_tag(schema["function"]) for schema in schemas)
    return FORMATS["tags" if every_tool_has_a_tag else "pythonic"]


def _has_tag(function: dict[str, Any]) -> bool:
    """Return whether a tag can call a tool: there is one of its name, and needs no other argument than the tag's."""
    arguments = {tag.argument for tag in TAGS if tag.tool == function["name"]}
    parameters = function["parameters"]
    needed = {*parameters.get("required", ())}
    return needed <= arguments <= parameters["properties"].keys() and bool(arguments)
