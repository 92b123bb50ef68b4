r"""One spelling for what LaTeX lets people write in several ways, and the relations around a value.

`\dfrac12`, `\frac {1}2` and `\frac{1}{2}` become the same text; `x = 5`, `x \in [1, 2]` and `1 \leq x < 2` are taken
apart. Only the spelling changes, never a value; nothing is evaluated here.
"""

import re
from fractions import Fraction

from .signs import latex_calls, latex_signs

_THOUSANDS = re.compile(r"(?<=\d)(?:\\[,!]|\{(?:,|\\[,;: ]| )\}|, ?\\!) ?(?:\\! ?)?(?=\d{3}(?!\d))")
# A backslash behind a backslash ends a matrix row and begins no command.
_SPACING = re.compile(
    r"(?<!\\)\\(?:[,!;:> ]|(?:q?quad|(?:neg)?(?:thin|med|thick)space|en(?:space|skip)|(?:nobreak)?space|hfill"
    r"|left|right|[bB]igg?[lr]?|displaystyle)(?![A-Za-z])|hspace\*? ?\{[^{}]*\}"
    r"|(?:hskip|m?kern) ?-?[\d.]{1,9} ?(?:em|ex|pt|mu|px|cm|mm|in))"
)
# A blank may group the digits of a number, but `3 100/200` is a mixed number.
_GROUPED = re.compile(r"(?<![\w.,}])(\d{1,3})((?: \d{3})++)(?! ?[\d/]| ?\\frac)")
_STYLE = re.compile(
    r"\\(?:text(?:rm|bf|it|sf|tt|sl|sc|up|md|normal)|mbox|hbox|emph|underline)(?= ?\{)"
)
_FONT = re.compile(r"\\math(?:sf|tt|normal)(?= ?\{)")
# What has been escaped once too often.
_ESCAPED = re.compile(r"\\\\(?=[A-Za-z]{2})")
_MAX_WRAPPERS = 5
_WHOLE = re.compile(r"(?:(?P<bold>\\(?:text|math|bold|mbox)[a-z]* ?)|\\(?:boxed|fbox) ?)?\{ ?")
_MATH = re.compile(r"[-+]? ?(?:\\(?:frac|sqrt|pi)|[\d.])(?!.*(?<![A-Za-z\\])[A-Za-z]{2})")
_BRACE = re.compile(r"(?<!\\)[{}]")
# `∘` is a sign of degrees where it is raised, or ends the answer behind a digit.
_DEGREE = re.compile(
    r" ?(?:\^ ?(?:\{ ?(?:\\circ|[∘º˚°]) ?\}|\\circ(?![A-Za-z])|[∘º˚°])|[°º˚]|(?<=\d)∘$)"
)
_ARGUMENT = r"((?!\\(?:frac|sqrt)(?![A-Za-z]))\\[A-Za-z]+|[0-9A-Za-z])"
_TOP = re.compile(rf"\\frac ?{_ARGUMENT}")
_BOTTOM = re.compile(rf"(\\frac ?\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}) ?{_ARGUMENT}")
_ROOT = re.compile(rf"\\sqrt ?(\[[^\[\]]*\])? ?{_ARGUMENT}")
# `\frac123` is half of 3.
_FRACTION_TIMES = re.compile(r"\\frac ?(\d) ?(\d)(\d+)(?![\d/,.])")
_OVER = re.compile(r"\{ ?([^{}]*?) ?\\over(?![A-Za-z]) ?([^{}]*?) ?\}")
_ALL_OVER = re.compile(r"([^{}\\]+?) ?\\over(?![A-Za-z]) ?([^{}\\]+)")
_DELIMITER = re.compile(r"(?<!\\)\\[()\[\]]")
_BRACE_NAMES = {
    "lbrace": "\\{",
    "rbrace": "\\}",
    "lbrack": "[",
    "rbrack": "]",
    "lparen": "(",
    "rparen": ")",
}
_NAMED_BRACE = re.compile(r"\\([lr](?:brac[ek]|paren))(?![A-Za-z])")
_CURRENCY = re.compile(
    r"\\(?:pounds|euro|yen|text(?:dollar|euro|sterling|yen))(?![A-Za-z]) ?(?:\{ ?\})?"
)
_MARKDOWN = re.compile(r"(\*\*|__|`)(?! )(.+?)(?<! )\1", re.DOTALL)
_ROOT_OF_MINUS_1 = re.compile(r"\\sqrt ?\{ ?- ?1 ?\}")
_WRAP = r"\\(?:text|math(?:rm|bf|it)) ?\{"
WRAPPED = re.compile(rf"{_WRAP}([^{{}}]*)\}}")
_WRAPPED_NUMBER = re.compile(rf"{_WRAP} ?(-?[\d,]*+(?:\.\d++|(?<=\d))) ?\}}")
_POWER = re.compile(r"\^ ?\(([^(){}]*)\)")
_RADICAL = re.compile(r"([√∛∜]) ?(?:\(([^()]*)\)|(\d+|[A-Za-z]))")
_DEGREES_OF_ROOTS = {"√": "", "∛": "[3]", "∜": "[4]"}
_SUBSCRIPT = re.compile(r"_ ?\{ ?\\(?:text ?\{ ?(\w+) ?\}|([A-Za-z]+)) ?\}")
_PHANTOM = re.compile(r"\\[hv]?phantom ?(?:\{[^{}]*\}|\S)")
_SEGMENT = re.compile(r"\\overline ?\{ ?([A-Z]{2}) ?\}")
_JOINT = re.compile(rf"(?:, ?)?{_WRAP} ?,? ?(?:and|or) ?\}}")
_UNIT = re.compile(rf"(?<=[\w)}}\]°]) ?{_WRAP}([^{{}}\d\\]*)\}}((?:\^\{{?[23]\}}?)?)$")
_WORDS = re.compile(
    rf"[A-Za-z][A-Za-z ]{{3,}}|{_WRAP} ?[\w ,.:'-]*[A-Za-z]{{2}}[\w ,.:'-]*\}}|{_WRAP}[A-Z](?:, ?[A-Z])+\}}"
)
_NAME = re.compile(r"\\(gamma)(?![A-Za-z])|(?<![A-Za-z\\])([Ee])(?= ?_)")
_GREATER = re.compile(r"(>=?|≥|\\g(?:eq?|t)(?![A-Za-z]))")
_CLOCK = re.compile(r"0?(\d{1,2}(?: ?: ?[0-5]\d)+) *(?:([ap])\.? ?m\.?)?")
_BASED = re.compile(r"(-?)\(? ?(-?)([0-9A-Z]+)(?:\.([0-9A-Z]+))? ?\)? ?_ ?\{? ?(\d\d?|[a-z]+) ?\}?")
_BASES = {
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


def tidy(text: str) -> str:
    r"""Return `text` without dollar signs, sizing and spacing commands, with braces around all arguments.

    Also with `\frac` for its variants, `°` for degrees, and numbers out of `\text{}` and apart from an `i` behind them.
    """
    if marked := _MARKDOWN.fullmatch(text.strip()):
        text = marked[2]
    text = latex_signs(text.replace("\\$", "").replace("\\%", "%"))
    if "\\\\" in text and "\\begin" not in text:
        text = _ESCAPED.sub("\\\\", text).rstrip().removesuffix("\\\\")
    text = " ".join(_SPACING.sub(" ", _THOUSANDS.sub(",", text)).split())
    text = _GROUPED.sub(lambda number: number[0].replace(" ", ","), text)
    text = _RADICAL.sub(
        lambda root: f"\\sqrt{_DEGREES_OF_ROOTS[root[1]]}{{{root[2] or root[3]}}}", text
    )
    if "\\" in text:
        text = _tidy_commands(text)
    text = _POWER.sub(r"^{\1}", latex_calls(_DEGREE.sub("°", text)))
    return re.sub(r"(?<=\d)i(?![A-Za-z])", " i", text)


def _tidy_commands(text: str) -> str:
    """Return a text with one command for all that mean the same, and braces around their arguments."""
    text = _DELIMITER.sub(" ", text).strip()
    text = _CURRENCY.sub("", _NAMED_BRACE.sub(lambda name: _BRACE_NAMES[name[1]], text))
    text = re.sub(r"\\varnothing(?![A-Za-z])|\\\{ ?\\\}", r"\\emptyset", text)
    text = re.sub(r"\\([lg]eq)slant|\\(?:[dtcs]|nice)(frac)(?![A-Za-z])", r"\\\1\2", text)
    if "\\over" in text:
        text = _ALL_OVER.sub(r"\\frac{\1}{\2}", text) if _ALL_OVER.fullmatch(text) else text
        text = _OVER.sub(r"\\frac{\1}{\2}", text)
    text = _FRACTION_TIMES.sub(
        lambda part: f"\\frac{{{int(part[1]) * int(part[3])}}}{{{part[2]}}}", text
    )
    text = _ROOT.sub(r"\\sqrt\1{\2}", _BOTTOM.sub(r"\1{\2}", _TOP.sub(r"\\frac{\1}", text)))
    text = _ROOT_OF_MINUS_1.sub(" i ", text)
    text = _FONT.sub(r"\\mathrm", _STYLE.sub(r"\\text", text))
    text = _SEGMENT.sub(r"\1", _PHANTOM.sub("", _WRAPPED_NUMBER.sub(r"\1", text)))
    return _SUBSCRIPT.sub(r"_{\1\2}", text).strip()


_QUOTES = ('"', "'", "`", "**", "''")


def unwrapped(text: str) -> str:
    r"""Return what a tidy text holds in a box, in braces or, if it is mathematics, in `\text{}`, and nothing else."""
    for _ in range(_MAX_WRAPPERS):
        text = _unquoted(text.strip())
        match = _WHOLE.match(text)
        if match is None or (match["bold"] and not _MATH.match(text, match.end())):
            break
        depth = 1
        for brace in _BRACE.finditer(text, match.end()):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                break
        if depth or brace.end() < len(text.rstrip(" .")):
            break
        text = text[match.end() : brace.start()].strip()
    return text


def _unquoted(text: str) -> str:
    """Return a text without quotation marks, backticks or stars around the whole of it."""
    for mark in _QUOTES:
        inside = text[len(mark) : -len(mark)]
        if inside and text == f"{mark}{inside}{mark}" and mark not in inside:
            return inside.strip()
    return text


def words(text: str) -> str | None:
    """Return the plain words of a tidy text that is words, choices or a time, and no formula; None for any other."""
    plain = _CLOCK.fullmatch(WRAPPED.sub(r"\1", text).lower()) or _WORDS.fullmatch(
        text.rstrip(" .,")
    )
    return spoken(text) if plain else None


def spoken(text: str) -> str:
    """Return a tidy text as words: what wraps them, case and punctuation at their end count for nothing."""
    text = WRAPPED.sub(r"\1", text).lower().strip(" .,")
    if clock := _CLOCK.fullmatch(text):
        return clock[1].replace(" ", "") + (clock[2] or "")
    parts = re.split(r" ?, ?", text)
    # Choices, unlike words, may come in any order.
    return ",".join(sorted(parts) if all(len(part) == 1 for part in parts) else parts)


_CHOICE = re.compile(
    r"(?P<open>\(?) ?(?P<letter>[A-J]) ?(?P<close>\)?)(?P<mark>[.:]?)(?P<content>.*)", re.DOTALL
)
_OTHER_CHOICE = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])")


