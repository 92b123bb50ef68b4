r"""Rewrites LaTeX in one spelling, and reads the words, choices and relations in it.

`normalise_latex` comes first: `\dfrac12`, `\frac {1}2` and `\frac{1}{2}` become the same text. The
other functions take such a text:

- `unwrap` takes off boxes, braces and quotes around all of an answer.
- `read_words`, `read_choice`, `read_choices` and `read_number_in_base` read answers that are no
  formulas: `\text{Yes}`, `(B)`, `B, D`, `101_2`.
- `split_unit` and `adapt_to_math_verify` prepare a formula for math-verify.
- `write_as_intervals` turns `1 \leq x < 2` and `x \in [1, 2)` into `[1, 2)`.

Only the spelling changes, never a value; nothing is evaluated here.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from .signs import program_to_latex, unicode_to_latex

_TEXT_COMMAND = r"\\(?:text|math(?:rm|bf|it)) ?\{"
WRAPPED = re.compile(rf"{_TEXT_COMMAND}([^{{}}]*)\}}")
r"""`\text{cm}` or `\mathbf{5}`, without braces inside; group 1 is what it wraps."""

# --- one spelling

_MARKDOWN = re.compile(r"(\*\*|__|`)(?! )(.+?)(?<! )\1", re.DOTALL)
# `\\le` for `\le`: a command that was escaped once too often.
_ESCAPED_TWICE = re.compile(r"\\\\(?=[A-Za-z]{2})")
# What separates thousands in LaTeX: 1{,}000  1\,000  1,\!000
_THOUSANDS_SEPARATOR = re.compile(
    r"(?<=\d)(?:\\[,!]|\{(?:,|\\[,;: ]| )\}|, ?\\!) ?(?:\\! ?)?(?=\d{3}(?!\d))"
)
# A backslash behind a backslash ends a matrix row and begins no command.
_SPACING = re.compile(
    r"(?<!\\)\\(?:"
    r"[,!;:> ]"
    r"|(?:q?quad|(?:neg)?(?:thin|med|thick)space|en(?:space|skip)|(?:nobreak)?space|hfill"
    r"|left|right|[bB]igg?[lr]?|displaystyle)(?![A-Za-z])"
    r"|hspace\*? ?\{[^{}]*\}"
    r"|(?:hskip|m?kern) ?-?[\d.]{1,9} ?(?:em|ex|pt|mu|px|cm|mm|in)"
    r")"
)
# `1 234 567`, but not `3 100/200`, which is a mixed number.
_GROUPED_BY_BLANKS = re.compile(r"(?<![\w.,}])(\d{1,3})((?: \d{3})++)(?! ?[\d/]| ?\\frac)")
_UNICODE_ROOT = re.compile(r"(?P<sign>[√∛∜]) ?(?:\((?P<bracketed>[^()]*)\)|(?P<bare>\d+|[A-Za-z]))")
_INDEX_OF_ROOT = {"√": "", "∛": "[3]", "∜": "[4]"}
# `∘` is a degree sign if it is raised, or if it ends the answer behind a digit.
_DEGREE = re.compile(
    r" ?(?:\^ ?(?:\{ ?(?:\\circ|[∘º˚°]) ?\}|\\circ(?![A-Za-z])|[∘º˚°])|[°º˚]|(?<=\d)∘$)"
)
_BRACKETED_EXPONENT = re.compile(r"\^ ?\(([^(){}]*)\)")
_I_BEHIND_DIGIT = re.compile(r"(?<=\d)i(?![A-Za-z])")


def normalise_latex(text: str) -> str:
    r"""Return `text` in one spelling: the same for all ways to write the same formula.

    Dollar signs, sizing and spacing are dropped, and arguments get braces:
    `"$\left(\dfrac12,\ \sqrt5\right)$" -> "(\frac{1}{2}, \sqrt{5} )"`. Unicode and the notation of
    programs become LaTeX: `"sqrt(3) × 10⁵" -> "\sqrt{3} \times 10^{5}"`.
    """
    markdown = _MARKDOWN.fullmatch(text.strip())
    if markdown:
        text = markdown[2]
    text = text.replace("\\$", "").replace("\\%", "%")
    text = unicode_to_latex(text)

    # In a matrix `\\` ends a row; elsewhere it is an escaped backslash, or a line break at the end.
    if "\\\\" in text and "\\begin" not in text:
        text = _ESCAPED_TWICE.sub("\\\\", text)
        text = text.rstrip().removesuffix("\\\\")

    # 1{,}000 and 1 000 -> 1,000
    text = _THOUSANDS_SEPARATOR.sub(",", text)
    text = _SPACING.sub(" ", text)
    text = " ".join(text.split())
    text = _GROUPED_BY_BLANKS.sub(lambda number: number[0].replace(" ", ","), text)

    text = _UNICODE_ROOT.sub(_write_root, text)
    if "\\" in text:
        text = _normalise_commands(text)
    text = _DEGREE.sub("°", text)  # 90^\circ -> 90°
    text = program_to_latex(text)
    text = _BRACKETED_EXPONENT.sub(r"^{\1}", text)  # x^(2) -> x^{2}
    return _I_BEHIND_DIGIT.sub(" i", text)  # 3i -> 3 i


def _write_root(root: re.Match[str]) -> str:
    r"""Return a root with a Unicode sign as a command: `"∛(x+1)" -> "\sqrt[3]{x+1}"`."""
    radicand = root["bracketed"] or root["bare"]
    return f"\\sqrt{_INDEX_OF_ROOT[root['sign']]}{{{radicand}}}"


_MATH_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_NAMED_BRACKET = re.compile(r"\\([lr](?:brac[ek]|paren))(?![A-Za-z])")
_BRACKET_OF_NAME = {
    "lbrace": "\\{",
    "rbrace": "\\}",
    "lbrack": "[",
    "rbrack": "]",
    "lparen": "(",
    "rparen": ")",
}
_CURRENCY = re.compile(
    r"\\(?:pounds|euro|yen|text(?:dollar|euro|sterling|yen))(?![A-Za-z]) ?(?:\{ ?\})?"
)
_EMPTY_SET = re.compile(r"\\varnothing(?![A-Za-z])|\\\{ ?\\\}")
_SLANTED_RELATION = re.compile(r"\\([lg]eq)slant")
_FRACTION_VARIANT = re.compile(r"\\(?:[dtcs]|nice)(frac)(?![A-Za-z])")
_OVER = re.compile(r"\{ ?([^{}]*?) ?\\over(?![A-Za-z]) ?([^{}]*?) ?\}")
_ALL_OVER = re.compile(r"([^{}\\]+?) ?\\over(?![A-Za-z]) ?([^{}\\]+)")
# Python refuses to convert integers of over 4300 digits.
_FRACTION_TIMES_NUMBER = re.compile(
    r"\\frac ?(?P<top>\d) ?(?P<bottom>\d)(?P<factor>\d{1,4000})(?![\d/,.])"
)
# TeX takes one character or command as an argument without braces.
_BARE_ARGUMENT = r"((?!\\(?:frac|sqrt)(?![A-Za-z]))\\[A-Za-z]+|[0-9A-Za-z])"
_BARE_NUMERATOR = re.compile(rf"\\frac ?{_BARE_ARGUMENT}")
_BARE_DENOMINATOR = re.compile(rf"(\\frac ?\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}) ?{_BARE_ARGUMENT}")
_BARE_RADICAND = re.compile(rf"\\sqrt ?(\[[^\[\]]*\])? ?{_BARE_ARGUMENT}")
_ROOT_OF_MINUS_1 = re.compile(r"\\sqrt ?\{ ?- ?1 ?\}")
_TEXT_VARIANT = re.compile(
    r"\\(?:text(?:rm|bf|it|sf|tt|sl|sc|up|md|normal)|mbox|hbox|emph|underline)(?= ?\{)"
)
_FONT_VARIANT = re.compile(r"\\math(?:sf|tt|normal)(?= ?\{)")
_WRAPPED_NUMBER = re.compile(rf"{_TEXT_COMMAND} ?(-?[\d,]*+(?:\.\d++|(?<=\d))) ?\}}")
_PHANTOM = re.compile(r"\\[hv]?phantom ?(?:\{[^{}]*\}|\S)")
_SEGMENT = re.compile(r"\\overline ?\{ ?([A-Z]{2}) ?\}")
_TEXT_INDEX = re.compile(r"_ ?\{ ?\\(?:text ?\{ ?(\w+) ?\}|([A-Za-z]+)) ?\}")


def _normalise_commands(text: str) -> str:
    r"""Return a text with one command for all that mean the same, and braces around arguments.

    `"\tfrac1{72}" -> "\frac{1}{72}"`, `"x \geqslant 2" -> "x \geq 2"`, `"\mathbf{5}" -> "5"`.
    """
    text = _MATH_DELIMITER.sub(" ", text).strip()  # \( and \]
    text = _NAMED_BRACKET.sub(lambda bracket: _BRACKET_OF_NAME[bracket[1]], text)  # \lbrace -> \{
    text = _CURRENCY.sub("", text)
    text = _EMPTY_SET.sub(r"\\emptyset", text)  # \varnothing, \{\}
    text = _SLANTED_RELATION.sub(r"\\\1", text)  # \leqslant -> \leq
    text = _FRACTION_VARIANT.sub(r"\\\1", text)  # \dfrac -> \frac

    # TeX's old fractions: {1 \over 2} -> \frac{1}{2}. Around the whole text they need no braces
    if "\\over" in text:
        if _ALL_OVER.fullmatch(text):
            text = _ALL_OVER.sub(r"\\frac{\1}{\2}", text)
        text = _OVER.sub(r"\\frac{\1}{\2}", text)

    text = _FRACTION_TIMES_NUMBER.sub(_multiply_numerator, text)  # \frac123 -> \frac{3}{2}
    text = _BARE_NUMERATOR.sub(r"\\frac{\1}", text)  # \frac12 -> \frac{1}2
    text = _BARE_DENOMINATOR.sub(r"\1{\2}", text)  # \frac{1}2 -> \frac{1}{2}
    text = _BARE_RADICAND.sub(r"\\sqrt\1{\2}", text)  # \sqrt[3]5 -> \sqrt[3]{5}
    text = _ROOT_OF_MINUS_1.sub(" i ", text)

    text = _TEXT_VARIANT.sub(r"\\text", text)  # \mbox{cm} -> \text{cm}
    text = _FONT_VARIANT.sub(r"\\mathrm", text)  # \mathsf{cm} -> \mathrm{cm}
    text = _WRAPPED_NUMBER.sub(r"\1", text)  # \mathbf{5} -> 5
    text = _PHANTOM.sub("", text)  # \phantom{-} only takes up space
    text = _SEGMENT.sub(r"\1", text)  # \overline{CD} -> CD
    return _TEXT_INDEX.sub(r"_{\1\2}", text).strip()  # x_{\text{max}} -> x_{max}


def _multiply_numerator(match: re.Match[str]) -> str:
    r"""Return a fraction of two digits and the number behind it as one fraction.

    TeX reads `\frac123` as half of 3: `"\frac123" -> "\frac{3}{2}"`.
    """
    numerator = int(match["top"]) * int(match["factor"])
    return f"\\frac{{{numerator}}}{{{match['bottom']}}}"


# --- wrapping

_QUOTES = ('"', "'", "`", "**", "''")
_MAX_WRAPPERS = 5
_WRAPPER = re.compile(r"(?:(?P<text>\\(?:text|math|bold|mbox)[a-z]* ?)|\\(?:boxed|fbox) ?)?\{ ?")
# A number, fraction, root or pi, with no word behind it.
_FORMULA = re.compile(r"[-+]? ?(?:\\(?:frac|sqrt|pi)|[\d.])(?!.*(?<![A-Za-z\\])[A-Za-z]{2})")
_BRACE = re.compile(r"(?<!\\)[{}]")


def unwrap(text: str) -> str:
    r"""Return a normalised text without the box, braces or quotes around all of it.

    `"\boxed{\{3\}}" -> "\{3\}"`, `"{10,100}" -> "10,100"`. `\text{}` goes only if it wraps a
    formula: `"\mathbf{\frac{1}{2}}" -> "\frac{1}{2}"`, but `\text{Yes}` stays.
    """
    for _ in range(_MAX_WRAPPERS):
        text = _strip_quotes(text.strip())
        wrapper = _WRAPPER.match(text)
        if wrapper is None:
            break
        if wrapper["text"] and not _FORMULA.match(text, wrapper.end()):
            break  # words: `\text{Yes}`
        closing = _find_closing_brace(text, wrapper.end())
        if closing is None or closing + 1 < len(text.rstrip(" .")):
            break  # more follows: `\boxed{3} \boxed{4}`
        text = text[wrapper.end() : closing].strip()
    return text


def _find_closing_brace(text: str, start: int) -> int | None:
    """Return the index of the brace that closes the one just before `start`; None without one."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return None


