"""What a format of tool calls is, and the formats that write a call as one JSON object, those of Hermes and of Llama 3.

A format is total: any string gives a call, a sentence that tells the agent what is wrong, or neither. It reads up to
the end of the first call, in time linear in the text. What stands inside a thought is no call, and the end of a thought
that is spelled in a call's arguments is part of them.
"""

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any, ClassVar

from ..core import brief, refuse_constant
from ..thoughts import Mark, outside_thoughts, thought_marks, without_thoughts

DEEPEST = 64  # brackets of a call nest at most this deep
LARGEST = 10_000  # and a call holds at most this many; both bound the time that one call can take
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
# What could end the block of a result: a fence, or the closing tag of a block that formats and chat templates use.
# U+1FEF is a backtick in Unicode's normal forms. Behind each match a backslash is put, also where one is already.
_FRAMES = r"(?:tool|function)(?!_?calls?\b)\w*|(?:information|result|response|observation|output)s?"
_CLOSING = re.compile(
    rf"[`\u1fef]{{2}}(?=\\*[`\u1fef])|[<\[]\s*+(?=\\*/\s*+(?:{_FRAMES})\b)", re.IGNORECASE
)
# A string that is not closed reaches to the end, so that no brace in it counts before its end is written.
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*+:\s*+\{?')
_OBJECT = re.compile(r"\s*+\{")
_STRING_OR_TAG = re.compile(
    r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+(?:["\n]|\\?\Z)|</tool_call>', re.DOTALL
)
_MARKS = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[{}]', re.DOTALL)


@dataclass(frozen=True)
class ToolCall:
    """A call by name; the arguments are not yet checked against the tool's schema."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Parsed:
    """What a completion says: a call, an error for the agent, or (both None) an answer.

    `text` is the completion up to the end of the first call, well-formed or not, or of a marked final answer.
    """

    call: ToolCall | None
    error: str | None
    text: str


class Format(ABC):
    """One way of writing calls and reading results.

    Calls are blocks: where one opens is found by a pattern, where it ends follows from its text. `parse` and `complete`
    look at the same block, so that generation stops exactly where a call is first read.
    """

    name: ClassVar[str]  # the key in `FORMATS`
    opening: ClassVar[re.Pattern[str]]  # finds where a call opens; made by `opens`
    closers: ClassVar[
        tuple[str, ...]
    ]  # can end a call: where none has just been written, `complete` does not change
    native: ClassVar[bool] = False  # whether chat templates show the tools' schemas by themselves
    unclosed: ClassVar[
        str
    ]  # what is wrong with a block that does not end; `{}` stands for what opens it

    def parse(self, text: str, tools: Sequence[str]) -> Parsed:
        """Return the first call; never raises. `tools` are the names that exist."""
        if (opening := self._first(text)) is None:
            return Parsed(None, None, text)
        call: ToolCall | None = None
        if (end := self._end(text, opening)) is None:
            problem = self._unclosed(text, opening)
        else:
            text, problem = text[:end], None
            try:
                call = self._read(text, opening, tools)
            except ValueError as error:
                problem = str(error)
        return Parsed(call, problem and f"malformed tool call: {problem}", text)

    def complete(self, text: str) -> bool:
        """Return whether `text` holds a complete first call, well-formed or not, or final answer: the turn is over."""
        return (opening := self._first(text)) is not None and self._end(text, opening) is not None

    def begins(self, text: str) -> int | None:
        """Return where the first call, or the final answer that the format marks, begins; None where there is none."""
        return (opening := self._first(text)) and opening.start()

    def values(self, text: str) -> tuple[int, int] | None:
        """Return where the first call's arguments, or the marked answer, stand; None where no whole block has any."""
        if (opening := self._first(text)) is None or (end := self._end(text, opening)) is None:
            return None
        return self._inside(text, opening, end)

    def without_thoughts(self, text: str) -> str:
        """Return what is said: a text without its thoughts, up to the end of its first call if there is one.

        A text without thoughts stays as it is, and so do arguments that spell the marks of thoughts, and whatever
        stands behind a whole answer that the format marks.
        """
        if not thought_marks(text):
            return text
        opening = self._first(text)
        end = None if opening is None else self._end(text, opening)
        is_call = opening is not None and self._unclosed(text, opening) is not None
        if opening is None or not (is_call or end):
            return without_thoughts(text)
        before = text[: opening.start()]
        said = outside_thoughts(before)
        return (before if said is None else said) + text[opening.start() : end if is_call else None]

    def render(self, call: ToolCall) -> str:
        """Return the text of a call; raises ValueError for one that would not be read back as it is."""
        if self.parse(text := self._spell(call), (call.name,)).call != call:
            raise ValueError(f"the format {self.name} cannot spell {call}; use another format")
        return text

    def observe(self, text: str, tool: str | None) -> tuple[str, str]:
        """Return role and content of the message with what `tool` answered (None: a malformed call), `contained`."""
        return self._frame(contained(text), tool)

    def _frame(self, text: str, tool: str | None) -> tuple[str, str]:
        return (
            "tool",
            text,
        )  # chat templates that know tools have a frame of their own for this role

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Return what a system prompt says of tools; empty when `native`. Raises ValueError for one it cannot call."""
        return ""

    def _first(self, text: str) -> re.Match[str] | None:
        """Return the first opening outside thoughts, of which the chat template may have opened one in the prompt."""
        marks = thought_marks(text)
        at, place = (
            0,
            0,
        )  # what is behind `at` is still to be read, and so are the marks from `place` on
        thought_ended = False
        opening = self.opening.search(text)
        while opening is not None:
            while place < len(marks) and marks[place].start < at:
                place += 1
            mark = marks[place] if place < len(marks) else None
            if mark is not None and mark.start < opening.start():
                if mark.opens and mark.stop is None:
                    return None
                at = mark.stop or mark.end
                thought_ended = True
            elif (prose_end := self._prose(text, opening)) is not None:
                at = prose_end
            elif thought_ended or mark is None or mark.opens:
                return opening
            elif (end := self._end(text, opening)) is not None and self._in_arguments(
                text, opening, end, mark
            ):
                # All marks up to the end of the block are its own; one behind may end a thought that holds the block.
                behind = next((mark for mark in marks[place:] if mark.start >= end), None)
                if behind is None or behind.opens:
                    return opening
                at, thought_ended = behind.end, True
            else:
                at, thought_ended = mark.end, True
            if opening.start() < at:
                opening = self.opening.search(text, at)
        return None

    def _prose(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where a block ends that is no call, though it opens as one; None if it is a call, or never ends."""
        return None

    def _in_arguments(self, text: str, opening: re.Match[str], end: int, mark: Mark) -> bool:
        """Return whether the end of a thought, `mark`, is part of the block up to `end`, which it may also be behind.

        Else it ends a thought that began in the prompt, and in which the opening only was mentioned.
        """
        return mark.end <= end and not self._opens_again(text, mark.end, end)

    def _opens_again(self, text: str, start: int, end: int) -> bool:
        again = self.opening.search(text, start)
        return again is not None and again.start() < end

    def _closer(self, opening: re.Match[str]) -> str:
        """Return the one text that ends the block, where it has one."""
        return self.closers[0]

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where the block ends; None while it does not. What comes behind the end never changes it."""
        end = text.find(closer := self._closer(opening), opening.end())
        return None if end < 0 else end + len(closer)

    def _inside(self, text: str, opening: re.Match[str], end: int) -> tuple[int, int] | None:
        """Return where the arguments stand in the block that ends at `end`; None where none are found."""
        return opening.end(), end - len(self._closer(opening))

    def _unclosed(self, text: str, opening: re.Match[str]) -> str | None:
        """Return what is wrong with a block if it does not end; None where it is no call."""
        return self.unclosed.format(opening[0].rstrip())

    @abstractmethod
    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall | None:
        """Return the call of the block that ends with `text`; raises ValueError that says what is wrong with it."""

    @abstractmethod
    def _spell(self, call: ToolCall) -> str:
        """Return the text of a call, where the format can spell it; else anything, or a ValueError."""


def contained(text: str) -> str:
    r"""Return a result in which nothing ends a block: `</result>` becomes `<\/result>`, three backticks ``\`.

    That holds for what a tokenizer makes of it by NFKC, too: signs of full width, say, become those of ASCII. Each
    backslash is one more than there was, so that what was written can be read back.
    """
    if unicodedata.is_normalized("NFKC", text):  # as ASCII is
        return _CLOSING.sub(r"\g<0>\\", text)
    ends = {match.end() for match in _CLOSING.finditer(text)}
    normal = [unicodedata.normalize("NFKC", character) for character in text]
    places = [place for place, characters in enumerate(normal) for _ in characters]
    ends |= {places[match.end() - 1] + 1 for match in _CLOSING.finditer("".join(normal))}
    pieces, at = list[str](), 0
    for end in sorted(ends):
        pieces += [text[at:end], "\\"]
        at = end
    return "".join([*pieces, text[at:]])


def closing(text: str, start: int, marks: re.Pattern[str]) -> int | None:
    """Return the index behind the bracket that closes the one at `start`; None without one in reach.

    `marks` finds brackets, and whole strings, whose brackets do not count. Nothing is in reach behind `LARGEST` of
    both, or behind a bracket that is deeper than `DEEPEST`.
    """
    depth = 0
    for mark in islice(marks.finditer(text, start), LARGEST):
        if mark[0] in _OPEN:
            depth += 1
            if depth > DEEPEST:
                return None
        elif mark[0] in _CLOSE:
            depth -= 1
            if not depth:
                return mark.end()
    return None


def check_tool(name: str, tools: Sequence[str]) -> None:
    """Raise ValueError, as a sentence for the agent, where no tool has this name."""
    if name not in tools:
        known = f"the tools are {', '.join(tools)}" if tools else "there are no tools"
        raise ValueError(f"there is no tool {brief(name)!r}; {known}")


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


class LlamaJson(Format):
    """`{"name": …, "parameters": {…}}`: a bare object that begins with its name or its arguments; the first one counts.

    What stands in front of it (`<|python_tag|>`, prose) and behind it (`; {…}`) does not count. An object that has a
    name and no arguments, such as `{"name": "Alice"}`, is no call.
    """

    name = "llama-json"
    opening = re.compile(r'\{\s*+"(?:(?:name|parameters|arguments)"\s*+:|type"\s*+:\s*+"function")')
    closers = ("}",)
    native = True
    unclosed = "the object is never closed, or too large"

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        return closing(text, opening.start(), _MARKS)

    def _prose(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where an object ends that has no arguments and does not say that it is a call: it is data."""
        if (end := self._end(text, opening)) is None:
            return None
        source = text[opening.start() : end]
        try:
            value = json.loads(source)
        except (ValueError, RecursionError):
            return None if _ARGUMENTS.search(source) else end
        is_call = value.keys() & {"parameters", "arguments"} or value.get("type") == "function"
        return None if is_call else end

    def _inside(self, text: str, opening: re.Match[str], end: int) -> tuple[int, int] | None:
        return _in_object(text, opening.start(), end)

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        return read_json_call(
            text[opening.start() :], "the object", ("parameters", "arguments"), tools
        )

    def _spell(self, call: ToolCall) -> str:
        return spell_json_call(call, "parameters")


def _in_object(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return what stands between the braces of the arguments of a call as JSON, which is all of `text[start:end]`."""
    if (found := _ARGUMENTS.search(text, start, end)) is None:
        return None
    body = text[found.end() : end].rstrip().removesuffix("}").rstrip().removesuffix("}")
    return found.end(), found.end() + len(body)


def read_json_call(source: str, what: str, keys: tuple[str, ...], tools: Sequence[str]) -> ToolCall:
    """Return the call `{"name": …, KEY: {…}}`, where KEY is the first of `keys` that the object has.

    The arguments may also be a string that holds a JSON object, as some models write it. Raises ValueError.
    """
    form = f'{{"name": ..., "{keys[0]}": {{...}}}}'
    if not isinstance(call := load_json(source, what), dict):
        raise ValueError(f"expected {form}, got {_kind(call)}")
    name, key = call.get("name"), next((key for key in keys if key in call), keys[0])
    if not isinstance(name, str):
        raise ValueError(f'"name" must be a string; expected {form}')
    check_tool(name, tools)
    if isinstance(arguments := call.get(key), str):
        arguments = load_json(arguments, f'"{key}"')
    if not isinstance(arguments, dict):
        found = _kind(arguments) if key in call else "missing"
        raise ValueError(f'"{key}" must be an object, it is {found}; expected {form}')
    return ToolCall(name, arguments)


def spell_json_call(call: ToolCall, key: str) -> str:
    """Return the object on one line; `</` is escaped so that no argument can close a tag or a thought."""
    body = json.dumps({"name": call.name, key: call.arguments}, ensure_ascii=False, allow_nan=False)
    return body.replace("</", "<\\/")


def load_json(source: str, what: str) -> Any:
    """Return the value of a JSON text; raises ValueError where it is none, or its numbers do not fit."""
    try:
        return json.loads(source, parse_constant=refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{what} is not valid JSON ({reason})") from None


def _finite(digits: str) -> float:
    if not isfinite(value := float(digits)):
        raise ValueError("a number is too large")
    return value


def _kind(value: Any) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")
