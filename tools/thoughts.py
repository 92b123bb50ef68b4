"""What an agent thinks and what it says: the marks between which models write their thoughts, and a text without them.

A thought is no call, no action and no answer, wherever it stands; what stands outside of thoughts is said. Thoughts of
one spelling may nest. A chat template may have opened the first thought in the prompt, so that only its end is in the
text: all in front of that is thought. A thought that never ends leaves nothing that is said.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# How models open a thought and end it, by the spelling's name.
SPELLINGS = {
    "think": ("(?i:<think>)", "(?i:</think>)"),  # DeepSeek-R1, Qwen3, GLM, Kimi, …
    "thinking": ("(?i:<thinking>)", "(?i:</thinking>)"),
    "thought": ("(?i:<thought>)", "(?i:</thought>)"),
    "seed": ("<seed:think>", "</seed:think>"),  # Seed-OSS
    "magistral": (r"\[THINK\]", r"\[/THINK\]"),
    "kimi": ("◁think▷", "◁/think▷"),
    "begin": (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # Sky-T1, OpenThinker
    # gpt-oss; behind the end of its thought stands the frame of what it says.
    "harmony": (
        r"<\|channel\|>analysis<\|message\|>",
        r"<\|end\|>(?:<\|start\|>assistant)?(?:<\|channel\|>final<\|message\|>)?",
    ),
}
HARMONY = "harmony"  # its templates open no thought, and other models end their turns with its mark
_MARK = re.compile(
    "|".join(f"(?P<open_{name}>{pair[0]})|(?P<end_{name}>{pair[1]})" for name, pair in SPELLINGS.items())
)
_LETTERS = ("hink", "HINK", "hought", "HOUGHT", "analysis<")  # a text without any of these holds no mark
_ANSWER = re.compile(r"<(?P<end>/?)(?P<name>answer|solution|action)>")


@dataclass(frozen=True)
class Mark:
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
    stop: int | None = None


def thought_marks(text: str) -> list[Mark]:
    """Return the marks of thoughts in a text, in order; linear in its length."""
    if not any(letters in text for letters in _LETTERS):
        return []
    found = list(_MARK.finditer(text))
    stops = _stops(found)
    marks = []
    harmony = False  # whether a thought of harmony was opened
    for place, match in enumerate(found):
        action, _, spelling = str(match.lastgroup).partition("_")
        harmony = harmony or (spelling == HARMONY and action == "open")
        if harmony or spelling != HARMONY:
            marks.append(Mark(action == "open", match.start(), match.end(), stops.get(place)))
    return marks


def _stops(found: Sequence[re.Match[str]]) -> dict[int, int]:
    """Return where the thought of each opening is over, by the opening's place among the marks.

    An opening that has no end of its own, as a model repeats what its template wrote, shares the next one.
    """
    stops: dict[int, int] = {}
    waiting: dict[str, list[int]] = {}
    for place, match in enumerate(found):
        action, _, spelling = str(match.lastgroup).partition("_")
        openings = waiting.setdefault(spelling, [])
        if action == "open":
            openings.append(place)
        elif openings:
            stops[openings.pop()] = match.end()
    next_end: dict[str, int] = {}
    for place in reversed(range(len(found))):
        action, _, spelling = str(found[place].lastgroup).partition("_")
        if action == "end":
            next_end[spelling] = found[place].end()
        elif place not in stops and spelling in next_end:
            stops[place] = next_end[spelling]
    return stops


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
        while answer < len(answers) and (answers[answer][0] < at or answers[answer][1] <= mark.start):
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
    answers = []
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