def _strip_quotes(text: str) -> str:
    """Return a text without the quotation marks, backticks or stars around all of it."""
    for quote in _QUOTES:
        inside = text[len(quote) : -len(quote)]
        if inside and text == f"{quote}{inside}{quote}" and quote not in inside:
            return inside.strip()
    return text


# --- words and times

# A time of day: 4:30 p.m.
_TIME = re.compile(r"0?(?P<digits>\d{1,2}(?: ?: ?[0-5]\d)+) *(?:(?P<half_of_day>[ap])\.? ?m\.?)?")
# Four letters and more, a \text{} with a word, or a \text{} with several capital letters.
_WORDS = re.compile(
    r"[A-Za-z][A-Za-z ]{3,}"
    rf"|{_TEXT_COMMAND} ?[\w ,.:'-]*[A-Za-z]{{2}}[\w ,.:'-]*\}}"
    rf"|{_TEXT_COMMAND}[A-Z](?:, ?[A-Z])+\}}"
)


def read_words(text: str) -> str | None:
    r"""Return the words of a normalised text as `normalise_words` does; None if it is a formula.

    `"\text{May}" -> "may"`, `"4:30 \text{ PM}" -> "4:30p"`; `C`, `abc` and `5 \text{ cm}` are
    formulas.
    """
    is_time = _TIME.fullmatch(WRAPPED.sub(r"\1", text).lower())
    if is_time or _WORDS.fullmatch(text.rstrip(" .,")):
        return normalise_words(text)
    return None


