"""Thoughts (reasoning) in a model's text: the marks around them, and the text without them.

A thought is no call, no action and no answer; only the text outside of thoughts counts. Thoughts of
one spelling may nest. A chat template may have opened the first thought in the prompt, so that only
its end is in the text: then everything before that end belongs to the thought. If a thought never
ends, the whole text counts as thought.

Three functions read a text: `without_thoughts` and `outside_thoughts` return it without thoughts,
stripped or with all whitespace, and `thought_marks` finds the marks.
"""

import re
from typing import NamedTuple

HARMONY = "harmony"


class Spelling(NamedTuple):
    """How a family of models opens and ends a thought.

    Args:
        first: The character with which both marks begin.
        opening: A regex of the rest of the mark that opens a thought.
        end: A regex of the rest of the mark that ends it.
    """

    first: str
    opening: str
    end: str


SPELLINGS = {
    # DeepSeek-R1, Qwen3, GLM, Kimi K2, …
    "think": Spelling("<", opening="(?i:think>)", end="(?i:/think>)"),
    "thinking": Spelling("<", opening="(?i:thinking>)", end="(?i:/thinking>)"),
    "thought": Spelling("<", opening="(?i:thought>)", end="(?i:/thought>)"),
    # Seed-OSS
    "seed": Spelling("<", opening="seed:think>", end="/seed:think>"),
    # Sky-T1, OpenThinker
    "begin": Spelling("<", opening=r"\|begin_of_thought\|>", end=r"\|end_of_thought\|>"),
    # gpt-oss. The end of a thought may be followed by the header of the message that is said.
    HARMONY: Spelling(
        "<",
        opening=r"\|channel\|>analysis<\|message\|>",
        end=r"\|end\|>(?:<\|start\|>assistant)?(?:<\|channel\|>final<\|message\|>)?",
    ),
    "magistral": Spelling("[", opening=r"THINK\]", end=r"/THINK\]"),
    "kimi": Spelling("◁", opening="think▷", end="/think▷"),
}


class Mark(NamedTuple):
    """A mark in a text that opens or ends a thought.

    Args:
        opens: Whether it opens a thought.
        start: The offset of its first character.
        end: The offset after its last character.
        thought_end: If it opens a thought, the offset after the mark that ends the thought; None if
            the thought never ends. None as well if it ends a thought.
    """

    opens: bool
    start: int
    end: int
    thought_end: int | None


class Scanner(NamedTuple):
    """Finds the marks that begin with one character.

    Args:
        first: That character.
        hints: Strings of which each such mark contains one. They are searched for first, because
            that is fast, graders and call formats read every text, and most contain no thought.
        pattern: Matches a mark. Its one named group is `open_SPELLING` or `end_SPELLING`.
    """

    first: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _compile_mark_pattern(first: str) -> re.Pattern[str]:
    """Compile a pattern that matches all marks that begin with a character.

    For each spelling it has two named groups, such as `open_think` and `end_think`; the one that
    matched tells the meaning of the mark.
    """
    alternatives = []
    for name, spelling in SPELLINGS.items():
        if spelling.first == first:
            alternatives.append(f"(?P<open_{name}>{spelling.opening})")
            alternatives.append(f"(?P<end_{name}>{spelling.end})")
    return re.compile(f"{re.escape(first)}(?:{'|'.join(alternatives)})")


_MARK_SCANNERS = (
    Scanner(
        first="<",
        hints=("hink", "hought", "HINK", "HOUGHT", "analysis<"),
        pattern=_compile_mark_pattern("<"),
    ),
    Scanner(first="[", hints=("THINK]",), pattern=_compile_mark_pattern("[")),
    Scanner(first="◁", hints=("think▷",), pattern=_compile_mark_pattern("◁")),
)


class MarkMeaning(NamedTuple):
    """Of which spelling a mark is, and whether it opens a thought or ends one."""

    spelling: str
    opens: bool


# The meaning of the named groups of the scanners' patterns.
_MEANING_OF_GROUP: dict[str | None, MarkMeaning] = {}
for _name in SPELLINGS:
    _MEANING_OF_GROUP[f"open_{_name}"] = MarkMeaning(_name, opens=True)
    _MEANING_OF_GROUP[f"end_{_name}"] = MarkMeaning(_name, opens=False)

_HARMONY_OPENING = f"open_{HARMONY}"  # the named group

_ANSWER_TAG = re.compile(r"<(?P<slash>/?)(?P<name>answer|solution|action)>")
_ANSWER_ENDS = ("</answer>", "</solution>", "</action>")


class AnswerSpan(NamedTuple):
    """Where a marked answer, such as `<answer>4</answer>`, begins and ends in a text."""

    start: int
    end: int


def without_thoughts(text: str) -> str:
    """Return a text without its thoughts, stripped of whitespace at both ends.

    A text without thoughts is returned as it is, not stripped. The result is empty if the last
    thought never ends. A mark inside a complete `<answer>…</answer>`, `<solution>…</solution>` or
    `<action>…</action>` is ordinary text.
    """
    remaining_text = outside_thoughts(text)
    if remaining_text is None:
        return text
    return remaining_text.strip()


