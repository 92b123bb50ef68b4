r"""Right completions in the ways that models write: a gold in one of its spellings, in one of the settings of a box.

Nothing here knows the grader, or what it can read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from turngym.tests.verify.grader.forms import forms
from turngym.tests.verify.grader.written import clean, number, terms

SETTINGS: Mapping[str, str] = {  # how a box stands in a completion; %s is what the box holds
    "box alone": r"\boxed{%s}",
    "dollars": r"The answer is $\boxed{%s}$.",
    "display": "Adding up,\n\\[\n\\boxed{%s}\n\\]",
    "double dollars": "So we get\n$$\\boxed{%s}$$\nand we are done.",
    "parentheses": r"Hence \( \boxed{%s} \), as was to be shown.",
    "prose before": "First there are 3, then 5 more; after a while 12 of 40 are gone.\n\nTherefore \\boxed{%s}",
    "prose after": r"\boxed{%s} is the answer, since 2 + 2 = 4 and nothing else is left.",
    "think": "<think>Is it 7? No: 7 > 5. Let me see... \\boxed{7} is wrong.</think>\n\\boxed{%s}",
    "thinking was opened before": "Perhaps \\boxed{7}? No.</think>It is \\boxed{%s}.",
    "corrected": r"My first try was \boxed{7}. But I forgot a factor. The answer is \boxed{%s}.",
    "said twice": r"We find $\boxed{%s}$. **Final Answer**: $\boxed{%s}$",
    "blanks in front": r"The answer is \boxed {%s}",
    "blanks inside": r"The answer is \boxed{ %s }.",
    "lines inside": "The answer is\n\\boxed{\n%s\n}\n",
    "box in a box": r"The answer is \boxed{\boxed{%s}}.",
    "fbox": r"The answer is \fbox{%s}.",
    "bold": r"**Answer:** **\boxed{%s}**",
    "list": "1. Read the question.\n2. Think.\n3. $\\boxed{%s}$",
    "aligned": "\\begin{align*}\nx &= 1 + 1 \\\\\n&= \\boxed{%s}\n\\end{align*}",
    "minerva": r"Final Answer: The final answer is $\boxed{%s}$. I hope it is correct.",
    "code before": "```python\nprint('\\\\boxed{7}')\n```\nThe program prints it, so \\boxed{%s}.",
    "carriage returns": "Step 1: add.\r\nStep 2: multiply.\r\n\\boxed{%s}\r\n",
    "other scripts": "所以答案是 $\\boxed{%s}$。 Ответ готов ✅",
    "unbalanced brace before": "Let A = {x : x > 0 and so on. Then \\boxed{%s}",
    "end token": "It is \\boxed{%s}.<|im_end|>",
    "dollars in the prose": r"She pays $5 and then $7, so she pays \$12 and is left with \boxed{%s}.",
}


@dataclass(frozen=True)
class Written:
    """A completion, the gold it is graded against, and the names of how it is written."""

    gold: str
    text: str
    ways: tuple[str, ...]


def right(golds: Sequence[str], size: int) -> Iterator[Written]:
    """Yield `size` completions: golds in turn, each in the spelling that its kind had least, settings in turn."""
    used = Counter[tuple[str, str]]()
    settings = list(SETTINGS.items())
    for i in range(size):
        gold = golds[i % len(golds)]
        made = spellings(gold)
        spelling = scarcest(gold, made, used)
        name, setting = settings[i % len(settings)]
        yield Written(gold, setting.replace("%s", made[spelling]), (spelling, name))


def scarcest(gold: str, names: Iterable[str], used: Counter[tuple[str, str]]) -> str:
    """Return the name that was used least for golds of this kind, and count it."""
    value = number(clean(gold))
    kind = "formula" if value is None else "whole" if value.denominator == 1 else "part"
    name = min(names, key=lambda name: used[kind, name])
    used[kind, name] += 1
    return name


def spellings(gold: str) -> dict[str, str]:
    """Return the gold as it is and in all other spellings that fit it, by name."""
    return {"as it is": gold, **forms(gold), **dict(_more(gold, clean(gold)))}


def _more(gold: str, text: str) -> Iterator[tuple[str, str]]:
    value = number(text)
    if value is not None:
        yield from _numbers(text, value)
        yield from (_wholes(value.numerator) if value.denominator == 1 else _parts(value))
    if r"\frac" in text:
        yield "tfrac", text.replace(r"\frac", r"\tfrac")
        yield "cfrac", text.replace(r"\frac", r"\cfrac")
    if not re.search(r"[$\\]", gold) or value is not None:
        yield "dollars inside", f"${text}$"
        yield "parentheses inside", rf"\({text}\)"
    if not re.search(r"text|mbox|\$|%", text):
        yield "display style", rf"\displaystyle {text}"
        yield "braces around", f"{{{text}}}"
        yield "thin spaces", rf"\,{text}\,"
        yield "hard blanks", rf"\ {text}~"
    if text.endswith(r"^\circ"):
        yield "degrees as a word", text.removesuffix(r"^\circ") + r" \text{ degrees}"
    if match := re.fullmatch(r"(\d+)\s*\\text\{\s*([a-z]+)\s*\}", text):
        yield "unit without text", f"{match[1]} {match[2]}"
        yield "unit close by", rf"{match[1]}\text{{{match[2]}}}"
    if re.match(r"[(\[]", text) and re.search(r"[)\]]$", text) and "," in text:
        yield "sized brackets", rf"\bigl{text[:-1]}\bigr{text[-1]}"
    if re.search(r"[(\[{].*,.*[)\]}]", text) and not re.search(r"\d,\d{3}|text", text):
        yield "no blanks behind commas", re.sub(r",\s+", ",", text)
        yield "wide commas", re.sub(r"\s*,\s*", r" ,\\; ", text)
    if len(terms(text)) > 1 and "text" not in text:
        yield "blanks around signs", re.sub(r"(?<=[\w)}\]])\s*([+-])\s*(?=[\w(\\])", r" \1 ", text)


def _numbers(text: str, value: Fraction) -> Iterator[tuple[str, str]]:
    """A plain number, with what may stand around it."""
    yield "full stop", f"{text}."
    yield "text", rf"\text{{{text}}}" if "\\" not in text else rf"\text{{${text}$}}"
    yield "bold digits", rf"\mathbf{{{text}}}"
    yield "upright digits", rf"\mathrm{{{text}}}"
    yield "assigned n", f"n={text}"
    yield "assigned with a unit", rf"t = {text} \text{{ hours}}"
    yield "unit behind", rf"{text} \text{{ apples}}"
    yield "unit as a word", f"{text} apples"
    yield "unit in mathrm", rf"{text}\,\mathrm{{km}}"
    yield "squared unit", rf"{text} \text{{ cm}}^2"
    yield "dollars as a word", rf"{text} \text{{ dollars}}"
    yield "dollars as letters", f"{text} USD"
    if value >= 0:
        yield "dollar sign", rf"\${text}"
        yield "plus sign", f"+{text}"
        yield "euro sign", f"€{text}"
    else:
        yield "minus sign", text.replace("-", "−", 1)
        yield "blank behind the sign", text.replace("-", "- ", 1)


def _wholes(n: int) -> Iterator[tuple[str, str]]:
    """An integer in digits."""
    sign, grouped = "-" if n < 0 else "", f"{abs(n):,}"
    yield "two zeros", f"{n}.00"
    yield "no fraction", f"{n}."
    yield "over one", rf"\frac{{{n}}}{{1}}"
    yield "slash one", f"{n}/1"
    if "," in grouped:
        yield "thousands in braces", sign + grouped.replace(",", "{,}")
        yield "thousands, negative space", sign + grouped.replace(",", r",\!")
        yield "thousands, thin spaces", sign + grouped.replace(",", r"\,")
        yield "dollars and thousands", rf"{sign}\${grouped}.00"
        yield "thousands and a unit", rf"{sign}{grouped} \text{{ people}}"
    if n and n % 100 == 0:
        digits = str(abs(n)).rstrip("0")
        places = len(str(abs(n))) - 1
        head = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
        yield "power of ten", rf"{sign}{head} \times 10^{{{places}}}"
        yield "power of ten with a dot", rf"{sign}{head} \cdot 10^{{{places}}}"


def _parts(value: Fraction) -> Iterator[tuple[str, str]]:
    """A fraction, whatever way the gold writes it."""
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    if top < 10 and bottom < 10:
        yield "frac without braces", rf"{sign}\frac{top}{bottom}"
    yield "blanks in the frac", rf"{sign}\frac {{ {top} }} {{ {bottom} }}"
    yield "brackets around the slash", f"{sign}({top}/{bottom})"
    if sign:
        yield "sign above", rf"\frac{{-{top}}}{{{bottom}}}"
    elif top > bottom:
        yield "mixed number", rf"{top // bottom}\frac{{{top % bottom}}}{{{bottom}}}"
        yield "mixed number with a blank", f"{top // bottom} {top % bottom}/{bottom}"
    if 1000 % bottom == 0:
        thousandths = f"{top * 1000 // bottom % 1000:03}".rstrip("0")
        yield "trailing zeros", f"{sign}{top // bottom}.{thousandths}00"
        if top < bottom:
            yield "no zero in front", f"{sign}.{thousandths}"
            yield "percent", rf"{sign}{top * 100 / bottom:g}\%"