def normalise_words(text: str) -> str:
    r"""Return a normalised text as plain words, so that equal answers in words are equal texts.

    Case, `\text{}` and punctuation at the end are dropped, and single letters sorted:
    `"\text{Two lines}." -> "two lines"`, `"\text{C, A}" -> "a,c"`, `"05:00 p.m." -> "5:00p"`.
    """
    text = WRAPPED.sub(r"\1", text).lower().strip(" .,")
    time = _TIME.fullmatch(text)
    if time:
        return time["digits"].replace(" ", "") + (time["half_of_day"] or "")
    items = re.split(r" ?, ?", text)
    # Letters of choices, unlike words, may come in any order.
    if all(len(item) == 1 for item in items):
        items.sort()
    return ",".join(items)


# --- choices

_CHOICE = re.compile(
    r"(?P<open>\(?) ?(?P<letter>[A-J]) ?(?P<close>\)?)(?P<period_or_colon>[.:]?)(?P<content>.*)",
    re.DOTALL,
)
_LONE_CHOICE_LETTER = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])")
_WORD_OR_LIST = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2}|[,;]")


def read_choice(text: str) -> str | None:
    r"""Return the letter of a choice; None for other texts, as `split_choice` decides it.

    `C`, `(C)`, `\text{(C) } 14` and `C. 14` are the choice `C`.
    """
    letter, _ = split_choice(text)
    return letter