def choice(text: str) -> str | None:
    r"""Return the letter of a choice, such as `C`, `(C)`, `\text{(C) } 14` or `C. 14`; None for other texts.

    What follows the letter has to be a value without words, and name no other choice.
    """
    letter, _ = choice_and_content(text)
    return letter


def choice_and_content(text: str) -> tuple[str | None, str]:
    """Return the letter of a choice, as `choice` does, and what follows it."""
    match = _CHOICE.fullmatch(WRAPPED.sub(r"\1", text).strip(" ."))
    if match is None:
        return None, ""
    content = match["content"].strip()
    if not content:
        return match["letter"], ""
    if not (match["close"] or match["mark"]) or bool(match["open"]) > bool(match["close"]):
        return None, ""
    if _OTHER_CHOICE.search(content) or re.search(r"(?<![A-Za-z\\])[A-Za-z]{2}|[,;]", content):
        return None, ""
    return match["letter"], content


_CHOICES = re.compile(r"\(?[A-J]\)?(?: *(?:,|;|&|and|, ?and) *\(?[A-J]\)?)+")
_JOINED_CHOICES = re.compile(r"(?=[A-J]{2})A?B?C?D?E?F?G?H?I?J?")


def choices(text: str) -> str | None:
    """Return the letters of several choices in a tidy text, such as `B, D` or `BD`, in order; None for others."""
    plain = WRAPPED.sub(r"\1", text).strip(" .")
    if _JOINED_CHOICES.fullmatch(plain):
        return plain
    return "".join(sorted(set(re.findall("[A-J]", plain)))) if _CHOICES.fullmatch(plain) else None


