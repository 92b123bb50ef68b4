"""What a format of tool calls is, and what was read of a text.

A format is total: any string gives a call, a sentence that tells the agent what is wrong, or neither. It reads up to
the end of the first call, in time linear in the text. What stands inside a thought is no call, and the end of a thought
that is spelled in a call's arguments is part of them.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from ..checks import brief
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