def outside_thoughts(text: str) -> str | None:
    """Return a text without its thoughts, with all whitespace; None if it has no thoughts.

    Marks inside a complete answer, such as `<answer>…</answer>`, are ordinary text.
    """
    marks = thought_marks(text)
    if not marks:
        return None
    answers = _find_answers(text)
    outside_pieces: list[str] = []
    position = 0  # where the last thought ended
    answer_index = 0  # of the first answer that may contain the next mark
    for mark in marks:
        # Skip answers that began inside a thought, and those that ended before this mark.
        while answer_index < len(answers):
            answer = answers[answer_index]
            if answer.start >= position and answer.end > mark.start:
                break
            answer_index += 1
        is_in_answer = answer_index < len(answers) and answers[answer_index].start < mark.start
        is_in_thought = mark.start < position
        if is_in_thought or is_in_answer:
            continue
        if not mark.opens:
            # The prompt opened this thought, so everything before its end belongs to it.
            outside_pieces = []
            position = mark.end
        elif mark.thought_end is None:
            return ""
        else:
            outside_pieces.append(text[position : mark.start])
            position = mark.thought_end
    if position == 0:
        return None  # all marks are inside answers
    outside_pieces.append(text[position:])
    return "".join(outside_pieces)


def end_of_last_thought(text: str) -> int:
    """Return the offset after the last mark that ends a thought; 0 if there is none."""
    return max((mark.end for mark in thought_marks(text) if not mark.opens), default=0)


def thought_marks(text: str) -> list[Mark]:
    """Return the marks in a text that open or end thoughts, in order."""
    matches = _find_marks(text)
    if not matches:
        return []
    thought_ends = _find_thought_ends(matches)
    has_harmony_thought = _HARMONY_OPENING in [match.lastgroup for match in matches]
    marks = []
    for index, match in enumerate(matches):
        spelling, opens = _MEANING_OF_GROUP[match.lastgroup]
        # In harmony an end without an opening is no mark: other models end their turns with the
        # same string, and no chat template opens a thought in harmony in the prompt.
        if spelling == HARMONY and not has_harmony_thought:
            continue
        marks.append(Mark(opens, match.start(), match.end(), thought_ends.get(index)))
    return marks


def _find_thought_ends(matches: list[re.Match[str]]) -> dict[int, int]:
    """Find for each mark that opens a thought where the thought ends, in linear time.

    Args:
        matches: The matches of all marks in a text, in order.

    Returns:
        The offset after the mark that ends the thought, by the index of the match that opens it. A
        thought that never ends is missing.
    """
    thought_ends: dict[int, int] = {}
    # Indices of opening matches, by spelling: those that no end is paired with yet (a stack, since
    # thoughts may nest), and those after which no end has come at all.
    unpaired: dict[str, list[int]] = {}
    before_any_end: dict[str, list[int]] = {}
    for index, match in enumerate(matches):
        spelling, opens = _MEANING_OF_GROUP[match.lastgroup]
        if opens:
            unpaired.setdefault(spelling, []).append(index)
            before_any_end.setdefault(spelling, []).append(index)
            continue
        # A model may repeat the opening of its chat template: `<think><think>…</think>`. Then the
        # outer opening gets no end that is paired with it. So every opening first gets the next end
        # of its spelling, and a later end that is paired with it replaces that one.
        for opening_index in before_any_end.pop(spelling, ()):
            thought_ends[opening_index] = match.end()
        if unpaired.get(spelling):
            innermost_index = unpaired[spelling].pop()
            thought_ends[innermost_index] = match.end()
    return thought_ends


def _find_marks(text: str) -> list[re.Match[str]]:
    """Return the matches of the marks of all spellings in a text, in order."""
    # The first characters of all marks. Most texts contain none of them, and this is fastest.
    if not ("<" in text or "[" in text or "◁" in text):
        return []
    matches: list[re.Match[str]] = []
    for scanner in _MARK_SCANNERS:
        if scanner.first in text and any(hint in text for hint in scanner.hints):
            matches += scanner.pattern.finditer(text)
    matches.sort(key=re.Match.start)
    return matches


def _find_answers(text: str) -> list[AnswerSpan]:
    """Return where marked answers, such as `<answer>4</answer>`, are in a text, in order.

    An end tag is paired with the last opening tag before it, if both have the same name. So of
    nested answers only the innermost is found.
    """
    answers: list[AnswerSpan] = []
    # Most texts contain no answer, and this test is faster than the pattern.
    if not any(end in text for end in _ANSWER_ENDS):
        return answers
    opening: re.Match[str] | None = None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag["slash"]:
            opening = tag
        elif opening is not None and opening["name"] == tag["name"]:
            answers.append(AnswerSpan(opening.start(), tag.end()))
            opening = None
    return answers
