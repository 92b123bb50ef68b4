r"""Rewrites Unicode signs and the output of programs in LaTeX's spelling.

- `unicode_to_latex`: `4 × 10⁵`, `½` and `２` become `4\times 10^{5}`, `\frac{1}{2}` and `2`.
- `program_to_latex`: `2*pi`, `x**2` and `exp(2)` become `2*\pi`, `x^{2}` and `e^{2}`.
- `use_plain_operators`: `6 ⊗ 7` and `1 \oplus 2` become `6 \cdot 7` and `1 + 2`.

Only the spelling changes, never a value; nothing is evaluated here.
"""

import re
import unicodedata
from collections.abc import Iterator

_TIMES = "×✕✖⨯⨉"
_DOTS = "·⋅∙•∗‧・●⸱"
_MINUS = "−–—‐‑‒﹣－➖⁃˗"
_PLUS = "＋﹢➕"
_SLASHES = "∕⁄／"
_RATIOS = "∶：﹕"
# Characters without a width. Marks that reverse the direction of a text are not among them: with
# such a mark a text displays other digits than it has.
_INVISIBLE = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad\u180e\ufe0e\ufe0f"
_CURRENCIES = "$£€¥₹₽₩￥￡＄"
# Inserted into LaTeX as they are: a blank ends each command, so that no letter can join it.
_SYMBOLS = {
    "π": "\\pi ",
    "∞": "\\infty ",
    "±": "\\pm ",
    "≠": "\\neq ",
    "∪": "\\cup ",
    "∅": "\\emptyset ",
    "÷": "\\div ",
    "➗": "\\div ",
    "⟨": "\\langle ",
    "⟩": "\\rangle ",
    "\u00a0": " ",
    "~": " ",
    "¢": " cents",
    "。": ".",
    "、": ",",
    "′": "'",
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎", "0123456789+-=()", strict=True))
# The ASCII characters in full width (`（` for `(`). Braces and backslashes are no LaTeX so.
_FULL_WIDTH = {
    chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) not in "＼｛｝～＄"
}


def _digits_and_fractions() -> Iterator[tuple[str, str]]:
    r"""Yield each special digit and each fraction of one character, with its spelling in LaTeX.

    `("𝟒", "4")` and `("½", "\frac{1}{2}")` are two of the pairs.
    """
    full_width_digits = range(0xFF10, 0xFF1A)
    mathematical_digits = range(0x1D7CE, 0x1D800)  # bold, double-struck, sans-serif, monospace
    for code in (*full_width_digits, *mathematical_digits):
        character = chr(code)
        yield character, unicodedata.normalize("NFKC", character)

    latin_1_fractions = range(0xBC, 0xBF)
    other_fractions = (*range(0x2150, 0x215F), 0x2189)
    for code in (*latin_1_fractions, *other_fractions):
        character = chr(code)
        # Unicode itself decomposes `½` into `1⁄2`, with its fraction slash.
        numerator, _, denominator = unicodedata.normalize("NFKC", character).partition("⁄")
        yield character, f"\\frac{{{numerator}}}{{{denominator}}}"


