r"""Signs that look or read like LaTeX's, in LaTeX's own spelling: those of Unicode, and those that programs print.

`4 × 10⁵`, `½` and `２` become `4 \times 10^{5}`, `\frac{1}{2}` and `2`; `2*pi`, `x**2` and `exp(2)` become `2*\pi`,
`x^{2}` and `e^{2}`. Only the spelling changes, never a value; nothing is evaluated here.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

_TIMES = "×✕✖⨯⨉"
_DOTS = "·⋅∙•∗‧・●⸱"
_MINUS = "−–—‐‑‒﹣－➖⁃˗"
_PLUS = "＋﹢➕"
_SLASHES = "∕⁄／"
_RATIOS = "∶：﹕"
# They have no width of their own. What turns the direction of a text stays: it shows other digits than there are.
_INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad\u180e\ufe0e\ufe0f"
_CURRENCIES = "$£€¥₹₽₩￥￡＄"
_SYMBOLS = {
    "π": "\\pi ",
    "∞": "\\infty ",
    "±": "\\pm ",
    "≠": "\\neq ",
    "∪": "\\cup ",
    "∅": "\\emptyset ",
}
_SYMBOLS |= {"÷": "\\div ", "➗": "\\div ", "⟨": "\\langle ", "⟩": "\\rangle "}
_SYMBOLS |= {"\u00a0": " ", "~": " ", "¢": " cents", "。": ".", "、": ","}
_SYMBOLS |= {"′": "'", "’": "'", "‘": "'", "“": '"', "”": '"'}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎", "0123456789+-=()", strict=True))
# Braces and backslashes of full width are no LaTeX.
_FULL_WIDTH = {
    chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) not in "＼｛｝～＄"
}


def _digits_and_fractions() -> Iterator[tuple[str, str]]:
    """Yield the ten digits in other type (full width, bold, …) and the fractions that are one character."""
    for code in (*range(0xFF10, 0xFF1A), *range(0x1D7CE, 0x1D800)):
        yield chr(code), unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0xBC, 0xBF), *range(0x2150, 0x215F), 0x2189):
        top, _, bottom = unicodedata.normalize("NFKC", chr(code)).partition("⁄")
        yield chr(code), f"\\frac{{{top}}}{{{bottom}}}"


_PLAIN = str.maketrans(
    _FULL_WIDTH
    | dict(_digits_and_fractions())
    | _SYMBOLS
    | dict.fromkeys(_TIMES, "\\times ")
    | dict.fromkeys(_DOTS, "\\cdot ")
    | dict.fromkeys(_MINUS, "-")
    | dict.fromkeys(_PLUS, "+")
    | dict.fromkeys(_SLASHES, "/")
    | dict.fromkeys(_RATIOS, ":")
    | dict.fromkeys(_INVISIBLE + _CURRENCIES)
)
_RAISED = re.compile(f"[{re.escape(''.join(_SUPERSCRIPTS))}]+")
_LOWERED = re.compile(f"[{re.escape(''.join(_SUBSCRIPTS))}]+")
_RAISED_FRACTION = re.compile(r"\^\{(\d+)\} ?/ ?_\{(\d+)\}")

# Operators that mean something of their own in algebra, and are written for plain ones elsewhere.
_OTHER_TIMES = r"[⊗⊙∘⋆★☆○◦⨂⨀⊠⊡✱＊]|\\(?:otimes|odot|star|circ|bullet|ast|boxtimes|boxdot|cdotp|centerdot)(?![A-Za-z])"
_OTHER_PLUS = r"[∔⊕⨁⊞]|\\(?:oplus|dotplus|boxplus)(?![A-Za-z])"
_OTHER_MINUS = r"[∸⊖⊟]|\\(?:ominus|boxminus|dotminus)(?![A-Za-z])"
_OTHER_OVER = r"[⊘⨸]|\\(?:oslash|slash|backslash)(?![A-Za-z])"
_OTHERS = re.compile(
    f"(?P<times>{_OTHER_TIMES})|(?P<plus>{_OTHER_PLUS})|(?P<minus>{_OTHER_MINUS})|(?P<over>{_OTHER_OVER})"
)
_PLAIN_OPERATORS = {"times": "\\cdot ", "plus": "+", "minus": "-", "over": "/"}


def latex_signs(text: str) -> str:
    """Return a text with the signs of Unicode as LaTeX writes them."""
    if text.isascii():
        return text.replace("~", " ").replace("$", "")
    text = unicodedata.normalize("NFC", text)
    text = _RAISED.sub(lambda run: f"^{{{''.join(map(_SUPERSCRIPTS.__getitem__, run[0]))}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{''.join(map(_SUBSCRIPTS.__getitem__, run[0]))}}}", text)
    return _RAISED_FRACTION.sub(r"\\frac{\1}{\2}", text.translate(_PLAIN))


def plain_operators(text: str) -> str:
    r"""Return a text with plain operators for those that algebra has of its own, such as `\oplus` or `∘`."""
    return _OTHERS.sub(lambda sign: _PLAIN_OPERATORS[sign.lastgroup or ""], text)


def has_other_operators(text: str) -> bool:
    r"""Return whether a text holds an operator such as `\oplus` or `∘`."""
    return _OTHERS.search(text) is not None


_PROGRAM = re.compile(
    r"\*\*|(?<![A-Za-z\\])(?:pi|oo|inf|exp|sqrt|cbrt|a?(?:sin|cos|tan)h?|log|ln|Rational|Fraction|np)\b"
)
_QUOTIENT = re.compile(r"(?<![A-Za-z\\])(?:Rational|Fraction) ?\( ?(-?\d+) ?, ?(-?\d+) ?\)")
_NUMPY = re.compile(r"\bnp\.(?:float|int)\d* ?\(([^()]*)\)")
_MODULE = re.compile(r"\b(?:np|math|sp|sympy)\.(?=[a-z])")
_FUNCTION = re.compile(r"(?<![A-Za-z\\])(a(?:rc)?)?((?:sin|cos|tan)h?|log|ln)(?= ?\()")
_CONSTANT = re.compile(r"(?<![A-Za-z\\])(?:(pi)|oo|inf)(?![A-Za-z(])")
_MAX_CALLS = 40


def latex_calls(text: str) -> str:
    """Return a text with what a program prints as LaTeX writes it: powers, roots, functions, constants, quotients."""
    if _PROGRAM.search(text) is None:
        return text
    text = _MODULE.sub("", _NUMPY.sub(r"\1", text))
    text = _QUOTIENT.sub(r"\1/\2", text)
    text = re.sub(
        r" ?\*\* ?",
        "^",
        re.sub(r" ?\*\* ?([+-]?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z(]))", r"^{\1}", text),
    )
    text = _replace_calls(text, "\\^", lambda inside: f"^{{{inside}}}")
    text = _replace_calls(text, r"(?<![A-Za-z\\])exp", lambda inside: f"e^{{{inside}}}")
    text = _replace_calls(text, r"(?<![A-Za-z\\])sqrt", lambda inside: f"\\sqrt{{{inside}}}")
    text = _replace_calls(text, r"(?<![A-Za-z\\])cbrt", lambda inside: f"\\sqrt[3]{{{inside}}}")
    text = _FUNCTION.sub(lambda name: f"\\{'arc' if name[1] else ''}{name[2]}", text)
    return _CONSTANT.sub(lambda name: "\\pi " if name[1] else "\\infty ", text)


def _replace_calls(text: str, name: str, replacement: Callable[[str], str]) -> str:
    """Return a text with `replacement` of what stands between the brackets in place of each call of `name`."""
    call = re.compile(rf"{name} ?\(")
    start = 0
    for _ in range(_MAX_CALLS):
        if (found := call.search(text, start)) is None:
            break
        if (end := _closing(text, found.end())) is None:
            start = found.end()
            continue
        text = text[: found.start()] + replacement(text[found.end() : end]) + text[end + 1 :]
        start = found.start() + 1
    return text


def _closing(text: str, start: int) -> int | None:
    """Return where the round bracket closes that is open at `start`; None where it does not."""
    depth = 1
    for bracket in re.finditer(r"[()]", text[start:]):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return start + bracket.start()
    return None
