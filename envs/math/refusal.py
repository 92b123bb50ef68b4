"""What is not paid whatever its value: several candidates, relations, questions said again, arithmetic left to do."""

from __future__ import annotations

import re

from .relation import RELATION

_POWER_OF_TEN = re.compile(r"\\(?:times|cdot) ?10 ?\^ ?(?:\{ ?-?\d+ ?\}|\d)")
_UNWORKED = re.compile(
    r"\d \d|[+*×·÷!]|(?<=[\w)}]) ?-|//|\) ?\( ?-?[\d.]|\d ?\( ?[\d.]|\) ?\d|\^[^^]*\^"
    r"|\\(?:cdot|times|div|ast|binom|gcd|lcm|[bp]?mod|lfloor|lceil|operatorname|[lr]?vert|log|ln|lg|exp"
    r"|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)(?![A-Za-z])|[|]"
)
_EITHER_SIGN = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|[±∓]")
_UNEVALUATED = re.compile(
    r"[∫∑∏]|(?<![A-Za-z])\\?(?:i*int|oint|sum|prod|coprod|lim|limsup|liminf)(?![A-Za-z])|\\big(?:cup|cap)(?![A-Za-z])"
    r"|\\operatorname\*? ?\{ ?(?:lim|int|sum|prod|max|min|sup|inf)|\\(?:max|min|sup|inf|det)(?![A-Za-z])"
    r"|\\frac ?\{ ?(?:d|\\partial|\\mathrm ?\{ ?d ?\})(?: ?\^ ?\{?\w\}?)? ?\} ?\{ ?(?:d|\\partial|\\mathrm)"
)


def refusal(gold: str, answer: str, *, number: bool) -> str | None:
    """Return why an answer of this form is not paid for a gold of that form, both tidy; None if it may be.

    Args:
        gold: The right answer.
        answer: What the box holds.
        number: Whether the gold is a plain number.
    """
    if re.search(r"\\f?box(?:ed)?(?![A-Za-z])", answer):
        return "the box holds another box and more; it needs the answer alone"
    if not re.search(r"[^\W_]|\\infty|\\emptyset|\\varnothing|∅|∞", re.sub(r"\\text\w* ?\{\W*\}", "", answer)):
        return "the box holds no letter or digit; it needs the answer"
    if _UNEVALUATED.search(answer) and not _UNEVALUATED.search(gold):
        return "the box holds a sum, product, integral or limit; it needs its value"
    if _EITHER_SIGN.search(answer) and not (_EITHER_SIGN.search(gold) or several(gold)):
        return "the box holds two values; it needs the one value"
    if several(gold) or gold.startswith("\\{") or _EITHER_SIGN.search(gold):
        return None
    if related := len(RELATION.findall(gold)):
        chain = related == 1 and len(RELATION.findall(answer)) > 1
        return "the box holds a chain of relations; it needs one" if chain else None
    if RELATION.search(answer) or several(answer):
        return "the box holds a relation or several values; it needs the one value"
    if number and "\\text" in answer:
        return "the box holds a number and words; it needs the number and at most its unit"
    if number and _UNWORKED.search(_POWER_OF_TEN.sub("", answer)):
        return "the box holds unworked arithmetic; it needs the number"
    return None


def several(text: str) -> bool:
    """Whether there is a comma outside all brackets, or a line break outside a matrix."""
    if "\\\\" in text and "\\begin" not in text:
        return True
    depth = 0
    for mark in re.findall(r"[()\[\]{},]", re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and depth == 0:
            return True
    return False