def split_choice(text: str) -> tuple[str | None, str]:
    r"""Return the letter of a choice and the value behind it: `"\text{(C) } 14" -> ("C", "14")`.

    The value has to be one value without words that names no other choice, and a `)`, `.` or `:`
    has to stand in front of it.

    Returns:
        (letter, value). The value is empty if only the letter is there. (None, "") if the text is
        no choice.
    """
    no_choice = (None, "")
    plain = WRAPPED.sub(r"\1", text).strip(" .")  # without \text{}
    match = _CHOICE.fullmatch(plain)
    if match is None:
        return no_choice
    content = match["content"].strip()
    if not content:
        return match["letter"], ""
    is_unclosed = match["open"] and not match["close"]
    has_delimiter = match["close"] or match["period_or_colon"]
    if is_unclosed or not has_delimiter:
        return no_choice
    if _LONE_CHOICE_LETTER.search(content) or _WORD_OR_LIST.search(content):
        return no_choice
    return match["letter"], content


_CHOICES = re.compile(r"\(?[A-J]\)?(?: *(?:,|;|&|and|, ?and) *\(?[A-J]\)?)+")
# Two or more letters in the order of the alphabet: `BD`.
_JOINED_CHOICES = re.compile(r"(?=[A-J]{2})A?B?C?D?E?F?G?H?I?J?")


def read_choices(text: str) -> str | None:
    """Return the letters of several choices in a normalised text, in order; None for other texts.

    `B, D`, `(D) and (B)` and `BD` are all `"BD"`.
    """
    plain = WRAPPED.sub(r"\1", text).strip(" .")
    if _JOINED_CHOICES.fullmatch(plain):
        return plain
    if _CHOICES.fullmatch(plain):
        letters = set(re.findall("[A-J]", plain))
        return "".join(sorted(letters))
    return None


