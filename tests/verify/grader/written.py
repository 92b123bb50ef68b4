r"""The text of an answer taken apart and put together again, with nothing known of what it means to a grader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
_WHOLE = r"\d{1,3}(?:,\d{3})+|\d+"


def squeeze(text: str) -> str:
    """Return `text` without white space."""
    return re.sub(r"\s+", "", text)


def clean(gold: str) -> str:
    """Return `gold` without dollar signs, spacing, sizing and a full stop, with braces around all arguments."""
    text = re.sub(
        r"(?<!\\)\\(?:[!,; ]|(?:left|right|quad)(?![A-Za-z]))",
        " ",
        re.sub(r",\s*\\!\s*|\{,\}", "", gold),
    )
    text = re.sub(r"\\phantom\s*(?:\{[^{}]*\}|\S)|(?<!\\)\$", "", text).strip().rstrip(".,").strip()
    text = re.sub(r"\s*(?:\\text\s*\{[\s,]*(?:and|or)\s*\}[\s,]*)+", ", ", text).replace(
        "slant", ""
    )
    text = re.sub(r"\\[dtc]frac", r"\\frac", text)
    one = r"\s*(\\[a-z]+|\w)"
    text = re.sub(rf"\\frac{one}\s*", r"\\frac{\1}", text)
    text = re.sub(rf"(\\frac\s*\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}){one}", r"\1{\2}", text)
    return re.sub(r",\s*,", ",", re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text))


def number(text: str) -> Fraction | None:
    """Return the value of a plain number, fraction or mixed number; None for any other text."""
    if re.fullmatch(rf"[+-]?\s*(?:(?:{_WHOLE})\.?\d*|\.\d+)", text):
        return Fraction(text.replace(",", "").replace(" ", "").rstrip("."))
    if match := re.fullmatch(
        rf"(-?)\s*(\d+)?\s*\\frac\s*\{{\s*(-?)({_WHOLE})\s*\}}\s*\{{\s*({_WHOLE})\s*\}}", text
    ):
        top, bottom = (int(part.replace(",", "")) for part in match.group(4, 5))
        size = int(match[2] or 0) + Fraction(top, bottom)
        return -size if match[1] != match[3] else size
    if match := re.fullmatch(r"(-?\d+)\.?\s*/\s*(\d+)", text):
        return Fraction(int(match[1]), int(match[2]))
    return None


def split(text: str, marks: str) -> list[str]:
    """Return the parts of `text` between those `marks` that stand outside all brackets, stripped."""
    parts, start = [], 0
    for i in _outside(text):
        if text[i] in marks:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def _outside(text: str) -> Iterator[int]:
    """Yield the places of `text` that are outside all brackets and part of no command."""
    depth, i = 0, 0
    while i < len(text):
        if text[i] == "\\":
            command = _COMMAND.match(text, i)
            mark = command[0][1:] if command else ""
            depth += (mark == "{") - (mark == "}")
            i += max(len(mark) + 1, 2)
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            yield i
        i += 1


def fractions(text: str, form: str) -> str:
    r"""Return `text` with every `\frac{}{}` in another form, the inner ones too."""

    def written(match: re.Match[str]) -> str:
        return form.format(*(fractions(part, form) for part in match.groups()))

    group = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
    return re.sub(rf"\\frac\s*{group}\s*{group}", written, text)


def roots(text: str) -> str:
    """Return `text` with powers in place of all roots; a product with one gets its sign."""

    def written(match: re.Match[str]) -> str:
        before = rf"{match[1]} \cdot " if match[1] else ""
        return rf"{before}({match[3]})^{{1/{match[2] or 2}}}"

    return re.sub(
        r"((?:\d|(?<![A-Za-z\\])[a-z]|\\pi|\})?)\s*\\sqrt\s*(?:\[(\d)\])?\s*\{((?:[^{}]|\{[^{}]*\})*)\}",
        written,
        text,
    )


def terms(text: str) -> list[str]:
    """Return the signed terms of a sum; one where the text is none, or where a sign could be another's."""
    if re.search(r"\\pm|\\mp|!", text):
        return [text]
    before = re.compile(r"(?<!\\cdot)(?<!\\times)(?<=[\w)}\]])\s*$")
    starts = [i for i in _outside(text) if text[i] in "+-" and before.search(text[:i])]
    ends = [*starts, len(text)]
    found = [text[start:end].strip() for start, end in zip([0, *starts], ends, strict=True)]
    return [term if term[0] in "+-" else f"+{term}" for term in found] if len(found) > 1 else [text]


def product(text: str) -> str | None:
    """Return the factors in another order: a number and what it stands in front of, or brackets."""
    power = r"(?:\^\{?\d+\}?)?"
    atom = rf"(?:\\sqrt(?:\[\d\])?\{{\d+\}}|\\pi|[a-z]{power})"
    if match := re.fullmatch(rf"(-?)(\d+|\\frac\{{\d+\}}\{{\d+\}})\s*({atom})", text):
        return rf"{match[1]}{match[3]} \cdot {match[2]}"
    bracket = rf"\([^()]*\){power}"
    if match := re.fullmatch(rf"(-?)(\d*(?:[a-z]{power})?)\s*({bracket}(?:\s*{bracket})*)", text):
        factors = [*re.findall(bracket, match[3])[::-1], *([match[2]] if match[2] else [])]
        return match[1] + r" \cdot ".join(factors) if len(factors) > 1 else None
    return None
