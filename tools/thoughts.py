"""What an agent thinks and what it says: the marks between which models write their thoughts, and a text without them.

A thought is no call, no action and no answer, wherever it stands; what stands outside of thoughts is said. Thoughts of
one spelling may nest. A chat template may have opened the first thought in the prompt, so that only its end is in the
text: all in front of that is thought. A thought that never ends leaves nothing that is said.
"""

import re
from typing import NamedTuple

# How models open a thought and end it, by the spelling's name, and the character that both begin with.
SPELLINGS = {
    "think": ("<", "(?i:think>)", "(?i:/think>)"),  # DeepSeek-R1, Qwen3, GLM, Kimi K2, …
    "thinking": ("<", "(?i:thinking>)", "(?i:/thinking>)"),
    "thought": ("<", "(?i:thought>)", "(?i:/thought>)"),
    "seed": ("<", "seed:think>", "/seed:think>"),  # Seed-OSS
    "begin": ("<", r"\|begin_of_thought\|>", r"\|end_of_thought\|>"),  # Sky-T1, OpenThinker
    # gpt-oss; behind the end of its thought stands the frame of what it says.
    "harmony": (
        "<",
        r"\|channel\|>analysis<\|message\|>",
        r"\|end\|>(?:<\|start\|>assistant)?(?:<\|channel\|>final<\|message\|>)?",
    ),
    "magistral": (r"\[", r"THINK\]", r"/THINK\]"),
    "kimi": ("◁", "think▷", "/think▷"),
}
HARMONY = "harmony"  # its templates open no thought, and other models end their turns with its mark


def _marks_that_begin_with(first: str) -> re.Pattern[str]:
    pairs = {name: pair for name, (begins, *pair) in SPELLINGS.items() if begins == first}
    either = "|".join(
        f"(?P<open_{name}>{opening})|(?P<end_{name}>{end})"
        for name, (opening, end) in pairs.items()
    )
    return re.compile(f"{first}(?:{either})")


_MEANINGS = {
    f"{action}_{name}": (action == "open", name) for name in SPELLINGS for action in ("open", "end")
}
# A pattern is searched for only in a text that holds its first character and some of the letters in its marks: most
# texts hold no thought, and graders and formats look at each of them.
_KINDS = (
    ("<", ("hink", "hought", "HINK", "HOUGHT", "analysis<"), _marks_that_begin_with("<")),
    ("[", ("THINK]",), _marks_that_begin_with(r"\[")),
    ("◁", ("think▷",), _marks_that_begin_with("◁")),
)
_ANSWER = re.compile(r"<(?P<end>/?)(?P<name>answer|solution|action)>")
_ANSWER_ENDS = ("</answer>", "</solution>", "</action>")


class Mark(NamedTuple):
    """Where a thought opens or ends in a text.

    Args:
        opens: Whether it opens one.
        start: Its first character.
        end: The character behind it.
        stop: Of an opening, where its thought is over; None if it never is.
    """

    opens: bool
    start: int
    end: int
    stop: int | None


def thought_marks(text: str) -> list[Mark]:
    """Return the marks of thoughts in a text, in order; linear in its length."""
    if not ("<" in text or "[" in text or "◁" in text):  # quick, as graders look at very many texts
        return []
    found: list[re.Match[str]] = []
    for first, letters, pattern in _KINDS:
        if first in text and any(some in text for some in letters):
            found += pattern.finditer(text)
    if not found:
        return []
    found.sort(key=re.Match.start)
    stops: dict[int, int] = {}  # by the place of an opening
    opened: dict[str, list[int]] = {}  # by spelling the openings whose own end is still to come
    endless: dict[str, list[int]] = {}  # and those behind which there was no end yet
    marks = []
    for place, match in enumerate(found):
        opens, spelling = _MEANINGS[str(match.lastgroup)]
        end = match.end()
        if opens:
            opened.setdefault(spelling, []).append(place)
            endless.setdefault(spelling, []).append(place)
        else:
            # An opening without an end of its own, as a model repeats that of its template, shares the next one.
            stops.update(dict.fromkeys(endless.pop(spelling, ()), end))
            if openings := opened.get(spelling):
                stops[openings.pop()] = end
        marks.append((opens, spelling, match.start(), end))
    return [
        Mark(opens, start, end, stops.get(place))
        for place, (opens, spelling, start, end) in enumerate(marks)
        if spelling != HARMONY or HARMONY in opened
    ]


def without_thoughts(text: str) -> str:
    """Return what is said: the text without its thoughts, and then without blanks around it.

    It is empty if the last thought never ends. A mark inside a whole `<answer>…</answer>`, `<solution>…</solution>` or
    `<action>…</action>` is part of what is said there.
    """
    said = outside_thoughts(text)
    return text if said is None else said.strip()


def outside_thoughts(text: str) -> str | None:
    """Return the text without its thoughts, blanks as they are; None if there are no thoughts."""
    marks = thought_marks(text)
    if not marks:
        return None
    answers = _answers(text)
    pieces: list[str] = []
    at, answer = 0, 0
    for mark in marks:
        while answer < len(answers) and (
            answers[answer][0] < at or answers[answer][1] <= mark.start
        ):
            answer += 1
        if mark.start < at or (answer < len(answers) and answers[answer][0] < mark.start):
            continue
        if not mark.opens:  # all in front of it was thought
            pieces, at = [], mark.end
        elif mark.stop is None:
            return ""
        else:
            pieces.append(text[at : mark.start])
            at = mark.stop
    return "".join([*pieces, text[at:]]) if at else None


def _answers(text: str) -> list[tuple[int, int]]:
    """Return start and end of each marked answer that holds no other one."""
    answers: list[tuple[int, int]] = []
    if not any(end in text for end in _ANSWER_ENDS):
        return answers
    opening: re.Match[str] | None = None
    for tag in _ANSWER.finditer(text):
        if not tag["end"]:
            opening = tag
        elif opening is not None and opening["name"] == tag["name"]:
            answers.append((opening.start(), tag.end()))
            opening = None
    return answers


def thoughts_end(text: str) -> int:
    """Return where the last thought of a text ends; 0 if none does."""
    return max((mark.end for mark in thought_marks(text) if not mark.opens), default=0)
