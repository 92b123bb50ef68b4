r"""Answers that are hard to compare, and what happens around them: they end in time, and nobody else notices."""

from __future__ import annotations

import random
from collections.abc import Iterator

GOLDS = (
    "42",
    r"2\sqrt{2}",
    "x^2+1",
    r"\frac{\pi}{3}",
    r"\sin 3",
    "(1, 2)",
    r"\{1, 2\}",
    r"x \ge 2",
)
_SHAPES = (
    r"{a}^{{{a}^{{{a}^{{{a}}}}}}}",
    r"((((({a}!)!)!)!)!)",
    r"\binom{{10^{a}}}{{5 \cdot 10^{{{b}}}}}",
    r"\sum_{{k=1}}^{{10^{{12}}}} \sin(k^k)",
    r"\prod_{{k=1}}^{{10^{{9}}}} (k^{{{a}}}+x)",
    r"\int_0^{{\infty}} \frac{{x^{{{a}}} \sin(x^x)}}{{1+x^{{x^{{{b}}}}}}} dx",
    r"\int \frac{{x^{{{a}}}+\sin(x^x)}}{{\ln(1+x^{{{b}}})}} dx",
    r"\lim_{{n \to \infty}} \sum_{{k=1}}^{{n}} \frac{{\sin(k^{{{a}}})}}{{n^{{k}}}}",
    r"\frac{{{a}^{{{a}^{{{a}^{{{b}}}}}}}-1}}{{16}}",
    r"(x+{a})^{{100000}} - (x+{b})^{{99999}}",
    r"(1+x+y+z+w)^{{{a}00}}",
    r"\sqrt{{{a}^{{{a}^{{{a}^{{{b}}}}}}}+1}}",
    r"\log_{{{b}}} ({a}^{{{a}^{{{a}^{{{a}}}}}}})",
    r"\sin({a}^{{{a}^{{{a}^{{{b}}}}}}})",
    r"{a}^{{{b}^{{10^{{10}}}}}} \bmod 1000003",
    r"\gcd({a}^{{10^{{9}}}}-1, {b}^{{10^{{9}}}}-1)",
    r"x^{{{a}^{{{a}^{{{a}}}}}}} + 1",
    r"({a}^{{{a}^{{{a}^{{{b}}}}}}}, 2)",
    r"\{{1, {a}^{{{a}^{{{a}^{{{b}}}}}}}\}}",
    r"x \ge {a}^{{{a}^{{{a}^{{{b}}}}}}}",
)
_LONG = (
    ("(", ")", 2000),
    (r"\sqrt{", "}", 900),
    (r"\frac{1}{1+", "}", 400),
    ("-", "", 4000),
    (r"x^{", "}", 900),
)


def hostile(seed: int) -> Iterator[tuple[str, str]]:
    """Yield golds and completions: each shape with a gold of its kind, and texts that nest deeply or are long."""
    drawn = random.Random(f"hostile {seed}")
    for i, shape in enumerate(_SHAPES):
        answer = shape.format(a=drawn.randint(7, 9), b=drawn.randint(5, 6))
        for gold in (GOLDS[0], GOLDS[1 + i % (len(GOLDS) - 1)]):
            yield gold, rf"So it is \boxed{{{answer}}}."
    for (left, right, times), gold in zip(_LONG, GOLDS):
        yield gold, rf"\boxed{{{left * times}1{right * times}}}"
    digit = str(drawn.randint(1, 9))
    yield GOLDS[0], rf"\boxed{{{digit * 10**6}}}"
    yield GOLDS[2], rf"\boxed{{{digit * 4000}}}"
    yield GOLDS[1], rf"\boxed{{\begin{{pmatrix}}{'1 & ' * 500}1\end{{pmatrix}}}}"
    yield GOLDS[0], r"\boxed{" * 10**5 + digit + "}" * 10**5
    yield GOLDS[0], r"\boxed{" * 3 * 10**5
