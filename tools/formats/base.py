"""What a format of tool calls is: `Format`, the base class, and `Parsed`, what it reads.

A format reads any string as a call, as an error that tells the agent what is wrong, or as neither.
It reads up to the end of the first call, in time linear in the text. A call inside a thought does
not count. If a call's arguments spell the end of a thought, that is part of the arguments.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from ..checks import shorten
from ..thoughts import Mark, outside_thoughts, thought_marks, without_thoughts

# Limits of the brackets of a call, which bound the time that one call can take.
DEEPEST = 64  # levels of nesting
LARGEST = 10_000  # brackets and strings in all
_OPENING_BRACKETS = frozenset("([{")
_CLOSING_BRACKETS = frozenset(")]}")
# The blocks in which formats and chat templates put results.
_RESULT_TAGS = (
    r"(?:tool|function)(?!_?calls?\b)\w*|(?:information|result|response|observation|output)s?"
)
# What could end the block of a result: a fence, or the closing tag of a block; the match ends where
# a backslash breaks it. U+1FEF is a backtick after Unicode normalization. Backslashes that are
# there already are skipped by lookahead, so that escaping twice adds two.
_BLOCK_END = re.compile(
    rf"[`\u1fef]{{2}}(?=\\*[`\u1fef])|[<\[]\s*+(?=\\*/\s*+(?:{_RESULT_TAGS})\b)", re.IGNORECASE
)
# The key of a JSON call's arguments and the brace behind it. A string that is not closed reaches to
# the end, so that no brace in it counts before its end is written.
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*+:\s*+\{?')


@dataclass(frozen=True)
class ToolCall:
    """A call by name; the arguments are not yet checked against the tool's schema."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Parsed:
    """What a completion says: a call, an error for the agent, or (both None) an answer.

    `text` is the completion up to the end of the first call, well-formed or not, or of a marked
    final answer.
    """

    call: ToolCall | None
    error: str | None
    text: str


