"""What a format of tool calls is, and what all formats share.

A format is total: any string gives a call, a sentence that tells the agent what is wrong, or neither. It reads up to
the end of the first call, in time linear in the text. What stands inside `<think>…</think>` is no call.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

THOUGHT = "<think>"
END_OF_THOUGHT = "</think>"
DEEPEST = 64  # brackets of a call nest at most this deep
LARGEST = 10_000  # and a call holds at most this many; both bound the time that one call can take


@dataclass(frozen=True)
class ToolCall:
    """A call by name; the arguments are not yet checked against the tool's schema."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Parsed:
    """What a completion says: a call, an error for the agent, or (both None) an answer.

    `text` is the completion up to the end of the first call, well-formed or not, or of the final answer where the
    format marks one; the rest is to be dropped.
    """

    call: ToolCall | None
    error: str | None
    text: str


class Format(ABC):
    """One way of writing calls and reading results.

    Calls are blocks: where one opens is found by a pattern, where it ends follows from its text. `parse` and `complete`
    look at the same block, so that generation stops exactly where a call is first read.

    Attributes:
        name: The key in `FORMATS`.
        opening: Finds where a call opens; made by `opens`.
        closers: Texts that can end a call: where none of them has just been written, `complete` does not change.
        native: Whether chat templates show the tools' schemas by themselves.
    """

    name: ClassVar[str]
    opening: ClassVar[re.Pattern[str]]
    closers: ClassVar[tuple[str, ...]]
    native: ClassVar[bool]

    def parse(self, text: str, tools: Sequence[str]) -> Parsed:
        """Return the first call; never raises. `tools` are the names that exist."""
        opening = self._first(text)
        if opening is None:
            return Parsed(None, None, text)
        end = self._end(text, opening)
        if end is None:
            return Parsed(None, _malformed(self._unclosed(opening)), text)
        text = text[:end]
        try:
            return Parsed(self._read(text, opening, tools), None, text)
        except ValueError as problem:
            return Parsed(None, _malformed(str(problem)), text)

    def complete(self, text: str) -> bool:
        """Return whether `text` holds a complete first call, well-formed or not, or final answer: the turn is over."""
        opening = self._first(text)
        return opening is not None and self._end(text, opening) is not None

    def begins(self, text: str) -> int | None:
        """Return where the first call, or the final answer that the format marks, begins; None where there is none."""
        opening = self._first(text)
        return None if opening is None else opening.start()

    def render(self, call: ToolCall) -> str:
        """Return the text of a call; raises ValueError for one that would not be read back as it is."""
        text = self._spell(call)
        if self.parse(text, (call.name,)).call != call:
            raise ValueError(f"the format {self.name} cannot spell {call}; use another format")
        return text

    def observe(self, text: str, tool: str | None) -> tuple[str, str]:
        """Return role and content of the message that carries what `tool` answered (None: the call was malformed).

        Chat templates that know tools have a frame of their own for the role `tool`.
        """
        return "tool", text

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Return what the system prompt must say so that the agent knows its tools; empty when `native`.

        Raises ValueError where the format cannot call one of them.
        """
        return ""

    def _first(self, text: str) -> re.Match[str] | None:
        """Return the first opening outside thoughts.

        A `</think>` before any `<think>` ends a thought that the chat template opened in the prompt.
        """
        position = 0
        thought_end = text.find(END_OF_THOUGHT)
        if thought_end >= 0 and THOUGHT not in text[:thought_end]:
            position = thought_end + len(END_OF_THOUGHT)
        while (found := self.opening.search(text, position)) and found[0] == THOUGHT:
            thought_end = text.find(END_OF_THOUGHT, found.end())
            if thought_end < 0:
                return None
            position = thought_end + len(END_OF_THOUGHT)
        return found

    @abstractmethod
    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where the block ends; None while it does not. What comes behind the end never changes it."""

    @abstractmethod
    def _unclosed(self, opening: re.Match[str]) -> str | None:
        """Return what is wrong with a block that does not end; None where it is no call."""

    @abstractmethod
    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall | None:
        """Return the call of the block that ends with `text`; raises ValueError that says what is wrong with it."""

    @abstractmethod
    def _spell(self, call: ToolCall) -> str:
        """Return the text of a call, where the format can spell it; else anything, or a ValueError."""


def opens(pattern: str) -> re.Pattern[str]:
    """Compile what opens a call; it finds the openings of thoughts, too."""
    return re.compile(f"{THOUGHT}|{pattern}", re.DOTALL)


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
        raise ValueError(f"there is no tool {shorten(name)!r}; {known}")


def shorten(text: str) -> str:
    """Return at most 60 characters of `text`."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def _malformed(problem: str | None) -> str | None:
    return None if problem is None else f"malformed tool call: {problem}"


_OPEN = frozenset("([{")
_CLOSE = frozenset(")]}")
