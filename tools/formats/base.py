"""What a format of tool calls is: `Format`, the base class, and `Parsed`, what it reads.

A format reads any string as a call, as an error that tells the agent what is wrong, or as neither.
It reads up to the end of the first call, in time linear in the text. A call inside a thought does
not count. If a call's arguments spell the end of a thought, that is part of the arguments.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from ..checks import shorten
from ..thoughts import Mark, outside_thoughts, thought_marks, without_thoughts

# Limits of a call, which bound the time that reading it can take.
MAX_BRACKET_DEPTH = 64
MAX_LEXICAL_TOKENS = 10_000  # brackets and strings in all
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
# The key of a JSON call's arguments and the brace behind it.
ARGUMENTS_KEY = re.compile(r'"(?:arguments|parameters)"\s*+:\s*+\{?')


@dataclass(frozen=True)
class ToolCall:
    """A call by name; the arguments are not yet checked against the tool's schema."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Parsed:
    """What a completion contains: a call, a malformed call, or (both None) an answer.

    Args:
        call: The first call.
        error: What is wrong with the first call, for the agent.
        text: The completion up to the end of the first call, well-formed or not, or of a marked
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
    # The texts that can end a block. `complete` can become true only behind one of them.
    closers: ClassVar[tuple[str, ...]]
    native: ClassVar[bool] = False  # whether chat templates show the tools' schemas by themselves
    # The error of a block that does not end. `{}` stands for its opening.
    unclosed: ClassVar[str]

    def parse(self, text: str, tools: Sequence[str]) -> Parsed:
        """Read the first call of a completion; never raises.

        Args:
            text: The completion.
            tools: The names of the tools that exist.
        """
        opening = self._find_opening(text)
        if opening is None:
            return Parsed(call=None, error=None, text=text)
        call: ToolCall | None = None
        problem: str | None = None
        end = self._find_end(text, opening)
        if end is not None:
            text = text[:end]
            try:
                call = self._read_call(text, opening, tools)
            except ValueError as error:
                problem = str(error)
        elif not self._is_answer(opening):
            problem = self._describe_unclosed(text, opening)
        error_for_agent = f"malformed tool call: {problem}" if problem else None
        return Parsed(call=call, error=error_for_agent, text=text)

    def complete(self, text: str) -> bool:
        """Return whether the turn is over: `text` has a whole call or marked final answer."""
        opening = self._find_opening(text)
        return opening is not None and self._find_end(text, opening) is not None

    def find_start(self, text: str) -> int | None:
        """Return the offset of the first call or marked final answer; None if there is none."""
        opening = self._find_opening(text)
        return None if opening is None else opening.start()

    def find_arguments(self, text: str) -> tuple[int, int] | None:
        """Return where the arguments of the first call are, or the text of the marked answer.

        Returns:
            The offset of their first character and the offset behind their last one; None if there
            is no call, or if it does not end or has no arguments.
        """
        opening = self._find_opening(text)
        if opening is None:
            return None
        end = self._find_end(text, opening)
        if end is None:
            return None
        return self._find_arguments_in(text, opening, end)

    def without_thoughts(self, text: str) -> str:
        """Return a completion without its thoughts, up to the end of its first call.

        A completion without thoughts is returned as it is. Inside a call or a marked final answer,
        the marks of thoughts are ordinary text. The text behind a call is cut off, the text behind
        a marked answer is not.
        """
        if not thought_marks(text):
            return text
        opening = self._find_opening(text)
        if opening is None:
            return without_thoughts(text)
        end = self._find_end(text, opening)
        is_answer = self._is_answer(opening)
        if is_answer and end is None:
            return without_thoughts(text)
        before = text[: opening.start()]
        visible_before = outside_thoughts(before)
        if visible_before is None:  # there are no thoughts in front of the block
            visible_before = before
        block = text[opening.start() :] if is_answer else text[opening.start() : end]
        return visible_before + block

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
        """Find where the first call or marked final answer opens, outside thoughts.

        The text may open and end thoughts. The chat template may have opened another one in the
        prompt: of that thought the text has only the mark that ends it.

        Returns:
            The match of `opening`; None if there is no call.
        """
        marks = deque(thought_marks(text))  # without those that begin in front of `position`
        position = 0  # the text in front of it has been read
        prompt_thought_is_over = False  # whether a thought that the prompt opened has surely ended
        opening = self.opening.search(text)
        while opening is not None:
            while marks and marks[0].start < position:
                marks.popleft()
            next_mark = marks[0] if marks else None
            if next_mark is not None and next_mark.start < opening.start():
                # The mark is in front of the opening: continue behind its thought.
                if next_mark.opens and next_mark.thought_end is None:
                    return None  # the thought never ends
                position = next_mark.thought_end or next_mark.end
                prompt_thought_is_over = True
            else:
                prose_end = self._find_prose_end(text, opening)
                if prose_end is not None:
                    position = prose_end
                elif prompt_thought_is_over:
                    return opening
                else:
                    thought_end = self._find_prompt_thought_end(text, opening, marks)
                    if thought_end is None:
                        return opening
                    position = thought_end
                    prompt_thought_is_over = True
            # Search only if the opening has been passed: each search may read the whole text.
            if opening.start() < position:
                opening = self.opening.search(text, position)
        return None

    def _find_prompt_thought_end(
        self, text: str, opening: re.Match[str], marks: Sequence[Mark]
    ) -> int | None:
        """Return where a thought ends that the prompt opened and that only mentions a call.

        Args:
            text: The completion.
            opening: Where the call opens that may be a mention.
            marks: The marks of thoughts behind the opening.

        Returns:
            The offset behind the thought; None if the opening is not in such a thought, so that it
            opens a real call.
        """
        if not marks or marks[0].opens:
            return None  # no mark ends a thought that the text did not open
        call_end = self._find_end(text, opening)
        if call_end is None or not self._is_in_arguments(text, opening, call_end, marks[0]):
            return marks[0].end
        # The marks in front of the call's end are in its arguments. If the first mark behind it
        # ends a thought, then the whole call is in that thought.
        for mark in marks:
            if mark.start >= call_end:
                return None if mark.opens else mark.end
        return None

    def _find_prose_end(self, text: str, opening: re.Match[str]) -> int | None:
        """Return where a block ends that opens like a call but is none.

        None if it is a call, or never ends.
        """
        return None

    def _is_in_arguments(self, text: str, opening: re.Match[str], end: int, mark: Mark) -> bool:
        """Return whether the end mark of a thought is part of the arguments of a call.

        If not, the mark ends a thought of the prompt that only mentioned the opening. The real call
        then opens behind the mark, within what looked like a single block.

        Args:
            text: The completion.
            opening: Where the block of the call opens.
            end: Where it ends.
            mark: The mark, which begins behind the opening.
        """
        return mark.end <= end and not self._opens_between(text, mark.end, end)

    def _opens_between(self, text: str, start: int, end: int) -> bool:
        """Return whether a block opens between two offsets."""
        opening = self.opening.search(text, start)
        return opening is not None and opening.start() < end

    def _closer_of(self, opening: re.Match[str]) -> str:
        """Return the text that ends the block, for formats in which that is fixed."""
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
        """Return start and end of the arguments in a block; None if it has none.

        Args:
            text: The completion.
            opening: Where the block opens.
            end: Where it ends.
        """
        return opening.end(), end - len(self._closer_of(opening))

    def _is_answer(self, opening: re.Match[str]) -> bool:
        """Return whether a block is a marked final answer instead of a call."""
        return False

    def _describe_unclosed(self, text: str, opening: re.Match[str]) -> str:
        """Return what is wrong with the block of a call that does not end, for the agent."""
        return self.unclosed.format(opening[0].rstrip())

    @abstractmethod
    def _read_call(
        self, text: str, opening: re.Match[str], tools: Sequence[str]
    ) -> ToolCall | None:
        """Read the call of a block; return None for a marked answer.

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

        If the format cannot write the call, this may raise ValueError or return a wrong text, which
        `render` detects.
        """


def escape_block_ends(text: str) -> str:
    r"""Escape a result so that nothing in it ends its block.

    `</result>` becomes `<\/result>`, and three backticks become ``\`. Tokenizers may apply NFKC
    normalization, which turns, for example, full-width characters into ASCII. So everything is
    escaped, too, that would end the block only after normalization.

    Each end gets exactly one backslash, also where there are some already, so that the original can
    be recovered.
    """
    if unicodedata.is_normalized("NFKC", text):  # as ASCII is
        return _BLOCK_END.sub(r"\g<0>\\", text)
    insertion_offsets = {match.end() for match in _BLOCK_END.finditer(text)}
    insertion_offsets |= _find_normalized_block_ends(text)
    pieces: list[str] = []
    position = 0
    for offset in sorted(insertion_offsets):
        pieces.append(text[position:offset])
        pieces.append("\\")
        position = offset
    pieces.append(text[position:])
    return "".join(pieces)


def _find_normalized_block_ends(text: str) -> set[int]:
    """Return where backslashes have to be inserted because of the ends in the NFKC-normalized text.

    Returns:
        Offsets in the text itself, not in the normalized one.
    """
    normalized_pieces: list[str] = []
    original_indices: list[int] = []  # of each normalized character, the one it came from
    for index, character in enumerate(text):
        normalized_piece = unicodedata.normalize("NFKC", character)
        normalized_pieces.append(normalized_piece)
        original_indices += [index] * len(normalized_piece)
    offsets: set[int] = set()
    for match in _BLOCK_END.finditer("".join(normalized_pieces)):
        last_character = original_indices[match.end() - 1]
        offsets.add(last_character + 1)
    return offsets


def find_closing_bracket(text: str, start: int, tokens: re.Pattern[str]) -> int | None:
    """Return the offset behind the bracket that closes the one at `start`.

    Brackets of different kinds may close each other: readers of calls find such mistakes later.

    Args:
        text: The text.
        start: The offset of the opening bracket.
        tokens: Matches brackets and whole strings. Brackets in strings do not count.

    Returns:
        The offset; None if no bracket closes it, or if it has more than `MAX_LEXICAL_TOKENS` or
        nests more deeply than `MAX_BRACKET_DEPTH`.
    """
    depth = 0
    for token in islice(tokens.finditer(text, start), MAX_LEXICAL_TOKENS):
        if token[0] in _OPENING_BRACKETS:
            depth += 1
            if depth > MAX_BRACKET_DEPTH:
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
    existing_tools = f"the tools are {', '.join(tools)}" if tools else "there are no tools"
    raise ValueError(f"there is no tool {shorten(name)!r}; {existing_tools}")
