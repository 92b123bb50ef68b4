"""An agent's thoughts: the marks between which models write them, and a text without them.

A thought is no call, no action and no answer; the text outside of thoughts is what the agent says.
Thoughts of one spelling may nest. A chat template may have opened the first thought in the prompt,
so that only its end is in the text: then everything in front of that end is thought. If a thought
never ends, nothing is said.

Three functions read a text: `without_thoughts` gives what is said, `outside_thoughts` the same with
all blanks, `thought_marks` the places of the marks.
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
        end: The offset behind its last character.
        stop: Of an opening mark, the offset behind the end of its thought; None if that never ends.
    """

    opens: bool
    start: int
    end: int
    stop: int | None


class Scanner(NamedTuple):
    """Finds the marks that begin with one character.

    Args:
        first: That character.
        hints: Words of which each such mark contains one. They are searched for first, since most
            texts contain no thought, and graders and call formats look at every one of them.
        pattern: Matches a mark. Its one named group is `open_SPELLING` or `end_SPELLING`.
    """

    first: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _pattern_of_marks(first: str) -> re.Pattern[str]:
    """Compile a pattern of all marks that begin with a character, with a named group for each."""
    alternatives = []
    for name, spelling in SPELLINGS.items():
        if spelling.first == first:
            alternatives.append(f"(?P<open_{name}>{spelling.opening})")
            alternatives.append(f"(?P<end_{name}>{spelling.end})")
    return re.compile(f"{re.escape(first)}(?:{'|'.join(alternatives)})")


_SCANNERS = (
    Scanner(
        first="<",
        hints=("hink", "hought", "HINK", "HOUGHT", "analysis<"),
        pattern=_pattern_of_marks("<"),
    ),
    Scanner(first="[", hints=("THINK]",), pattern=_pattern_of_marks("[")),
    Scanner(first="◁", hints=("think▷",), pattern=_pattern_of_marks("◁")),
)


class MarkMeaning(NamedTuple):
    """Of which spelling a mark is, and whether it opens a thought or ends one."""

    spelling: str
    opens: bool


# The meaning of the named groups of the scanners' patterns.
_MEANINGS: dict[str | None, MarkMeaning] = {}
for _name in SPELLINGS:
    _MEANINGS[f"open_{_name}"] = MarkMeaning(_name, opens=True)
    _MEANINGS[f"end_{_name}"] = MarkMeaning(_name, opens=False)

_ANSWER_TAG = re.compile(r"<(?P<slash>/?)(?P<name>answer|solution|action)>")
_ANSWER_ENDS = ("</answer>", "</solution>", "</action>")


class AnswerSpan(NamedTuple):
    """Where a marked answer, such as `<answer>4</answer>`, begins and ends in a text."""

    start: int
    end: int


def without_thoughts(text: str) -> str:
    """Return what a text says: the part outside of its thoughts, stripped of blanks around it.

    A text without thoughts is returned as it is. The result is empty if the last thought never
    ends. A mark inside of a whole `<answer>…</answer>`, `<solution>…</solution>` or
    `<action>…</action>` is no mark but a part of what is said there.
    """
    said = outside_thoughts(text)
    if said is None:
        return text
    return said.strip()


def outside_thoughts(text: str) -> str | None:
    """Return a text without its thoughts, with all blanks; None if it has no thoughts."""
    marks = thought_marks(text)
    if not marks:
        return None
    answers = _find_answers(text)
    said: list[str] = []
    position = 0  # the text in front of it has been read
    answer_index = 0  # of the first answer that may contain the next mark
    for mark in marks:
        # Pass over answers that began inside of a thought, and those that ended before this mark.
        while answer_index < len(answers) and (
            answers[answer_index].start < position or answers[answer_index].end <= mark.start
        ):
            answer_index += 1
        in_answer = answer_index < len(answers) and answers[answer_index].start < mark.start
        in_thought = mark.start < position
        if in_thought or in_answer:
            continue
        if not mark.opens:
            # The prompt opened this thought, so everything in front of its end is thought.
            said = []
            position = mark.end
        elif mark.stop is None:
            return ""
        else:
            said.append(text[position : mark.start])
            position = mark.stop
    if position == 0:
        return None  # all marks are parts of answers
    said.append(text[position:])
    return "".join(said)


def end_of_last_thought(text: str) -> int:
    """Return the offset behind the last mark that ends a thought; 0 if there is none."""
    return max((mark.end for mark in thought_marks(text) if not mark.opens), default=0)


def thought_marks(text: str) -> list[Mark]:
    """Return the marks of thoughts in a text, in order. The time is linear in the text's length."""
    matches = _find_marks(text)
    if not matches:
        return []
    stops: dict[int, int] = {}  # where thoughts end, by the index of the opening match
    # By spelling, the indices of opening matches whose own end has not come yet: a stack, for
    # nesting.
    unclosed: dict[str, list[int]] = {}
    # By spelling, the indices of opening matches behind which no end at all has come yet.
    endless: dict[str, list[int]] = {}
    for index, match in enumerate(matches):
        spelling, opens = _MEANINGS[match.lastgroup]
        if opens:
            unclosed.setdefault(spelling, []).append(index)
            endless.setdefault(spelling, []).append(index)
            continue
        # A model may repeat the opening of its chat template: `<think><think>…</think>`. The outer
        # opening has no end of its own, so for now every opening shares the first end behind it.
        for opening_index in endless.pop(spelling, ()):
            stops[opening_index] = match.end()
        if unclosed.get(spelling):
            innermost_index = unclosed[spelling].pop()
            stops[innermost_index] = match.end()

    marks = []
    has_harmony_thought = HARMONY in unclosed
    for index, match in enumerate(matches):
        spelling, opens = _MEANINGS[match.lastgroup]
        # Other models end their turns with harmony's end mark, and no chat template opens a thought
        # in harmony: an end without an opening is no mark.
        if spelling == HARMONY and not has_harmony_thought:
            continue
        marks.append(Mark(opens, match.start(), match.end(), stops.get(index)))
    return marks


def _find_marks(text: str) -> list[re.Match[str]]:
    """Return the matches of all marks in a text, in order."""
    # Written out, since it is the only test that most texts need.
    if not ("<" in text or "[" in text or "◁" in text):
        return []
    matches: list[re.Match[str]] = []
    for scanner in _SCANNERS:
        if scanner.first in text and any(hint in text for hint in scanner.hints):
            matches += scanner.pattern.finditer(text)
    matches.sort(key=re.Match.start)
    return matches


def _find_answers(text: str) -> list[AnswerSpan]:
    """Return each marked answer of a text that contains no other marked answer, in order."""
    answers: list[AnswerSpan] = []
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