class Format(ABC):
    """One way of writing calls and reading results.

    A call is a block of text: a pattern finds where it opens, and its own text decides where it
    ends. `parse` and `complete` look at the same block, so that generation stops exactly where a
    call is first read.

    A subclass sets the class variables, reads the inside of a block in `_read_call` and writes one
    in `_spell_call`. It overrides the other private methods if its blocks need that.
    """

    name: ClassVar[str]  # the key in `FORMATS`
    opening: ClassVar[re.Pattern[str]]  # finds where a block opens
    closers: ClassVar[
        tuple[str, ...]
    ]  # the texts that can end a block: `complete` changes only behind one
    native: ClassVar[bool] = False  # whether chat templates show the tools' schemas by themselves
    unclosed: ClassVar[
        str
    ]  # what is wrong with a block that does not end; `{}` stands for its opening

    def parse(self, text: str, tools: Sequence[str]) -> Parsed:
        """Return the first call of a completion; never raises.

        Args:
            text: The completion.
            tools: The names of the tools that exist.
        """
        opening = self._find_opening(text)
        if opening is None:
            return Parsed(None, None, text)
        call: ToolCall | None = None
        problem: str | None = None
        end = self._find_end(text, opening)
        if end is None:
            problem = self._describe_unclosed(text, opening)
        else:
            text = text[:end]
            try:
                call = self._read_call(text, opening, tools)
            except ValueError as error:
                problem = str(error)
        return Parsed(call, problem and f"malformed tool call: {problem}", text)

    def complete(self, text: str) -> bool:
        """Return whether the turn is over: `text` has a whole call or marked final answer."""
        opening = self._find_opening(text)
        return opening is not None and self._find_end(text, opening) is not None

    def find_start(self, text: str) -> int | None:
        """Return where the first call or marked final answer begins; None if there is none."""
        opening = self._find_opening(text)
        return None if opening is None else opening.start()

    def find_arguments(self, text: str) -> tuple[int, int] | None:
        """Return start and end of the arguments of the first call, or of the marked answer.

        None if there is no call, or it does not end or has no arguments.
        """
        opening = self._find_opening(text)
        if opening is None:
            return None
        end = self._find_end(text, opening)
        return None if end is None else self._find_arguments_in(text, opening, end)

    def without_thoughts(self, text: str) -> str:
        """Return a completion without its thoughts, up to the end of its first call.

        A text without thoughts stays as it is. Marks of thoughts inside a call's arguments stay,
        and so does all behind a whole answer that the format marks.
        """
        if not thought_marks(text):
            return text
        opening = self._find_opening(text)
        if opening is None:
            return without_thoughts(text)
        end = self._find_end(text, opening)
        is_call = self._describe_unclosed(text, opening) is not None  # and no marked answer
        if not is_call and end is None:
            return without_thoughts(text)
        before = text[: opening.start()]
        said_before = outside_thoughts(before)  # None: there are no thoughts
        if said_before is None:
            said_before = before
        block_end = end if is_call else None
        return said_before + text[opening.start() : block_end]

    def render(self, call: ToolCall) -> str:
        """Return the text of a call; raises ValueError if it would not be read back the same."""
        text = self._spell_call(call)
        if self.parse(text, (call.name,)).call != call:
            raise ValueError(f"the format {self.name} cannot spell {call}; use another format")
        return text

    def observe(self, text: str, tool: str | None) -> tuple[str, str]:
        """Return the message with the result of a tool.

        Args:
            text: The result. What could end its block is escaped.
            tool: The tool's name; None if the call was malformed.

        Returns:
            The message's role and content.
        """
        return self._frame_result(escape_block_ends(text), tool)

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        """Return what a system prompt says of the tools; empty if the format is `native`.

        Args:
            schemas: The tools' JSON schemas.

        Raises:
            ValueError: The format cannot call one of the tools.
        """
        return ""

    def _frame_result(self, text: str, tool: str | None) -> tuple[str, str]:
        """Return role and content of the message with an escaped result (see `observe`)."""
        return "tool", text  # chat templates that know tools put a frame around this role

    def _find_opening(self, text: str) -> re.Match[str] | None:
        """Find the first opening of a block outside thoughts.

        Thoughts may open and end in the text, and the chat template may have opened one in the
        prompt, whose end alone is then in the text.
        """
        marks = thought_marks(text)
        next_mark = 0  # index of the first mark that does not begin before `position`
        position = 0  # all in front of it has been read
        prompt_thought_ended = False  # whether a thought that the prompt opened would be over here
        opening = self.opening.search(text)
        while opening is not None:
            while next_mark < len(marks) and marks[next_mark].start < position:
                next_mark += 1
            mark = marks[next_mark] if next_mark < len(marks) else None
            if mark is not None and mark.start < opening.start():
                # A thought opens or ends in front of the opening: continue behind the thought.
                if mark.opens and mark.thought_end is None:
                    return None
                position = mark.thought_end or mark.end
                prompt_thought_ended = True
            elif (prose_end := self._find_prose_end(text, opening)) is not None:
                position = prose_end
            elif prompt_thought_ended or mark is None or mark.opens:
                return opening
            else:
                # The next mark ends a thought that the text did not open.
                thought_end = self._find_prompt_thought_end(text, opening, marks[next_mark:])
                if thought_end is None:
                    return opening
                position = thought_end
                prompt_thought_ended = True
            if opening.start() < position:
                opening = self.opening.search(text, position)
        return None

    def _find_prompt_thought_end(
        self, text: str, opening: re.Match[str], marks: Sequence[Mark]
    ) -> int | None:
        """Return where the thought ends that began in the prompt and only mentions a call.

        Args:
            text: The completion.
            opening: Where the block opens that is in question.
            marks: The marks of thoughts behind it; the first ends a thought.

        Returns:
            The end of the thought; None if the block is a call, with the marks in its arguments.
        """
        end = self._find_end(text, opening)
        if end is None or not self._is_in_arguments(text, opening, end, marks[0]):
            return marks[0].end
        # All marks up to the end of the block are in its arguments. The one behind may end a
        # thought that holds all of the block.
        for mark in marks:
            if mark.start >= end:
                return None if mark.opens else mark.end
        return None

    def _find_prose_end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where a block ends that opens as a call but is none.

        None if it is a call, or never ends.
        """
        return None

    def _is_in_arguments(self, text: str, opening: re.Match[str], end: int, mark: Mark) -> bool:
        """Return whether a mark that ends a thought is in the arguments of the block, or behind it.

        If not, the mark ends a thought that began in the prompt, and in which the opening was only
        mentioned: then the real call opens between the mark and the end of what looked like one
        block.

        Args:
            text: The completion.
            opening: Where the block opens.
            end: Where it ends.
            mark: The mark, which begins behind the opening.
        """
        return mark.end <= end and not self._opens_between(text, mark.end, end)

    def _opens_between(self, text: str, start: int, end: int) -> bool:
        opening = self.opening.search(text, start)
        return opening is not None and opening.start() < end

    def _closer_of(self, opening: re.Match[str]) -> str:
        """Return the text that ends the block, for formats in which it is a fixed one."""
        return self.closers[0]

    def _find_end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where the block ends; None while it does not.

        Text behind the end must never change it.
        """
        closer = self._closer_of(opening)
        closer_start = text.find(closer, opening.end())
        return None if closer_start < 0 else closer_start + len(closer)

    def _find_arguments_in(
        self, text: str, opening: re.Match[str], end: int
    ) -> tuple[int, int] | None:
        """Return start and end of the arguments in the block that ends at `end`, if it has any."""
        return opening.end(), end - len(self._closer_of(opening))

    def _describe_unclosed(self, text: str, opening: re.Match[str]) -> str | None:
        """Return what is wrong with a block if it does not end; None if it is an answer."""
        return self.unclosed.format(opening[0].rstrip())

    @abstractmethod
    def _read_call(
        self, text: str, opening: re.Match[str], tools: Sequence[str]
    ) -> ToolCall | None:
        """Return the call of a block, None for a marked answer.

        Args:
            text: The completion up to the end of the block.
            opening: Where the block opens.
            tools: The names of the tools that exist.

        Raises:
            ValueError: The call is malformed; the message tells the agent how.
        """

    @abstractmethod
    def _spell_call(self, call: ToolCall) -> str:
        """Return the text of a call.

        For a call that the format cannot spell, returns anything or raises ValueError.
        """


