"""Completions that no one meant: what the formats must read without harm, drawn by a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from turngym.tools import Format, ToolCall

_MARKS = r"""
<think> </think> <tool_call> </tool_call> <python> </python> <search> </search> <answer> </answer> <execute> </execute>
```python ```py ``` ```output <|python_tag|> <|im_end|> { } [ ] ( ) : ; , = ' " \ \u </ < # code
{"name": "parameters": "arguments": {"type":"function" [python( [f(x=1) python(code= True null NaN 1e999 -0 0x1f name
"""
_LINKS = """[ { ( {"a": [[ ({[ <think> <python> [f(x= {"name": [], {}, () "" ' 1, 'a', ((1)), {"a":1}, [1,2], f(x=1),"""
ODD = (
    "\n",
    "\r\n",
    " ",
    "\t",
    "\0",
    "\ud800",
    "\u2028",
    "\ufeff",
    "é",
    "🙂",
    "1" * 5000,
    "```python\n",
    "'''",
    '"""',
)
PIECES = (*_MARKS.split(), *ODD)
FRAMES = (
    "[f(x=[@])]",
    '{"name":"f","parameters":{"x":[@1]}}',
    "<tool_call>@</tool_call>",
    "```python\n@\n```",
    "@",
)
LOOKALIKES = str.maketrans("<>{}[]()\"'`:;,=/aeopcxy", "＜＞｛｝［］（）＂＇｀：；，＝／аеорсху")
WORDS = (
    "x",
    "print(1)",
    "a b",
    "",
    "\n",
    "é",
    "</tool_call>",
    "</think>",
    '"',
    "\\",
    "'",
    "{}",
    "[1]",
    "\t ",
    "🙂",
)


def completions(style: Format, corpus: Sequence[str], seed: int, count: int) -> Iterator[str]:
    """Yield `count` texts for a format, of every kind in turn; the i-th depends on the seed, the format and i alone.

    Args:
        style: The format.
        corpus: Real completions, whole; they are cut, joined and changed.
        seed: Keys all randomness.
        count: How many.
    """
    kinds = (_noise, _truncated, _nested, _mutated, _soup, _lookalike, _joined)
    for i in range(count):
        rng = random.Random(f"{seed}/{style.name}/{i}")
        yield kinds[i % len(kinds)](rng, style, corpus)


def calls(style: Format, seed: int, count: int) -> Iterator[ToolCall]:
    """Yield `count` random calls that a format may be asked to spell."""
    for i in range(count):
        yield random_call(random.Random(f"{seed}/call/{style.name}/{i}"), style)


def random_call(rng: random.Random, style: Format) -> ToolCall:
    """Draw a call: of the tools `python` and `search` where a format knows no others, else of any name."""
    if style.name in ("fenced", "tags"):
        tool, argument = rng.choice(
            (("python", "code"), ("search", "query"))[: 1 if style.name == "fenced" else 2]
        )
        return ToolCall(tool, {argument: _words(rng)})
    names = rng.sample(("code", "query", "x", "n_1", "é", "_"), rng.randrange(4))
    return ToolCall(
        rng.choice(("python", "search", "get_weather2")), {name: _value(rng, 3) for name in names}
    )


_CLOSERS = (
    "information",
    "result",
    "tool_response",
    "tool_output",
    "function_results",
    "TOOL_RESULTS",
    "observation",
)


def results(seed: int, count: int) -> Iterator[str]:
    """Yield texts that try to end the block of a result: fences and closing tags in many spellings, whole and cut."""
    for i in range(count):
        rng = random.Random(f"{seed}/result/{i}")
        yield "".join(_closer(rng) for _ in range(rng.randrange(1, 6)))


def _closer(rng: random.Random) -> str:
    """A fence, or a closing tag, with blanks, backslashes and capitals, and maybe without its end."""
    if rng.random() < 0.3:
        text = "".join(rng.choices("`\u1fef", (9, 1), k=rng.randrange(1, 9))) + rng.choice(
            ("", "output", "\\", "~~~")
        )
    else:
        gap = rng.choice(("", "", " ", "\t", "\n", "\\", "\\\\"))
        name = rng.choice(_CLOSERS)
        text = f"<{gap}/{gap}{rng.choice((name, name.upper(), name.title()))}{rng.choice(('>', ' >', ''))}"
        text = text if rng.random() < 0.8 else f"[/{name}]"
    cut = text if rng.random() < 0.8 else text[: rng.randrange(len(text) + 1)]
    return rng.choice(("", "\n", "  ", "x", "\\")) + cut + rng.choice(("", "\n", "y"))


def _noise(rng: random.Random, style: Format, corpus: Sequence[str]) -> str:
    """Random bytes, decoded in one of the ways that leave something odd."""
    raw = rng.randbytes(rng.randrange(300))
    if rng.random() < 0.5:
        raw = bytes(rng.choice(b'<>{}[]()"`=,:/\\ \nthinkpyo') for _ in raw)
    return _spelled(rng, style) * rng.randrange(2) + raw.decode(
        "utf-8", rng.choice(("replace", "surrogateescape", "ignore"))
    )


def _truncated(rng: random.Random, style: Format, corpus: Sequence[str]) -> str:
    """A real completion or a call, cut at both ends."""
    text = (
        rng.choice(corpus)
        if corpus and rng.random() < 0.7
        else f"So: {_spelled(rng, style)}\nDone."
    )
    stop = rng.randrange(len(text) + 1)
    return text[rng.randrange(stop + 1) if rng.random() < 0.3 else 0 : stop]


def _nested(rng: random.Random, style: Format, corpus: Sequence[str]) -> str:
    """One piece over and over, up to 100,000 characters of it, perhaps inside a call."""
    size = int(10 ** rng.uniform(0, 5))
    piece, spelled = rng.choice(_LINKS.split()), _spelled(rng, style)
    half = len(spelled) // 2
    frame = rng.choice(
        (*FRAMES, f"{spelled[:half]}@{spelled[half:]}", f"{spelled[:half]}@", f"@{spelled}")
    )
    return frame.replace("@", piece * max(size // len(piece), 1), 1)


def _mutated(rng: random.Random, style: Format, corpus: Sequence[str]) -> str:
    """A call with up to four things in it dropped, doubled, swapped or replaced."""
    text = _spelled(rng, style)
    for _ in range(rng.randrange(1, 5)):
        i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        j = min(j, i + rng.randrange(1, 9))
        part = text[i:j]
        text = (
            text[:i]
            + rng.choice(("", part * 2, part[::-1], rng.choice(PIECES), part.swapcase()))
            + text[j:]
        )
    return text + rng.choice(("", " tail", _spelled(rng, style)))


def _soup(rng: random.Random, style: Format, corpus: Sequence[str]) -> str:
    """The pieces of which all formats are made, in any order."""
    return "".join(
        rng.choice(PIECES) if rng.random() < 0.9 else _spelled(rng, style)
        for _ in range(rng.randrange(1, 40))
    )


def _lookalike(rng: random.Random, style: Format, corpus: Sequence[str]) -> str:
    """A call some of whose characters are others that look the same, or have invisible ones between them."""
    share = rng.choice((0.02, 0.2, 1.0))
    hidden = rng.choice(("", "\u200b", "\u00ad", "\ufe0f"))
    return "".join(
        char if rng.random() > share else char.translate(LOOKALIKES) + hidden
        for char in _spelled(rng, style)
    )


def _joined(rng: random.Random, style: Format, corpus: Sequence[str]) -> str:
    """Real completions, calls and thoughts one behind the other."""
    makers: tuple[Callable[[], str], ...] = (
        lambda: rng.choice(corpus) if corpus else "So:",
        lambda: _spelled(rng, style),
        lambda: f"<think>{_spelled(rng, style)}</think>",
        lambda: rng.choice(PIECES),
    )
    return "".join(rng.choice(makers)() for _ in range(rng.randrange(1, 5)))


def _spelled(rng: random.Random, style: Format) -> str:
    """A random call as the format writes it; where it cannot, one as JSON."""
    call = random_call(rng, style)
    try:
        return style.render(call)
    except ValueError:
        return json.dumps({"name": call.name, "arguments": call.arguments})


def _words(rng: random.Random) -> str:
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(6)))


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth else 6)
    if kind < 3:
        return _words(rng)
    if kind < 6:
        return rng.choice((0, -1, 10**18, 1.5, -2e-9, 1e300, True, False, None))
    if kind < 8:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {_words(rng): _value(rng, depth - 1) for _ in range(rng.randrange(4))}