def based(text: str) -> tuple[Fraction, int] | None:
    """Return value and base of a tidy number with a base behind it, such as `(12)_5`; None for anything else."""
    if (match := _BASED.fullmatch(WRAPPED.sub(r"\1", text).rstrip(" ."))) is None:
        return None
    outer, inner, whole, part, written = match.groups(default="")
    base = int(written) if written.isdigit() else _BASES.get(written, 0)
    try:
        value = Fraction(int(whole + part, base or 1), base ** len(part))
    except ValueError:  # a digit that the base does not have, or a base that is none
        return None
    return (-value if outer != inner else value), base


def split_unit(text: str) -> tuple[str, str]:
    r"""Return a tidy text without the `\text{ unit}` at its end, and the unit: singular, lower-case, with its power."""
    text = text.rstrip(" .,;")
    if (match := _UNIT.search(text)) is None:
        return text, ""
    return text[: match.start()], match[1].strip(" .").lower().removesuffix("s") + re.sub(
        r"\W", "", match[2]
    )


def formula(text: str) -> str:
    r"""Return a tidy text as math-verify reads it rightly.

    With commas for the `\text{ and }` of a list, chains of `>` from their other end, and names for the
    letters that it takes for numbers or cannot read.
    """
    text = _NAME.sub(r"\\text{name\1\2}", _JOINT.sub(", ", text))
    sides = _GREATER.split(text)
    if len(sides) < 5 or re.search(r"[<,;]|\\l(?:eq?|t)(?![A-Za-z])", text):
        return text
    for i in range(1, len(sides), 2):
        sides[i] = "<" if sides[i] in (">", "\\gt") else "\\leq"
    return "".join(reversed(sides))


