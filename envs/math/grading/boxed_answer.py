r"""The answer of a completion: the last outermost `\boxed{...}` behind the reasoning, or the last formula or number.

One pass over the text, linear in its length.
"""

import re
from collections.abc import Callable, Mapping

from ....tools.thoughts import without_thoughts

# A `\\` is a line break, unless the backslash of a box follows: models also write `\\boxed{4}`.
# A box may also be around a number or a capital letter without braces; prose that names the command is none.
_BARE = r"\\(?:boxed|fbox)(?:[ \t]*(?P<bare>[-−]?\.?\d[^\s${}\\]*)|[ \t]+(?P<bare_letter>[A-Z])(?![A-Za-z]))"
_TOKEN = re.compile(
    rf"(?P<box>\\(?:boxed|fbox)\s*\{{)|{_BARE}|\\\\(?!boxed|fbox)|\\[{{}}]|(?P<open>\{{)|(?P<close>\}})"
)
_BOX = re.compile(rf"\\(?:boxed|fbox)\s*\{{|{_BARE}")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_BLANK = re.compile(r"[\s$&]|\\[\[\](),;:! ]|\\q?quad(?![A-Za-z])")
_JOINT = re.compile(r"[,;]?(?:and|or|\\(?:text|mbox)\{,?(?:and|or)\})|[,;]")
_LAST = re.compile(
    r"(?<!\\)\$\$(?P<display>[^$]+)\$\$|(?<!\\)\$(?P<inline>(?:[^$\\]|\\.)+)\$|\\\((?P<round>(?:(?!\\\().)+?)\\\)"
    r"|\\\[(?P<square>(?:(?!\\\[).)+?)\\\]"
    r"|(?P<number>(?<![\w.])[-−]?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:/[0-9]+)?%?)",
    re.DOTALL,
)
# A sentence that gives the answer, from its first word on, or a line that begins with ####.
_STATED = re.compile(
    r"(?:^|(?<=[.!?])[ \t])[ \t>*_-]*+"
    r"(?:(?:so|thus|hence|therefore|then|finally|and|but|no|wait|actually|oh|hmm|sorry)\b,?[ \t]++){0,2}"
    r"(?:(?:the|my|our)[ \t]++)?(?:(?:final|correct|right)[ \t]++)?answer"
    r"(?:[ \t]++to[ \t]++(?:the|this)[ \t]++(?:problem|question))?"
    r"(?:[ \t*_]*+:|[ \t]++is\b[ \t]*+:?)[\s*_]*+(?=(?P<said>[^\n]*))|^[ \t]*+\#{4}(?!\#)(?P<marked>[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE = re.compile(r"[.!?](?=[*_\"'”)]*+(?:\s|$))")
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2,}")
_DRESS = " \t*_`\"'“”"
_MAX_TAIL = 20_000  # characters at the end that are searched for a formula


def extract_answer(text: str) -> str | None:
    r"""Return what the last outermost closed `\boxed{}` or `\fbox{}` outside of thoughts holds, stripped.

    `\boxed 8` and `\boxed C` are boxes, too.
    Boxes with nothing but commas, `and` or `or` between them are one answer, with commas. A box in a fenced code block
    is none. None when there is no box, it is empty, or a thought never ends.
    """
    text = _reply(text)
    boxes: list[
        tuple[int, int, int]
    ] = []  # of each closed one that is in no other: begin, begin and end of content
    opened: list[tuple[int, int] | None] = []
    for token in _TOKEN.finditer(text):
        if token["bare"] or token["bare_letter"]:
            group = "bare" if token["bare"] else "bare_letter"
            first = token.start(group)
            boxes.append((token.start(), first, first + len(token[group].rstrip(".,;:!?)]"))))
        elif token["box"]:
            opened.append(token.span())
        elif token["open"]:
            opened.append(None)
        elif token["close"] and opened and (start := opened.pop()):
            while boxes and boxes[-1][0] > start[0]:
                boxes.pop()
            boxes.append((*start, token.start()))
    answers: list[str] = []
    following = 0
    for begin, first, last in reversed(boxes):
        between = text[last:following].removeprefix("}")
        if answers and (len(between) >= 100 or not _JOINT.fullmatch(_BLANK.sub("", between))):
            break
        answers.append(text[first:last].strip())
        following = begin
    return ", ".join(dict.fromkeys(reversed(answers))) or None


def last_answer(text: str) -> str | None:
    """Return what `extract_answer` does; where there is no box, the last formula or number, as after GSM8K's `####`."""
    if _BOX.search(text):
        return extract_answer(text)
    found = [
        formula[formula.lastgroup or 0].strip()
        for formula in _LAST.finditer(_reply(text)[-_MAX_TAIL:])
    ]
    return found[-1] or None if found else None


def lenient_answer(text: str) -> str | None:
    r"""Return what `extract_answer` does; where there is no box, a tagged or stated answer or a bare last line."""
    if _BOX.search(text):
        return extract_answer(text)
    reply = _reply(text)
    if tagged := _TAGGED.findall(reply[-_MAX_TAIL:]):
        return tagged[-1].strip() or None
    return stated_answer(reply, words=1)


def stated_answer(reply: str, words: int) -> str | None:
    """Return the last answer that a sentence gives ("The answer is 22.", "Answer: 22", "#### 22"), as it stands there.

    Without such a sentence it is the last line, if that has at most `words` words and is no question.
    """
    reply = reply[-_MAX_TAIL:]
    for found in reversed(list(_STATED.finditer(reply))):
        said = (found["marked"] or found["said"] or "").strip(_DRESS)
        if (inner := _STATED.match(said)) is not None:  # "Final Answer: The final answer is 5."
            said = (inner["said"] or "").strip(_DRESS)
        end = _SENTENCE.search(said)
        asked = end is not None and end[0] == "?"
        return None if asked else said[: end.start() if end else None].strip(_DRESS) or None
    lines = [line.strip(_DRESS) for line in reply.splitlines() if re.search(r"\w", line)]
    last = lines[-1] if lines else ""
    return (
        None
        if last.endswith(("?", ":")) or len(_WORD.findall(last)) > words
        else last.removesuffix(".") or None
    )


Extract = Callable[[str], str | None]
EXTRACTIONS: Mapping[str, Extract] = {
    "box": extract_answer,
    "last": last_answer,
    "lenient": lenient_answer,
}


def _reply(text: str) -> str:
    """Return what is said outside of thoughts, without code blocks."""
    text = without_thoughts(text)
    return _FENCED.sub("\n", text) if "```" in text else text