_LATEX_OF_CHARACTERS = str.maketrans(
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
_SUPERSCRIPT_RUN = re.compile(f"[{re.escape(''.join(_SUPERSCRIPTS))}]+")
_SUBSCRIPT_RUN = re.compile(f"[{re.escape(''.join(_SUBSCRIPTS))}]+")
# `¹⁄₂` with its digits already rewritten: ^{1}/_{2}
_RAISED_FRACTION = re.compile(r"\^\{(\d+)\} ?/ ?_\{(\d+)\}")


def unicode_to_latex(text: str) -> str:
    r"""Return `text` with Unicode's mathematical characters in LaTeX's spelling.

    `"4×10⁵" -> "4\times 10^{5}"`, `"x₁₂" -> "x_{12}"`, `"2½" -> "2\frac{1}{2}"`, `"£5" -> "5"`.
    """
    if text.isascii():
        # The fast path: of all ASCII characters, the translation changes only these two.
        return text.replace("~", " ").replace("$", "")
    text = unicodedata.normalize("NFC", text)
    text = _SUPERSCRIPT_RUN.sub(_write_exponent, text)
    text = _SUBSCRIPT_RUN.sub(_write_index, text)
    text = text.translate(_LATEX_OF_CHARACTERS)
    return _RAISED_FRACTION.sub(r"\\frac{\1}{\2}", text)


def _write_exponent(superscripts: re.Match[str]) -> str:
    """Return a run of superscript characters as an exponent: `"⁻³" -> "^{-3}"`."""
    exponent = "".join(_SUPERSCRIPTS[character] for character in superscripts[0])
    return f"^{{{exponent}}}"


def _write_index(subscripts: re.Match[str]) -> str:
    """Return a run of subscript characters as an index: `"₁₂" -> "_{12}"`."""
    index = "".join(_SUBSCRIPTS[character] for character in subscripts[0])
    return f"_{{{index}}}"


# Operators that algebra defines anew, such as the tensor product. In answers that are plain
# arithmetic they are written for the ordinary operators.
_ALGEBRA_OPERATOR = re.compile(
    r"""
    (?P<times>  [⊗⊙∘⋆★☆○◦⨂⨀⊠⊡✱＊]
              | \\(?:otimes|odot|star|circ|bullet|ast|boxtimes|boxdot|cdotp|centerdot)(?![A-Za-z]))
  | (?P<plus>   [∔⊕⨁⊞] | \\(?:oplus|dotplus|boxplus)(?![A-Za-z]))
  | (?P<minus>  [∸⊖⊟]  | \\(?:ominus|boxminus|dotminus)(?![A-Za-z]))
  | (?P<over>   [⊘⨸]   | \\(?:oslash|slash|backslash)(?![A-Za-z]))
    """,
    re.VERBOSE,
)
_PLAIN_OPERATORS = {"times": "\\cdot ", "plus": "+", "minus": "-", "over": "/"}


def use_plain_operators(text: str) -> str:
    r"""Return `text` with the plain operators in place of algebra's own.

    `"6 ⊗ 7" -> "6 \cdot  7"`, `"1 \oplus 2" -> "1 + 2"`.
    """
    return _ALGEBRA_OPERATOR.sub(lambda sign: _PLAIN_OPERATORS[sign.lastgroup or ""], text)


def has_algebra_operator(text: str) -> bool:
    r"""Return whether a text has an operator that algebra defines anew, such as `\oplus` or `∘`."""
    return _ALGEBRA_OPERATOR.search(text) is not None


# What only the output of a program has; without a match there is nothing to rewrite.
_PROGRAM_SYNTAX = re.compile(
    r"\*\*"
    r"|(?<![A-Za-z\\])(?:pi|oo|inf|exp|sqrt|cbrt|a?(?:sin|cos|tan)h?|log|ln|Rational|Fraction|np)\b"
)
_NUMPY_SCALAR = re.compile(r"\bnp\.(?:float|int)\d* ?\(([^()]*)\)")  # np.float64(2.5)
_MODULE_PREFIX = re.compile(r"\b(?:np|math|sp|sympy)\.(?=[a-z])")  # of `math.sqrt`
_RATIONAL_CALL = re.compile(r"(?<![A-Za-z\\])(?:Rational|Fraction) ?\( ?(-?\d+) ?, ?(-?\d+) ?\)")
_POWER_OF_ATOM = re.compile(r" ?\*\* ?([+-]?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z(]))")  # **-2, **n
_POWER = re.compile(r" ?\*\* ?")
_BRACKETED_POWER = re.compile(r"\^ ?\(")
_EXP_CALL = re.compile(r"(?<![A-Za-z\\])exp ?\(")
_SQRT_CALL = re.compile(r"(?<![A-Za-z\\])sqrt ?\(")
_CBRT_CALL = re.compile(r"(?<![A-Za-z\\])cbrt ?\(")
_FUNCTION_NAME = re.compile(
    r"(?<![A-Za-z\\])(?P<inverse>a(?:rc)?)?(?P<name>(?:sin|cos|tan)h?|log|ln)(?= ?\()"
)
_CONSTANT_NAME = re.compile(r"(?<![A-Za-z\\])(?:(?P<pi>pi)|oo|inf)(?![A-Za-z(])")
_MAX_CALLS = 40  # of one function in a text that are rewritten


def program_to_latex(text: str) -> str:
    r"""Return `text` with the notation of Python, numpy and sympy in LaTeX's spelling.

    `"x**2" -> "x^{2}"`, `"sqrt(2)" -> "\sqrt{2}"`, `"oo" -> "\infty "`, `"np.pi" -> "\pi "`.
    """
    if _PROGRAM_SYNTAX.search(text) is None:
        return text

    # np.float64(2.5) -> 2.5, then math.sqrt(2) -> sqrt(2), then Rational(1, 2) -> 1/2
    text = _NUMPY_SCALAR.sub(r"\1", text)
    text = _MODULE_PREFIX.sub("", text)
    text = _RATIONAL_CALL.sub(r"\1/\2", text)

    # x**-1 -> x^{-1}; x**(1/3) -> x^(1/3) -> x^{1/3}
    text = _POWER_OF_ATOM.sub(r"^{\1}", text)
    text = _POWER.sub("^", text)
    text = _replace_calls(text, _BRACKETED_POWER, command="^")

    text = _replace_calls(text, _EXP_CALL, command="e^")
    text = _replace_calls(text, _SQRT_CALL, command="\\sqrt")
    text = _replace_calls(text, _CBRT_CALL, command="\\sqrt[3]")

    # asin(1) -> \arcsin(1), log(2) -> \log(2): LaTeX keeps the round brackets of these
    text = _FUNCTION_NAME.sub(
        lambda function: f"\\{'arc' if function['inverse'] else ''}{function['name']}", text
    )
    return _CONSTANT_NAME.sub(lambda name: "\\pi " if name["pi"] else "\\infty ", text)


def _replace_calls(text: str, opening: re.Pattern[str], command: str) -> str:
    r"""Return `text` with each call rewritten as a LaTeX command, its argument in braces.

    With `\sqrt` as the command: `"sqrt(2+sqrt(3))" -> "\sqrt{2+\sqrt{3}}"`. A call whose bracket is
    not closed stays as it is, and so do those behind the first `_MAX_CALLS`.

    Args:
        text: The text.
        opening: Matches the function's name and its opening bracket.
        command: What is written in front of the brace.
    """
    search_from = 0
    for _ in range(_MAX_CALLS):
        call = opening.search(text, search_from)
        if call is None:
            break
        closing = _find_closing_bracket(text, call.end())
        if closing is None:
            search_from = call.end()
            continue
        argument = text[call.end() : closing]
        text = f"{text[: call.start()]}{command}{{{argument}}}{text[closing + 1 :]}"
        # The argument may hold calls of the same function: it is searched as well.
        search_from = call.start() + 1
    return text


def _find_closing_bracket(text: str, start: int) -> int | None:
    """Return the index of the `)` that closes the bracket just before `start`; None without one."""
    depth = 1
    for bracket in re.finditer(r"[()]", text[start:]):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return start + bracket.start()
    return None
