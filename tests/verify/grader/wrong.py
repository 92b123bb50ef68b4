r"""Wrong completions that look right: near values, hedges, relations, restated questions, boxes that do not count.

Nothing here knows the grader, or what it refuses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from turngym.tests.verify.grader.forms import forms
from turngym.tests.verify.grader.right import SETTINGS, Written, scarcest
from turngym.tests.verify.grader.written import clean, number, split, squeeze

VOID: Mapping[str, str] = {  # where a right box, %s, earns nothing
    "only in think": r"<think>It is \boxed{%s}.</think>I am done.",
    "think never closed": r"<think>It is \boxed{%s}.",
    "in a code block": "```python\n# \\boxed{%s}\npass\n```",
    "printed by code": "```\n\\boxed{%s}\n```\nThat is what it prints.",
    "never closed": r"The answer is \boxed{%s",
    "no box": "The answer is %s.",
    "taken back": r"It is \boxed{%s}. No, I was wrong: \boxed{7919}.",
    "another box around": r"\boxed{7919 \text{ but not } \boxed{%s}}",
    "empty box last": r"\boxed{7919} or \boxed{}; I also thought of %s",
}

NOTHING: Mapping[str, str] = {  # answers that say nothing
    "a question mark": "?",
    "dots": r"\ldots",
    "a letter": "x",
    "a word": r"\text{answer}",
    "blanks": r"\quad ",
    "braces": "{}",
    "empty text": r"\text{}",
    "all numbers": r"\mathbb{R}",
    "the whole line": r"(-\infty, \infty)",
    "the empty set": r"\emptyset",
    "infinity": r"\infty",
    "not a number": r"\text{nan}",
    "a dollar sign": r"\$",
}


def wrong(golds: Sequence[str], size: int) -> Iterator[Written]:
    """Yield `size` completions: golds in turn, each with the fault that its kind had least, settings in turn."""
    used = Counter[tuple[str, str]]()
    settings = list(SETTINGS.items())
    for i in range(size):
        gold = golds[i % len(golds)]
        others = (golds[(i + step) % len(golds)] for step in range(1, len(golds)))
        made = faults(
            gold, next((other for other in others if value(other) != value(gold)), "7919")
        )
        fault = scarcest(gold, made, used)
        if fault in VOID:
            yield Written(gold, made[fault], (fault,))
        else:
            name, setting = settings[i % len(settings)]
            yield Written(gold, setting.replace("%s", made[fault]), (fault, name))


def faults(gold: str, other: str) -> dict[str, str]:
    """Return wrong answers in place of `gold` by name, and whole completions by the names of `VOID`.

    `other` is the gold of another task, of another value.
    """
    text = clean(gold)
    made = {name: completion.replace("%s", gold) for name, completion in VOID.items()}
    made["another task's"] = other
    made |= {f"another task's, {name}": form for name, form in list(forms(other).items())[:1]}
    made["or another"] = rf"{text} \text{{ or }} 7919"
    made["and another"] = rf"{text}, 7919"
    if digit := re.search(r"\d(?=\D*$)", gold):
        made["last digit"] = (
            f"{gold[: digit.start()]}{(int(digit[0]) + 1) % 10}{gold[digit.end() :]}"
        )
    if re.fullmatch(r"-?\d+", squeeze(text)):
        made |= dict(_wholes(int(squeeze(text))))
    exact = number(text)
    if exact is not None:
        made |= dict(_numbers(text, exact))
    made |= dict(_ordered(text))
    return made | {
        name: nothing for name, nothing in NOTHING.items() if squeeze(nothing) != squeeze(text)
    }


def _ordered(text: str) -> Iterator[tuple[str, str]]:
    """A tuple, an interval or a list with other elements, order or brackets."""
    if text and text[0] in "([" and text[-1] in ")]":
        parts = split(text[1:-1], ",")
        if len(parts) == 2 and squeeze(parts[0]) != squeeze(parts[1]):
            yield "other order", f"{text[0]}{parts[1]}, {parts[0]}{text[-1]}"
        if len(parts) > 1:
            yield "one element more", f"{text[:-1]}, 7919{text[-1]}"
            yield "one element less", f"{text[0]}{', '.join(parts[1:])}{text[-1]}"
        if len(parts) == 2 and text[-1] == "]" and "infty" not in text:
            yield "other bracket", f"{text[:-1]})"
    elif len(parts := split(text, ",")) > 1 and len(set(map(squeeze, parts))) == len(parts):
        yield "one value less", ", ".join(parts[1:])
        yield "one value twice", ", ".join([*parts[1:], parts[1]])


def value(gold: str) -> Fraction | str:
    """Return what tells a gold from others: its number without name, unit and percent sign, or its text."""
    made = forms(gold)
    text = made.get("value") or made.get("no unit") or clean(gold)
    exact = number(re.sub(r"\s*\\?%$", "", text))
    return squeeze(text) if exact is None else exact


def _wholes(n: int) -> Iterator[tuple[str, str]]:
    yield "one more", str(n + 1)
    yield "one less", str(n - 1)
    yield "a little more", f"{n}.0001"
    yield "almost", f"{n - 1}.9999999"
    yield "almost, as a double", f"{n - 1}.99999999999999"
    yield "almost, with many nines", f"{n - 1}.{'9' * 30}"
    yield "ten times", f"{n}0" if n else "10"
    yield "a digit in front", f"1{n}" if n >= 0 else f"-1{-n}"
    yield "restated sum", f"{n - 3} + 3"
    yield "restated product", rf"2 \times \frac{{{n}}}{{2}}"
    yield "restated difference", f"{n + 3} - 3"
    yield "sum sign", rf"\sum_{{k=1}}^{{{max(n, 1)}}} 1" if n > 0 else rf"\sum_{{k=1}}^{{2}} {n}"
    yield "integral sign", rf"\int_0^1 {n} \, dx"
    yield "limit sign", rf"\lim_{{x \to 0}} ({n} + x)"
    yield "product sign", rf"\prod_{{k=1}}^{{1}} {n}"
    yield "equation", f"x + 3 = {n + 3}"
    yield "question", rf"\text{{How many are }} {n - 3} + 3\text{{?}}"
    yield "modulo", rf"{n} \pmod{{{abs(n) + 5}}}"
    yield "neighbours", f"{n - 1}, {n}, {n + 1}"
    yield "set of neighbours", rf"\{{{n}, {n + 1}\}}"
    yield "interval around", rf"[{n - 1}, {n + 1}]"
    yield "range", rf"{n}-{n + 1}"
    yield "from to", rf"{n} \text{{ to }} {n + 1}"


def _numbers(text: str, exact: Fraction) -> Iterator[tuple[str, str]]:
    if exact:
        yield "other sign", text[1:].strip() if text.startswith("-") else f"-{text}"
        yield "plus-minus", rf"\pm {text}"
        yield "plus-minus around", rf"{text} \pm 1"
    yield "greater", f"x > {exact.numerator // exact.denominator - 1}"
    yield "at least", rf"x \ge {text}"
    yield "unequal", rf"x \ne {text}"
    yield "chain", f"7919 = {text}"
    yield "chain behind", f"{text} = 7919"
    yield "about another", rf"{text} \approx 7919"
    yield "half", rf"\frac{{{text}}}{{2}}" if exact else "1"
    if exact:  # no letter makes a difference to zero
        yield "a letter too many", f"{text}x"
        yield "a product with a letter", rf"{text} \cdot y"
    yield "tuple", f"({text}, 1)"
    if exact.denominator not in (1, 2, 4, 5, 8, 10) and "frac" in text:
        yield "rounded", f"{float(exact):.3f}" if Fraction(f"{float(exact):.3f}") != exact else "0"
        yield "turned over", f"{exact.denominator}/{exact.numerator}"
