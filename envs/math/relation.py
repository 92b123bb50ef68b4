r"""Names and relations around a value: `x = 5`, `x \in [1, 2]`, `1 \leq x < 2`, `x_1 = 3, x_2 = 4`."""

from __future__ import annotations

import re

RELATION = re.compile(
    r"[=<>≤≥≠≈;]|\\(?:leq?|geq?|neq?|lt|gt|approx|equiv|sim|in|to|lor|land|vee|wedge|iff|implies|Rightarrow"
    r"|rightarrow|Leftrightarrow|leftrightarrow|mid|propto|cong|simeq)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:or|and)(?![A-Za-z])"
)
_LETTER = (
    r"(?:\\Delta ?)?(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|epsilon|theta|lambda|mu|rho|sigma|tau|phi|omega|Omega|Phi))"
)
_NAMED = re.compile(
    rf"(?P<name>(?P<letter>{_LETTER})(?: ?_ ?\{{?\w+ ?\}}?)?(?: ?\( ?\w+(?: ?, ?\w+)* ?\))?"
    r"|\( ?[A-Za-z](?: ?, ?[A-Za-z])+ ?\))"
    r" ?(?:=|\\in(?![A-Za-z])|\\approx(?![A-Za-z])|≈) ?(?P<value>.+)",
    re.DOTALL,
)
# What an answer may call its value where the gold is a bare one; as a gold, `m + n = 5` is an equation.
_DESCRIBED = re.compile(
    r"(?:(?:\\angle ?)?[A-Z]{2,3}|\|[A-Za-z]{1,3}\||[a-z](?: ?[-+] ?[a-z])+|\\text ?\{[A-Za-z ]+\}|[A-Za-z][a-z]{2,20})"
    r" ?= ?(?P<value>.+)",
    re.DOTALL,
)
_LESS, _MORE = r"(?P<less>[<≤]=?|\\l(?:t|eq?)(?![a-z]))", r"(?P<more>[>≥]=?|\\g(?:t|eq?)(?![a-z]))"
_BOUND = r"(?:[^<>=≤≥,;\\]|\\(?!(?:[lg](?:t|eq?)|neq?|in|approx)(?![A-Za-z])))+?"
_BETWEEN = re.compile(
    rf"(?P<low>{_BOUND}) ?{_LESS} ?[A-Za-z] ?{_LESS.replace('less', 'below')} ?(?P<high>{_BOUND})"
    rf"|(?P<top>{_BOUND}) ?{_MORE} ?[A-Za-z] ?{_MORE.replace('more', 'above')} ?(?P<bottom>{_BOUND})"
)
_MEMBER = re.compile(r"(?P<letter>[A-Za-z]) ?\\in(?![A-Za-z]) ?(?P<set>.+)", re.DOTALL)
_RANGE = re.compile(r"[(\[].*,.*[)\]]", re.DOTALL)
_SIDE = re.compile(rf"[A-Za-z] ?(?:{_LESS}|{_MORE}) ?(?P<bound>{_BOUND})")
_TURNED_SIDE = re.compile(rf"(?P<bound>{_BOUND}) ?(?:{_MORE}|{_LESS}) ?[A-Za-z]")
_EITHER = re.compile(r" ?(?:(?<![A-Za-z])or(?![A-Za-z])|\\text ?\{ ?or ?\}|\\lor(?![A-Za-z])|\\vee(?![A-Za-z])) ?")


def unnamed(gold: str, answer: str) -> tuple[str, str]:
    """Return both tidy texts without the name of their value, where both have the same or one has none."""
    (name, value), (other, given) = _split(gold), _split(answer)
    if name and name == other:
        return value, given
    if name and not RELATION.search(answer):
        return value, answer
    if RELATION.search(gold):
        return gold, answer
    if (described := _DESCRIBED.fullmatch(answer)) and not RELATION.search(described["value"]):
        return gold, described["value"]
    return gold, given


def _split(text: str) -> tuple[str, str]:
    """Return the name and the value of `name = value`, or of a list of such; no name for any other text."""
    match = _NAMED.fullmatch(text)
    if match is None:
        return "", text
    if not RELATION.search(match["value"]):
        return match["name"].replace(" ", ""), match["value"]
    parts = [_NAMED.fullmatch(part) for part in re.split(r" ?, ?| (?:or|and) | ?\\text ?\{,? ?(?:or|and) ?\} ?", text)]
    named = [part for part in parts if part and not RELATION.search(part["value"])]
    if len(named) < len(parts) or len({part["letter"] for part in named}) > 1:
        return "", text
    return match["letter"], ", ".join(part["value"].strip() for part in named)


def ranges(gold: str, answer: str) -> tuple[str, str]:
    r"""Return both tidy texts as intervals or unions if both are such, or inequalities for one letter that say such."""
    (letter, held), (other, given) = _range(gold), _range(answer)
    if letter and other and letter != other:
        return gold, answer
    return (held, given) if _RANGE.fullmatch(held) and _RANGE.fullmatch(given) else (gold, answer)


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
    if match := _BETWEEN.fullmatch(text):
        if match["low"]:
            left, right = _closed(match["less"]), _closed(match["below"])
            return f"{'[' if left else '('}{match['low']}, {match['high']}{']' if right else ')'}"
        left, right = _closed(match["above"]), _closed(match["more"])
        return f"{'[' if left else '('}{match['bottom']}, {match['top']}{']' if right else ')'}"
    match, turned = _SIDE.fullmatch(text), _TURNED_SIDE.fullmatch(text)
    if match is None and turned is None:
        return None
    side = match or turned
    assert side is not None
    below = bool(side["less"]) == (match is not None)
    closed = _closed(side["less"] or side["more"])
    if below:
        return f"(-\\infty, {side['bound']}{']' if closed else ')'}"
    return f"{'[' if closed else '('}{side['bound']}, \\infty)"


def _closed(sign: str) -> bool:
    return sign in ("≤", "≥") or "e" in sign or "=" in sign