def escape_block_ends(text: str) -> str:
    r"""Escape a result so that nothing in it ends its block.

    `</result>` becomes `<\/result>`, and three backticks ``\`.

    This also holds after NFKC normalization, which tokenizers do and which turns, say, full-width
    signs into ASCII. There is exactly one backslash more than before, so the original can be
    recovered.
    """
    if unicodedata.is_normalized("NFKC", text):  # as ASCII is
        return _BLOCK_END.sub(r"\g<0>\\", text)
    escape_at = {match.end() for match in _BLOCK_END.finditer(text)}
    # The block ends of the normalized text, at the characters of the original from which they came.
    normalized: list[str] = []
    origins: list[int] = []  # for each normalized character, the index of the original one
    for index, character in enumerate(text):
        characters = unicodedata.normalize("NFKC", character)
        normalized.append(characters)
        origins += [index] * len(characters)
    for match in _BLOCK_END.finditer("".join(normalized)):
        escape_at.add(origins[match.end() - 1] + 1)
    pieces: list[str] = []
    position = 0
    for end in sorted(escape_at):
        pieces += [text[position:end], "\\"]
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def find_closing_bracket(text: str, start: int, tokens: re.Pattern[str]) -> int | None:
    """Return the index behind the bracket that closes the one at `start`.

    Args:
        text: The text.
        start: Where a bracket opens.
        tokens: Finds brackets, and whole strings, in which brackets do not count.

    Returns:
        The index; None if no bracket closes it, or that comes after `LARGEST` tokens or a nesting
        of `DEEPEST`.
    """
    depth = 0
    for token in islice(tokens.finditer(text, start), LARGEST):
        if token[0] in _OPENING_BRACKETS:
            depth += 1
            if depth > DEEPEST:
                return None
        elif token[0] in _CLOSING_BRACKETS:
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def check_tool(name: str, tools: Sequence[str]) -> None:
    """Raise ValueError, with a message for the agent, if no tool has this name."""
    if name in tools:
        return
    known = f"the tools are {', '.join(tools)}" if tools else "there are no tools"
    raise ValueError(f"there is no tool {shorten(name)!r}; {known}")
