r"""A second way of writing an answer, made from its text alone: nothing here knows the grader, or what it can read.

`forms(gold)` gives all ways that fit, by the names of `FORMS`; each differs from the gold in more than white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from turngym.tests.verify.grader.written import (
    clean,
    fractions,
    number,
    product,
    roots,
    split,
    squeeze,
    terms,
)

FORMS: Mapping[str, tuple[str, str]] = {  # name -> an answer, and its second form
    "assigned": ("12", "x = 12"),
    "base": ("12_5", "(12)_{5}"),
    "bmatrix": (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"),
    "bold": (r"\text{B}", r"\textbf{(B)}"),
    "braces": ("x^2", "x^{2}"),
    "clock": (r"4:30 \text{ p.m.}", "04:30 PM"),
    "decimal": (r"\frac{3}{2}", "1.50"),
    "degrees": (r"30^\circ", "30°"),
    "dfrac": (r"\frac{1}{2}", r"\dfrac{1}{2}"),
    "doubled": ("a+b", r"\frac{2(a+b)}{2}"),
    "elements": ("(1, 2]", r"(\frac{2}{2}, \frac{4}{2}]"),
    "fraction": ("12", r"\frac{24}{2}"),
    "letter": (r"\text{(B)}", "B"),
    "member": ("[1, 2]", r"x \in [1, 2]"),
    "no unit": (r"12 \text{ cm}", "12"),
    "order": ("1, 2", "2, 1"),
    "percent": (r"12\%", r"12\text{ percent}"),
    "power": (r"2\sqrt{3}", r"2 \cdot (3)^{1/2}"),
    "product": (r"2\pi", r"\pi \cdot 2"),
    "ratio": ("3:5", r"\frac{3}{5}"),
    "scientific": ("2e9", r"2 \times 10^{9}"),
    "segment": (r"\overline{AB}", "AB"),
    "set": ("1, 2", r"\{1, 2\}"),
    "sized": ("(1, 2)", r"\left(1, 2\right)"),
    "slash": (r"\frac{a}{b}", "((a)/(b))"),
    "sum": ("a - b", "- b +a"),
    "thousands": ("1200", "1,200"),
    "turned": ("a < b", "b > a"),
    "unit": (r"12 \text{ cm}", r"12\mathrm{ cm}"),
    "value": ("x = 12", "12"),
    "words": (r"\text{Monday}", "Monday"),
    "wrapped": ("Monday", r"\text{Monday}"),
}

_WRAP = r"\\(?:text|textnormal|mbox|mathrm|mathbf|textbf)\s*\{([^{}]*)\}"
_TURNED = {
    "=": "=",
    "<": ">",
    ">": "<",
    r"\le": r"\ge",
    r"\leq": r"\geq",
    r"\ge": r"\le",
    r"\geq": r"\leq",
}


def forms(gold: str) -> dict[str, str]:
    """Return every second form of `gold` by its name; none when the text gives no hold."""
    text = clean(gold)
    return {name: form for name, form in _forms(text) if squeeze(form) != squeeze(gold)}


# --- kinds of answers: the first that makes a form of the text makes all of them

Made = Iterator[tuple[str, str]]


def _forms(text: str) -> list[tuple[str, str]]:
    for kind in (
        _number,
        _measured,
        _based,
        _worded,
        _matrix,
        _related,
        _listed,
        _bracketed,
        _formula,
    ):
        if made := list(kind(text)):
            return made
    return []


def _number(text: str) -> Made:
    if match := re.fullmatch(r"(-?\d+(?:\.\d+)?)[eE]([+-]?\d+)", text):
        yield "scientific", rf"{match[1]} \times 10^{{{int(match[2])}}}"
        yield "assigned", f"x = {text}"
    value = number(text)
    if value is None:
        return
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    yield "fraction", rf"{sign}\frac{{{2 * top}}}{{{2 * bottom}}}"
    yield "assigned", f"x = {text}"
    if bottom == 1:
        yield "decimal", f"{sign}{top}.0"
        if top >= 1000:
            yield "thousands", f"{sign}{top:,}"
        return
    yield "dfrac", rf"{sign}\dfrac{{{top}}}{{{bottom}}}"
    yield "slash", f"{sign}{top}/{bottom}"
    places = next((k for k in range(1, 30) if 10**k % bottom == 0), None)
    if places:
        digits = str(top * 10**places // bottom).rjust(places + 1, "0")
        yield "decimal", f"{sign}{digits[:-places]}.{digits[-places:]}0"


def _measured(text: str) -> Made:
    """A value with a unit, a degree sign, a currency or a percent sign."""
    if match := re.fullmatch(r"(.*[\d}])\s*\\?%", text):
        if number(match[1]) is not None:
            yield "percent", rf"{match[1]}\text{{ percent}}"
    elif (match := re.fullmatch(r"(-?)\\\$\s*(.+)", text)) and number(match[2]) is not None:
        yield "no unit", match[1] + match[2]
    elif match := re.fullmatch(r"([^,^]*)\s*\^\s*\{?\s*\\circ\s*\}?", text):
        yield "no unit", match[1]
        yield "degrees", f"{match[1]}°"
    elif (
        match := re.fullmatch(rf"([^:=,]*(?:[\d}}\)]|\\pi))\s*{_WRAP}(\^\{{?[23]\}}?)?", text)
    ) and "\\text" not in match[1]:
        yield "no unit", match[1]
        yield "unit", rf"{match[1]}\mathrm{{ {match[2].strip()}}}{match[3] or ''}"


def _based(text: str) -> Made:
    if match := re.fullmatch(
        r"(?:\\text\{)?(-?[0-9A-Z]*\d[0-9A-Z]*(?:\.\d+)?)\}?_\{?(\d+)\}?", text
    ):
        yield "base", f"({match[1]})_{{{match[2]}}}"


def _worded(text: str) -> Made:
    said = re.sub(_WRAP, r"\1", text).strip(" .,")
    if match := re.fullmatch(r"\(?([A-Z])\)?", said):
        yield "letter", match[1]
        yield "bold", rf"\textbf{{({match[1]})}}"
        yield "wrapped", rf"\text{{{match[1]}}}"
    elif match := re.fullmatch(
        r"(0?)(\d(?::[0-5]\d)+)(?:([ap])\.?m\.?)?", squeeze(said), re.IGNORECASE
    ):
        yield (
            "clock",
            f"{'' if match[1] else '0'}{match[2]}{f' {match[3].upper()}M' if match[3] else ''}",
        )
    elif re.fullmatch(r"[A-Za-z][a-z ]{2,}|[A-Z]{2,}", text):
        yield "wrapped", rf"\text{{{text}}}"
    elif re.fullmatch(_WRAP, text):
        yield "words", said
        yield "wrapped", rf"\mbox{{{said}}}"


def _matrix(text: str) -> Made:
    if match := re.fullmatch(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", text, re.DOTALL):
        rows = [
            [_element(cell.strip()) for cell in row.split("&")] for row in match[1].split(r"\\")
        ]
        yield "bmatrix", text.replace("pmatrix", "bmatrix")
        inside = r" \\ ".join(" & ".join(row) for row in rows)
        yield "elements", rf"\begin{{pmatrix}} {inside} \end{{pmatrix}}"


def _related(text: str) -> Made:
    parts = re.split(r"(=|<|>|\\leq?(?![a-z])|\\geq?(?![a-z])|\\in(?![a-z])|\\approx)", text)
    if len(parts) < 3 or len(split(text, ",;")) > 1:
        return
    sides, signs = [part.strip() for part in parts[::2]], parts[1::2]
    if signs == [r"\in"]:
        yield "value", sides[1]
    elif all(sign in _TURNED for sign in signs) and (signs != ["="] or number(sides[0]) is None):
        turned = [sides[-1]]
        for side, sign in zip(sides[-2::-1], signs[::-1], strict=True):
            turned += [_TURNED[sign], side]
        yield "turned", " ".join(turned)
    if signs == ["="] and re.fullmatch(r"[A-Za-z](?:_\{?\w+\}?)?", sides[0]):
        yield "value", sides[1]
        yield "elements", f"{sides[0]} = {_element(sides[1])}"
    elif signs == [r"\approx"] or (signs == ["="] and number(sides[0]) is not None):
        yield "value", sides[0]


def _listed(text: str) -> Made:
    """Values between commas, or in set braces, or intervals that are united."""
    for left, right, marks, joint in (
        ("", "", ",;", ", "),
        (r"\{", r"\}", ",", ", "),
        ("", "", "∪", r" \cup "),
    ):
        inside = (
            text[len(left) : len(text) - len(right)]
            if text.startswith(left) and text.endswith(right)
            else ""
        )
        parts = split(re.sub(r"\\cup(?![a-z])", "∪", inside), marks)
        if len(parts) < 2 or not all(parts):
            continue
        yield "order", left + joint.join(reversed(parts)) + right
        yield "elements", left + joint.join(map(_element, parts)) + right
        if marks == "∪":
            yield "member", rf"x \in {text}"
        else:
            yield "set", joint.join(parts) if left else rf"\{{{joint.join(parts)}\}}"


def _bracketed(text: str) -> Made:
    """A tuple or an interval."""
    if not text or text[0] not in "([" or text[-1] not in ")]":
        return
    parts = split(text[1:-1], ",")
    if len(parts) > 1:
        yield "sized", rf"\left{text[0]}{', '.join(parts)}\right{text[-1]}"
        yield "elements", text[0] + ", ".join(map(_element, parts)) + text[-1]
        if "[" in text[0] + text[-1] or "]" in text[-1] or "infty" in text:
            yield "member", rf"x \in {text}"


def _element(text: str) -> str:
    """Return a part of an answer in a second form that fits where the part stands."""
    made = dict(_forms(text))
    fit = (
        "fraction",
        "dfrac",
        "power",
        "sum",
        "product",
        "elements",
        "degrees",
        "wrapped",
        "braces",
    )
    return next((made[name] for name in fit if name in made), text)


def _formula(text: str) -> Made:
    if match := re.fullmatch(r"(\d+)\s*:\s*(\d+)", text):
        yield "ratio", rf"\frac{{{match[1]}}}{{{match[2]}}}"
    if match := re.fullmatch(r"\\overline\{(.*)\}", text):
        yield "segment", match[1]
    if re.search(r"[,;:]|infty|\\overline|(?<!_\{)\\text", text):
        return
    dfrac, slash = (fractions(text, form) for form in (r"\dfrac{{{}}}{{{}}}", "(({})/({}))"))
    if dfrac != text:
        yield "dfrac", dfrac
        if not re.search(r"\\(?:sec|sin|cos|tan|log|ln)", text):
            yield "slash", slash
    if (powers := roots(text)) != text:
        yield "power", powers
    if len(parts := terms(text)) > 1:
        yield "sum", " ".join(reversed(parts)).removeprefix("+").strip()
    if factors := product(text):
        yield "product", factors
    if (braces := re.sub(r"\^\s*(\d)", r"^{\1}", text)) != text:
        yield "braces", braces
    if letter := next((letter for letter in "xyk" if letter not in text), None):
        yield "assigned", f"{letter} = {text}"
    if not re.fullmatch(r"\\?[A-Za-z]+", text):
        yield "doubled", rf"\frac{{2({text})}}{{2}}"