RELATION = re.compile(
    r"[=<>≤≥≠≈;]|\\(?:leq?|geq?|neq?|lt|gt|approx|equiv|sim|in|to|lor|land|vee|wedge|iff|implies|Rightarrow"
    r"|rightarrow|Leftrightarrow|leftrightarrow|mid|propto|cong|simeq)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:or|and)(?![A-Za-z])"
)
_ORDER = re.compile(r" ?([<>≤≥]=?|\\[lg](?:t|eq?)(?![a-z])) ?")
_NO_BOUND = re.compile(r"[=,;]|\\(?:neq?|in|approx)(?![A-Za-z])")
_MEMBER = re.compile(r"(?P<letter>[A-Za-z]) ?\\in(?![A-Za-z]) ?(?P<set>.+)", re.DOTALL)
_EITHER = re.compile(
    r" ?(?:(?<![A-Za-z])or(?![A-Za-z])|\\text ?\{ ?or ?\}|\\lor(?![A-Za-z])|\\vee(?![A-Za-z])) ?"
)


def ranges(gold: str, answer: str) -> tuple[str, str]:
    r"""Return both tidy texts as intervals or unions if both are such, or inequalities for one letter that say such."""
    (letter, held), (other, given) = _range(gold), _range(answer)
    if letter and other and letter != other:
        return gold, answer
    return (held, given) if _bracketed(held) and _bracketed(given) else (gold, answer)


def _bracketed(text: str) -> bool:
    return text[:1] in ("(", "[") and text[-1:] in (")", "]") and "," in text


def _range(text: str) -> tuple[str, str]:
    r"""Return the letter and the values of `x \in S` or of inequalities; no letter and the text itself for others."""
    if match := _MEMBER.fullmatch(text):
        return match["letter"], match["set"]
    found = [_interval(side.strip()) for side in _EITHER.split(text.strip(" ."))]
    letters = set(re.findall(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])", _EITHER.sub(" ", text)))
    if None in found or len(letters) != 1:
        return "", text
    return letters.pop(), " \\cup ".join(side for side in found if side)


def _interval(text: str) -> str | None:
    """Return the interval that `a < x <= b`, `b >= x > a` or one side of such describes; None for other texts."""
    parts = _ORDER.split(text)
    if len({_greater(sign) for sign in parts[1::2]}) != 1 or not all(parts):
        return None
    if _greater(parts[1]):
        parts.reverse()
    ends, closed = parts[::2], [not re.fullmatch(r"[<>]|\\[lg]t", sign) for sign in parts[1::2]]
    if any(map(_NO_BOUND.search, ends)):
        return None
    if len(ends) == 2:
        below = re.fullmatch("[A-Za-z]", ends[0]) is not None
        ends = ["-\\infty", *ends] if below else [*ends, "\\infty"]
        closed.insert(0 if below else 1, False)
    if len(ends) != 3 or not re.fullmatch("[A-Za-z]", ends[1]):
        return None
    return f"{'[' if closed[0] else '('}{ends[0]}, {ends[2]}{']' if closed[1] else ')'}"


def _greater(sign: str) -> bool:
    return sign[0] in ">≥" or sign[1:2] == "g"