# --- numbers in other bases

_NUMBER_IN_BASE = re.compile(
    r"(?P<sign_outside>-?)\(? ?(?P<sign_inside>-?)"
    r"(?P<whole>[0-9A-Z]+)(?:\.(?P<decimals>[0-9A-Z]+))? ?\)? ?_ ?\{? ?(?P<base>\d\d?|[a-z]+) ?\}?"
)
_BASE_OF_WORD = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}


def read_number_in_base(text: str) -> tuple[Fraction, int] | None:
    r"""Return value and base of a normalised number with its base behind it; None for other texts.

    `"43_5" -> (23, 5)`, `"(-221)_{\text{three}}" -> (-25, 3)`.
    """
    plain = WRAPPED.sub(r"\1", text).rstrip(" .")  # without \text{}
    match = _NUMBER_IN_BASE.fullmatch(plain)
    if match is None:
        return None
    base_text = match["base"]
    base = int(base_text) if base_text.isdigit() else _BASE_OF_WORD.get(base_text, 0)
    if base < 2:
        return None
    decimals = match["decimals"] or ""
    try:
        digits = int(match["whole"] + decimals, base)
    except ValueError:  # a digit that the base does not have, or a base over 36
        return None
    value = Fraction(digits, base ** len(decimals))
    if match["sign_outside"] != match["sign_inside"]:
        value = -value
    return value, base


# --- formulas for math-verify

_UNIT = re.compile(rf"(?<=[\w)}}\]°]) ?{_TEXT_COMMAND}([^{{}}\d\\]*)\}}((?:\^\{{?[23]\}}?)?)$")


def split_unit(text: str) -> tuple[str, str]:
    r"""Return a normalised text without the `\text{}` at its end, and the unit in it.

    The unit is in lower case and singular, with its power:
    `"3\pi\text{ Inches}^2." -> ("3\pi", "inche2")`. It is empty if there is none.
    """
    text = text.rstrip(" .,;")
    match = _UNIT.search(text)
    if match is None:
        return text, ""
    name = match[1].strip(" .").lower().removesuffix("s")
    power = re.sub(r"\W", "", match[2])
    return text[: match.start()], name + power


_JOINT = re.compile(rf"(?:, ?)?{_TEXT_COMMAND} ?,? ?(?:and|or) ?\}}")
# `E_1` would be read as Euler's number, and `\gamma` as a constant.
_MISREAD_NAME = re.compile(r"\\(gamma)(?![A-Za-z])|(?<![A-Za-z\\])([Ee])(?= ?_)")
_GREATER_SIGN = re.compile(r"(>=?|≥|\\g(?:eq?|t)(?![A-Za-z]))")
_LESS_SIGN_OR_LIST = re.compile(r"[<,;]|\\l(?:eq?|t)(?![A-Za-z])")


def adapt_to_math_verify(text: str) -> str:
    r"""Return a normalised text that math-verify reads as it is meant.

    - Lists have commas: `"6, 8\text{, and }10" -> "6, 8, 10"`.
    - Chains of `>` begin with their smallest term: `"c > b \geq a" -> " a\leq b <c "`.
    - Letters that it takes for constants are names: `"E_{1}" -> "\text{nameE}_{1}"`.
    """
    text = _JOINT.sub(", ", text)
    text = _MISREAD_NAME.sub(r"\\text{name\1\2}", text)

    terms_and_signs = _GREATER_SIGN.split(text)  # ["c ", ">", " b ", "\\geq", " a"]
    is_chain = len(terms_and_signs) >= 5
    if not is_chain or _LESS_SIGN_OR_LIST.search(text):
        return text
    for i in range(1, len(terms_and_signs), 2):
        is_strict = terms_and_signs[i] in (">", "\\gt")
        terms_and_signs[i] = "<" if is_strict else "\\leq"
    return "".join(reversed(terms_and_signs))


# --- relations and ranges

RELATION = re.compile(
    r"[=<>≤≥≠≈;]"
    r"|\\(?:leq?|geq?|neq?|lt|gt|approx|equiv|sim|in|to|lor|land|vee|wedge|iff|implies|Rightarrow"
    r"|rightarrow|Leftrightarrow|leftrightarrow|mid|propto|cong|simeq)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:or|and)(?![A-Za-z])"
)
r"""What makes a statement of a value: `=`, `<`, `\in`, `\to`, `or`, a `;` between statements."""

