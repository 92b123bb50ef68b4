r"""The answer of a completion: the last outermost `\boxed{...}` behind the reasoning.

One pass over the text, linear in its length whatever it holds.
"""

from __future__ import annotations

import re

# A `\\` is a line break, unless the backslash of a box follows: models also write `\\boxed{4}`.
_TOKEN = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\\\(?!boxed|fbox)|\\[{}]|(?P<open>\{)|(?P<close>\})")


def extract_answer(text: str) -> str | None:
    r"""Return what the last outermost closed `\boxed{}` or `\fbox{}` after the last `</think>` holds, stripped.

    None when there is no such box, it is empty, or a `<think>` is never closed.
    """
    _, _, text = text.rpartition("</think>")
    if "<think>" in text:
        return None
    first = last = 0
    starts: list[int | None] = []
    for token in _TOKEN.finditer(text):
        if token["box"]:
            starts.append(token.end())
        elif token["open"]:
            starts.append(None)
        elif token["close"] and starts:
            start = starts.pop()
            if start is not None:
                # The box that closes last is either behind all others or around them.
                first, last = start, token.start()
    return text[first:last].strip() or None
