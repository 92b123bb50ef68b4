"""How an agent writes a tool call in text: formats, chosen by name.

A format is total: any string gives a call, a sentence that tells the agent what is wrong, or neither. It reads up to
the end of the first call, in time linear in the text. What stands inside `<think>…</think>` is no call.
"""

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

END_OF_THOUGHT = "</think>"


@dataclass(frozen=True)
class ToolCall:
    """A call by name; the arguments are not yet checked against the tool's schema."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Parsed:
    """What a completion says: a call, an error for the agent, or (both None) plain text.

    `text` is the completion up to the end of the first call, well-formed or not; the rest is to be dropped.
    """

    call: ToolCall | None
    error: str | None
    text: str


class Format(Protocol):
    """One way of writing calls and reading results."""

    @property
    def name(self) -> str:
        """The key in `FORMATS`."""

    @property
    def closers(self) -> tuple[str, ...]:
        """Strings that end a call: generation stops behind them."""

    @property
    def native(self) -> bool:
        """True when chat templates show the tools' schemas by themselves."""

    def parse(self, text: str, tools: Sequence[str]) -> Parsed:
        """Find the first call; never raises. `tools` are the names that exist."""

    def render(self, call: ToolCall) -> str:
        """The text of a call, as an expert writes it: `parse` gives back the same call."""

    def observe(self, text: str) -> tuple[str, str]:
        """The (role, content) of the message that carries a result."""

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """What the system prompt must say so that the agent knows its tools; empty when `native`."""


class Hermes:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, the format of Hermes and Qwen."""

    name = "hermes"
    opener = "<tool_call>"
    closers = ("</tool_call>",)
    native = True
    form = '{"name": ..., "arguments": {...}}'

    def parse(self, text: str, tools: Sequence[str]) -> Parsed:
        """Read the first call; `arguments` may also be a string that holds a JSON object, as some models write it."""
        body, error, text = _first_block(text, self.opener, self.closers[0])
        if body is None:
            return Parsed(None, error, text)
        try:
            return Parsed(self._read(body, tools), None, text)
        except ValueError as problem:
            return Parsed(None, f"malformed tool call: {problem}", text)

    def _read(self, body: str, tools: Sequence[str]) -> ToolCall:
        call = _load_json(body, "the text between the tags")
        if not isinstance(call, dict):
            raise ValueError(f"expected {self.form}, got {_kind(call)}")
        name, arguments = call.get("name"), call.get("arguments")
        if not isinstance(name, str):
            raise ValueError(f'"name" must be a string; expected {self.form}')
        if name not in tools:
            raise ValueError(_unknown(name, tools))
        if isinstance(arguments, str):
            arguments = _load_json(arguments, '"arguments"')
        if not isinstance(arguments, dict):
            found = _kind(arguments) if "arguments" in call else "missing"
            raise ValueError(f'"arguments" must be an object, it is {found}; expected {self.form}')
        return ToolCall(name, arguments)

    def render(self, call: ToolCall) -> str:
        """One JSON object between the tags; `</` is escaped so that no argument can close the call."""
        body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False).replace("</", "<\\/")
        return f"{self.opener}\n{body}\n{self.closers[0]}"

    def observe(self, text: str) -> tuple[str, str]:
        """The role `tool`; the chat template adds its own frame."""
        return "tool", text

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Empty: the chat template does it."""
        return ""


class PythonTag:
    """`<python>code</python>` calls the tool named `python` with the code between the tags."""

    name = "python-tag"
    opener = "<python>"
    closers = ("</python>",)
    native = False

    def parse(self, text: str, tools: Sequence[str]) -> Parsed:
        """Read the first program; one newline next to each tag is not part of it."""
        body, error, text = _first_block(text, self.opener, self.closers[0])
        if body is None:
            return Parsed(None, error, text)
        if "python" not in tools:
            return Parsed(None, f"malformed tool call: {_unknown('python', tools)}", text)
        return Parsed(ToolCall("python", {"code": body.removeprefix("\n").removesuffix("\n")}), None, text)

    def render(self, call: ToolCall) -> str:
        """The code between tags; raises ValueError for a call this format cannot spell."""
        code = call.arguments.get("code")
        if call.name != "python" or set(call.arguments) != {"code"} or not isinstance(code, str):
            raise ValueError(f'the call is {call}; the format {self.name} only spells python with {{"code": text}}')
        for tag in (self.closers[0], END_OF_THOUGHT):
            if tag in code:
                raise ValueError(f"the code contains {tag}, which the format {self.name} cannot spell; use hermes")
        frame = "\n" if "\n" in code else ""
        return f"{self.opener}{frame}{code}{frame}{self.closers[0]}"

    def observe(self, text: str) -> tuple[str, str]:
        """A user message: templates of models that know no tools have no role for them."""
        return "user", f"<result>\n{text}\n</result>"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """How to call Python, with the tool's own description."""
        about = "".join(
            f" {schema['function']['description']}" for schema in schemas if schema["function"]["name"] == "python"
        )
        return (
            "To run Python code, write <python>code</python> and stop; the output comes back between <result> and "
            f"</result>.{about}"
        )


FORMATS: dict[str, Format] = {style.name: style for style in (Hermes(), PythonTag())}


def get_format(name: str) -> Format:
    """The format of this name; raises ValueError with the nearest name."""
    if name in FORMATS:
        return FORMATS[name]
    nearest = difflib.get_close_matches(name, FORMATS, n=1, cutoff=0)
    raise ValueError(f"unknown tool-call format {name!r}; did you mean {nearest[0]!r}? known: {', '.join(FORMATS)}")


def _first_block(text: str, opener: str, closer: str) -> tuple[str | None, str | None, str]:
    """The (body, error, text up to the end of the block) of the first block outside thoughts.

    A `</think>` before any `<think>` ends a thought that the chat template opened in the prompt.
    """
    opening = re.compile(f"<think>|{re.escape(opener)}")
    thought_end = text.find(END_OF_THOUGHT)
    position = 0
    if thought_end >= 0 and "<think>" not in text[:thought_end]:
        position = thought_end + len(END_OF_THOUGHT)
    while (found := opening.search(text, position)) and found[0] == "<think>":
        thought_end = text.find(END_OF_THOUGHT, found.end())
        if thought_end < 0:
            return None, None, text
        position = thought_end + len(END_OF_THOUGHT)
    if found is None:
        return None, None, text
    end = text.find(closer, found.end())
    if end < 0:
        return None, f"malformed tool call: {opener} is never closed by {closer}", text
    return text[found.end() : end], None, text[: end + len(closer)]


def _load_json(source: str, what: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(source, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{what} is not valid JSON ({reason})") from None


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _unknown(name: str, tools: Sequence[str]) -> str:
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    known = f"the tools are {', '.join(tools)}" if tools else "there are no tools"
    return f"there is no tool {shown!r}; {known}"