_ORDER_SIGN = re.compile(r" ?([<>≤≥]=?|\\[lg](?:t|eq?)(?![a-z])) ?")
_STRICT_SIGN = re.compile(r"[<>]|\\[lg]t")
_NOT_IN_BOUND = re.compile(r"[=,;]|\\(?:neq?|in|approx)(?![A-Za-z])")
_MEMBERSHIP = re.compile(r"(?P<letter>[A-Za-z]) ?\\in(?![A-Za-z]) ?(?P<values>.+)", re.DOTALL)
_OR = re.compile(
    r" ?(?:(?<![A-Za-z])or(?![A-Za-z])|\\text ?\{ ?or ?\}|\\lor(?![A-Za-z])|\\vee(?![A-Za-z])) ?"
)
_LETTER = re.compile("[A-Za-z]")
_LONE_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")


class LetterRange(NamedTuple):
    """The letter of a membership or inequality, empty without one, and the values it may have."""

    letter: str
    values: str


def write_as_intervals(gold: str, answer: str) -> tuple[str, str]:
    r"""Return two normalised texts as intervals if both say in which range one letter is.

    `"x \in [1, 2)"` and `"1 \leq x < 2"` both become `"[1, 2)"`. An interval without a letter
    matches any letter. Two different letters, and texts of other kinds, are returned unchanged.
    """
    gold_range = _read_range(gold)
    answer_range = _read_range(answer)
    both_have_letters = gold_range.letter and answer_range.letter
    if both_have_letters and gold_range.letter != answer_range.letter:
        return gold, answer
    if _is_bracketed(gold_range.values) and _is_bracketed(answer_range.values):
        return gold_range.values, answer_range.values
    return gold, answer


def _is_bracketed(text: str) -> bool:
    return text[:1] in ("(", "[") and text[-1:] in (")", "]") and "," in text


def _read_range(text: str) -> LetterRange:
    r"""Return the letter and the values of `x \in S`, or of inequalities with `or` between them.

    `"x < 1 \text{ or } x > 3" -> ("x", "(-\infty, 1) \cup (3, \infty)")`. Other texts are returned
    as the values of no letter.
    """
    membership = _MEMBERSHIP.fullmatch(text)
    if membership:
        return LetterRange(membership["letter"], membership["values"])
    intervals = []
    for inequality in _OR.split(text.strip(" .")):
        interval = _read_interval(inequality.strip())
        if interval is None:
            return LetterRange("", text)
        intervals.append(interval)
    letters = set(_LONE_LETTER.findall(_OR.sub(" ", text)))
    if len(letters) != 1:
        return LetterRange("", text)
    return LetterRange(letters.pop(), " \\cup ".join(intervals))


def _read_interval(text: str) -> str | None:
    r"""Return the interval that an inequality for one letter describes; None for other texts.

    `"1 \leq x < 2" -> "[1, 2)"`, `"2 > x > 1" -> "(1, 2)"`, `"x \leq 5" -> "(-\infty, 5]"`.
    """
    terms_and_signs = _ORDER_SIGN.split(text)
    terms = terms_and_signs[::2]
    signs = terms_and_signs[1::2]
    directions = {_is_greater_sign(sign) for sign in signs}
    point_the_same_way = len(directions) == 1
    if not point_the_same_way or not all(terms):
        return None
    # Put the smallest term first: 2 > x > 1 -> 1 < x < 2
    if _is_greater_sign(signs[0]):
        terms.reverse()
        signs.reverse()
    if any(_NOT_IN_BOUND.search(term) for term in terms):
        return None

    includes_bound = [not _STRICT_SIGN.fullmatch(sign) for sign in signs]
    # One bound is missing: x < 5 is -\infty < x < 5, and 3 < x is 3 < x < \infty
    if len(terms) == 2:
        if _LETTER.fullmatch(terms[0]):
            terms.insert(0, "-\\infty")
            includes_bound.insert(0, False)
        else:
            terms.append("\\infty")
            includes_bound.append(False)
    if len(terms) != 3 or not _LETTER.fullmatch(terms[1]):
        return None
    opening_bracket = "[" if includes_bound[0] else "("
    closing_bracket = "]" if includes_bound[1] else ")"
    return f"{opening_bracket}{terms[0]}, {terms[2]}{closing_bracket}"


def _is_greater_sign(sign: str) -> bool:
    r"""Return whether a sign is `>`, `≥`, `\gt` or `\geq`, rather than one of `<`."""
    return sign[0] in ">≥" or sign[1:2] == "g"
