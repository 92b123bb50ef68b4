r"""Finds the answer of a completion: the last outermost `\boxed{...}` behind the reasoning.

`extract_answer` finds only that; `last_answer` and `lenient_answer` know other places to look if
there is no box. `EXTRACTIONS` has the three by the names that `MathGrader(extract=...)` takes.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ....tools.thoughts import without_thoughts

# A box may be around a number or a capital letter without braces: `\boxed 8`, `\boxed C`. A
# sentence that only names the command, such as "put it in \boxed or", has no such box.
_BARE_BOX = (
    r"\\(?:boxed|fbox)"
    r"(?:[ \t]*(?P<bare_number>[-−]?\.?\d[^\s${}\\]*)|[ \t]+(?P<bare_letter>[A-Z])(?![A-Za-z]))"
)
# A `\\` is a line break and is skipped, unless the backslash of a box follows: models also write
# `\\boxed{4}`. Escaped braces, `\{` and `\}`, are no braces.
_TOKEN = re.compile(
    rf"(?P<box>\\(?:boxed|fbox)\s*\{{)|{_BARE_BOX}|\\\\(?!boxed|fbox)|\\[{{}}]"
    r"|(?P<open>\{)|(?P<close>\})"
)
_BOX = re.compile(rf"\\(?:boxed|fbox)\s*\{{|{_BARE_BOX}")
# What may stand between the boxes of one answer, such as "\boxed{1} and \boxed{2}".
_BLANK = re.compile(r"[\s$&]|\\[\[\](),;:! ]|\\q?quad(?![A-Za-z])")
_JOINT = re.compile(r"[,;]?(?:and|or|\\(?:text|mbox)\{,?(?:and|or)\})|[,;]")
_MAX_JOINT = 100  # characters between two boxes of one answer, blanks included


class BoxSpan(NamedTuple):
    """Where a box is in a text: `text[content_start:content_end]` is the answer in it."""

    start: int
    content_start: int
    content_end: int


def extract_answer(text: str) -> str | None:
    r"""Return the content of the last outermost closed `\boxed{}` or `\fbox{}`, stripped.

    `\boxed 8` and `\boxed C` are boxes, too. Boxes with only commas, `and` or `or` between them
    are one answer: `"\boxed{1} and \boxed{2}" -> "1, 2"`. Boxes in thoughts and in fenced code
    blocks do not count.

    Returns:
        The answer; None if there is no box, it is empty, or a thought never ends.
    """
    reply = _reply_without_code(text)
    answers: list[str] = []
    next_box_start = 0
    for box in reversed(_find_outermost_boxes(reply)):
        if answers:
            between = reply[box.content_end : next_box_start].removeprefix("}")
            if len(between) >= _MAX_JOINT or not _JOINT.fullmatch(_BLANK.sub("", between)):
                break
        answers.append(reply[box.content_start : box.content_end].strip())
        next_box_start = box.start
    answers.reverse()
    distinct_answers = dict.fromkeys(answers)
    return ", ".join(distinct_answers) or None


def _find_outermost_boxes(text: str) -> list[BoxSpan]:
    """Return the closed boxes that are in no other closed box, in one pass over the text."""
    boxes: list[BoxSpan] = []
    open_braces: list[re.Match[str] | None] = []  # the opening of a box, None for another brace
    for token in _TOKEN.finditer(text):
        if token["bare_number"] or token["bare_letter"]:
            group = "bare_number" if token["bare_number"] else "bare_letter"
            content = token[group].rstrip(".,;:!?)]")
            content_start = token.start(group)
            boxes.append(BoxSpan(token.start(), content_start, content_start + len(content)))
        elif token["box"]:
            open_braces.append(token)
        elif token["open"]:
            open_braces.append(None)
        elif token["close"] and open_braces:
            opening = open_braces.pop()
            if opening is None:
                continue
            while boxes and boxes[-1].start > opening.start():  # these are inside of this box
                boxes.pop()
            boxes.append(BoxSpan(opening.start(), opening.end(), token.start()))
    return boxes


_FORMULA_OR_NUMBER = re.compile(
    r"""
    (?<!\\)\$\$ (?P<display> [^$]+ ) \$\$
  | (?<!\\)\$ (?P<inline> (?: [^$\\] | \\. )+ ) \$
  | \\\( (?P<round> (?: (?!\\\() . )+? ) \\\)
  | \\\[ (?P<square> (?: (?!\\\[) . )+? ) \\\]
  | (?P<number> (?<![\w.]) [-−]? [0-9]+ (?:,[0-9]{3})* (?:\.[0-9]+)? (?:/[0-9]+)? %? )
    """,
    re.DOTALL | re.VERBOSE,
)
_MAX_TAIL = 20_000  # characters at the end that are searched if there is no box


def last_answer(text: str) -> str | None:
    """Return the boxed answer; without a box the last formula or number.

    So it finds the answer of GSM8K's solutions: `"... #### 22" -> "22"`.
    """
    if _BOX.search(text):
        return extract_answer(text)
    reply = _reply_without_code(text)
    last_match = None
    for match in _FORMULA_OR_NUMBER.finditer(reply[-_MAX_TAIL:]):
        last_match = match
    if last_match is None:
        return None
    formula = last_match[last_match.lastgroup or 0]
    return formula.strip() or None


_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def lenient_answer(text: str) -> str | None:
    """Return the boxed answer; without a box a tagged or stated answer, or a bare last line.

    `"<answer>22</answer>"`, `"So the answer is 22."` and a last line that is only `22` all give
    `"22"`.
    """
    if _BOX.search(text):
        return extract_answer(text)
    reply = _reply_without_code(text)
    tagged = _TAGGED.findall(reply[-_MAX_TAIL:])
    if tagged:
        return tagged[-1].strip() or None
    return stated_answer(reply, words=1)


# The beginning of a sentence that gives the answer, such as "So, the final answer is: ", or of a
# line that begins with exactly four `#`.
_STATEMENT = re.compile(
    r"""
    (?: ^ | (?<=[.!?])[ \t] ) [ \t>*_-]*+
    (?: (?:so|thus|hence|therefore|then|finally|and|but|no|wait|actually|oh|hmm|sorry)
        \b ,? [ \t]++ ){0,2}
    (?: (?:the|my|our) [ \t]++ )?
    (?: (?:final|correct|right) [ \t]++ )?
    answer
    (?: [ \t]++ to [ \t]++ (?:the|this) [ \t]++ (?:problem|question) )?
    (?: [ \t*_]*+ : | [ \t]++ is\b [ \t]*+ :? )
    [\s*_]*+ (?= (?P<stated>[^\n]*) )
  | ^ [ \t]*+ \#{4}(?!\#) (?P<marked>[^\n]*)
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SENTENCE_END = re.compile(r"[.!?](?=[*_\"'”)]*+(?:\s|$))")
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2,}")
_DECORATION = " \t*_`\"'“”"


def stated_answer(reply: str, words: int) -> str | None:
    """Return the last answer that a sentence gives, or else a short last line.

    `"The answer is 22."`, `"**Answer:** 22"` and `"#### 22"` all state `"22"`.

    Args:
        reply: A completion without its thoughts.
        words: How many words the last line may have to be the answer.

    Returns:
        The answer; None if nothing states one, or if it is a question.
    """
    reply = reply[-_MAX_TAIL:]
    statement = None
    for match in _STATEMENT.finditer(reply):
        statement = match
    if statement is not None:
        stated = (statement["marked"] or statement["stated"] or "").strip(_DECORATION)
        restatement = _STATEMENT.match(stated)  # "Final Answer: The final answer is 5."
        if restatement is not None:
            stated = (restatement["stated"] or "").strip(_DECORATION)
        sentence_end = _SENTENCE_END.search(stated)
        if sentence_end is not None:
            if sentence_end[0] == "?":
                return None
            stated = stated[: sentence_end.start()]
        return stated.strip(_DECORATION) or None

    lines = [line.strip(_DECORATION) for line in reply.splitlines() if re.search(r"\w", line)]
    if not lines:
        return None
    last_line = lines[-1]
    if last_line.endswith(("?", ":")) or len(_WORD.findall(last_line)) > words:
        return None
    return last_line.removesuffix(".") or None


_FENCED_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


def _reply_without_code(text: str) -> str:
    """Return a completion without its thoughts and fenced code blocks."""
    reply = without_thoughts(text)
    return _FENCED_CODE.sub("\n", reply) if "```" in reply else reply


Extract = Callable[[str], str | None]
EXTRACTIONS: Mapping[str, Extract] = {
    "box": extract_answer,
    "last": last_answer,
    "lenient": lenient_answer,
}
"""The ways to find an answer, by their names."""
