r"""The commonest completions, decided in a few microseconds: one box with one short plain number, and such a gold.

What is decided here would be decided the same way without it, more slowly.
"""

from __future__ import annotations

import re

_NUMBER = (
    r"(-?)(?:([0-9]{1,14})|([0-9]{1,3}(?:,[0-9]{3}){1,3})|([0-9]{1,7})\.([0-9]{1,7})|([0-9]{1,14})/([1-9][0-9]{0,13})"
    r"|\\[dt]?frac\{([0-9]{1,14})\}\{([1-9][0-9]{0,13})\})"
)
_INTEGER, _GROUPED, _DECIMAL, _RATIO, _FRACTION = 2, 3, 5, 7, 9  # the last group that each kind of number has
_TENS = tuple(10**places for places in range(8))
# Without another backslash, backtick or angle there is no other box, no code and no reasoning.
_match_integer_box = re.compile(r"[^\\`<]*\\boxed\{(-?[0-9]{1,14})\}[^\\`<]*").fullmatch
_match_integer = re.compile(r"-?[0-9]{1,14}").fullmatch
_match_box = re.compile(rf"\\boxed\{{{_NUMBER}\}}").match
_match_number = re.compile(_NUMBER).fullmatch
_THOUGHT = "</think>"


def quick_verdict(completion: str, gold: str) -> tuple[str, bool, bool] | None:
    """Return the answer, whether it is right, and whether it is spelled like the gold; None if that is not plain."""
    if integer := _match_integer_box(completion):
        answer = integer[1]
        if answer == gold:
            return answer, True, True
        if _match_integer(gold):
            return answer, int(answer) == int(gold), False
    box = _find_box(completion)
    if box is None:
        return None
    kind = box.lastindex
    answer = box.string[box.start(1) : box.end(kind or 0) + (kind == _FRACTION)]
    if answer == gold:
        return answer, True, True
    right = _match_number(gold)
    if right is None:
        return None
    if kind == right.lastindex == _INTEGER:
        top, over = int(box[2]), int(right[2])
    else:
        (top, bottom), (over, under) = _ratio(box), _ratio(right)
        top, over = top * under, over * bottom
    return answer, top == (over if box[1] == right[1] else -over), False


def _find_box(completion: str) -> re.Match[str] | None:
    if _THOUGHT in completion:
        completion = completion[completion.rindex(_THOUGHT) + len(_THOUGHT) :]
    start = completion.find("box") - 1
    if start < 0 or "<think>" in completion or "```" in completion:
        return None
    box = _match_box(completion, start)
    return box if box and completion.find("box", box.end()) < 0 else None


def _ratio(number: re.Match[str]) -> tuple[int, int]:
    kind = number.lastindex
    if kind == _INTEGER:
        return int(number[2]), 1
    if kind == _DECIMAL:
        return int(number[4] + number[5]), _TENS[len(number[5])]
    if kind == _RATIO:
        return int(number[6]), int(number[7])
    if kind == _FRACTION:
        return int(number[8]), int(number[9])
    return int(number[3].replace(",", "")), 1
