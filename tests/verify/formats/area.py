"""Area `formats`: what the tool-call formats promise, on real completions, on hostile ones, and token by token."""

from __future__ import annotations

import bisect
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

from turngym.tests.verify.formats.fuzz import calls, completions, results
from turngym.tests.verify.formats.recorded import (
    EXCEPTIONS,
    Recorded,
    agrees,
    recorded,
    tool_names,
)
from turngym.tests.verify.rows import Row, first
from turngym.tools import FORMATS, Format, Parsed, ToolCall

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TAILS = (
    " ",
    "\n",
    "]",
    "}",
    '"',
    ")]",
    "```",
    "</tool_call>",
    "</python>",
    "<think>",
    " and <search>x</search>",
    "\\",
)
CLOSERS = re.compile(
    r"```|[<\[]\s*/\s*(?:information|results?|observation|(?:tool|function)_\w+)\b", re.IGNORECASE
)
NEAR = range(
    -10, 4
)  # where a text is split before it is encoded, around the end of its call: other tokens each time


@dataclass(frozen=True)
class Formats:
    """Tool-call formats on recorded completions, fuzzed ones, rendered calls and cut positions."""

    seed: int = 0
    """Keys all randomness."""
    fuzzed: int = 10_000
    """Fuzzed completions a format."""
    rendered: int = 2_000
    """Random calls a format, written and read back."""
    milliseconds: float = 50.0
    """CPU time that reading one completion may take."""
    data: Path = Path("../shared/data/tool_calls")
    """Folder of recorded completions."""
    tokenizers: Path = Path("../shared/data/tokenizer")
    """Folder of the tokenizers in whose tokens the cut is counted."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all formats, one promise after the other."""
        real = recorded(self.data)
        tools = tool_names(real)
        rows = {name: [row for row in real if row.style == name] for name in FORMATS}
        yield from (recorded_row(style, rows[name], tools) for name, style in FORMATS.items())
        yield from (prefix_row(style, rows[name], tools) for name, style in FORMATS.items())
        corpus = [row.text for row in real]
        for style in FORMATS.values():
            yield fuzz_row(
                style, completions(style, corpus, self.seed, self.fuzzed), self.milliseconds
            )
        for style in FORMATS.values():
            yield rendered_row(style, calls(style, self.seed, self.rendered))
        for style in FORMATS.values():
            yield result_row(style, results(self.seed, self.rendered))
        from turngym.tests.verify.templates.tokenizers import shipped

        if not self.tokenizers.is_dir():
            raise FileNotFoundError(
                f"{self.tokenizers} is missing; --tokenizers names the folder of tokenizers"
            )
        for case in shipped(self.tokenizers):
            yield from (
                cut_row(style, rows[name], case.tokenizer, case.name)
                for name, style in FORMATS.items()
            )


def recorded_row(style: Format, rows: Sequence[Recorded], tools: Sequence[str]) -> Row:
    """Count the recorded completions whose first call is read as their file or a second reading has it."""
    wrong = []
    for row in rows:
        if agrees(style.parse(row.text, tools).call, row) == (
            row.where in EXCEPTIONS
        ):  # an exception that agrees is out of date
            wrong.append(row.where)
    otherwise = [
        f"{row.where} on purpose otherwise: {EXCEPTIONS[row.where]}"
        for row in rows
        if row.where in EXCEPTIONS
    ]
    note = "; ".join(filter(None, [first(wrong), *otherwise]))
    return Row(
        f"{style.name}: recorded completions, the first call",
        len(rows) - len(wrong),
        len(rows),
        note,
    )


def prefix_row(style: Format, rows: Sequence[Recorded], tools: Sequence[str]) -> Row:
    """Count the prefixes of recorded completions that are complete just where the first call is whole."""
    wrong, total = [], 0
    for row in rows:
        whole = style.parse(row.text, tools)
        ends = len(whole.text) if style.complete(row.text) else len(row.text) + 1
        for size in range(len(row.text) + 1):
            total += 1
            right = style.complete(row.text[:size]) == (size >= ends)
            if not right or (size >= ends and style.parse(row.text[:size], tools) != whole):
                wrong.append(f"{row.where}[:{size}]")
    return Row(
        f"{style.name}: prefixes of recorded completions", total - len(wrong), total, first(wrong)
    )


def fuzz_row(style: Format, texts: Iterator[str], milliseconds: float) -> Row:
    """Count the texts that are read without harm: see `fault`, in time, alike when read again."""
    wrong: list[str] = []
    counts, slowest, total = {"calls": 0, "errors": 0, "answers": 0}, 0.0, 0
    for i, text in enumerate(texts):
        total += 1
        try:
            slowest = max(slowest, spent := _milliseconds(style, text, milliseconds))
            parsed = style.parse(text, ("python", "search"))
            problem = fault(style, text, parsed) or (
                f"took {spent:.0f} ms" if spent > milliseconds else ""
            )
            counts["calls" if parsed.call else "errors" if parsed.error else "answers"] += 1
        except Exception as error:  # whatever it is, it counts
            problem = f"raised {type(error).__name__}"
        if problem:
            wrong.append(f"{i} {problem}")
    seen = ", ".join(f"{count} {name}" for name, count in counts.items())
    note = first(wrong) or f"{seen}; slowest {slowest:.1f} ms"
    return Row(f"{style.name}: fuzzed completions", total - len(wrong), total, note)


def fault(style: Format, text: str, parsed: Parsed) -> str:
    """Return what is wrong with how `text` was read; empty when nothing is.

    A call is either whole, and then nothing behind it changes it and a character less does not complete it, or there
    is no call.
    """
    if style.parse(text, ("python", "search")) != parsed:
        return "is read otherwise again"
    if (
        not text.startswith(parsed.text)
        or (parsed.call and parsed.error)
        or len(parsed.error or "") > 400
    ):
        return "has an impossible reading"
    if not style.complete(text):
        return "is a call and not complete" if parsed.call or parsed.text != text else ""
    if not style.complete(parsed.text) or style.complete(parsed.text[:-1]):
        return "is not cut at the end of its call"
    if any(
        style.parse(parsed.text + tail, ("python", "search")) != parsed for tail in ("", *TAILS)
    ):
        return "changes by what is written behind its call"
    return ""


def rendered_row(style: Format, written: Iterator[ToolCall]) -> Row:
    """Count the random calls that are read back as they were, or refused."""
    wrong, refused, total = [], 0, 0
    for call in written:
        total += 1
        try:
            text = style.render(call)
        except ValueError:
            refused += 1
            continue
        parsed = style.parse(f"So: {text} and", (call.name,))
        if (
            parsed != Parsed(call, None, parsed.text)
            or not style.complete(text)
            or style.complete(text[:-1])
        ):
            wrong.append(repr(call))
    note = first(wrong, 2) or f"{refused} refused to be written"
    # Refusing all would be no promise kept.
    held = total - len(wrong) if refused <= total // 3 else 0
    return Row(f"{style.name}: calls written and read back", held, total, note)


def result_row(style: Format, texts: Iterator[str]) -> Row:
    """Count the results that leave their frame whole: nothing in them, in any normal form, ends a block."""
    before, after = style.observe("calm", "python")[1].split("calm")
    wrong, total = [], 0
    for text in texts:
        total += 1
        content = style.observe(text, "python")[1]
        body = content[len(before) : len(content) - len(after)]
        if content != before + body + after or any(
            CLOSERS.search(normalize(form, body)) for form in ("NFC", "NFKC")
        ):
            wrong.append(repr(text[:60]))
    return Row(
        f"{style.name}: results that do not end their own block",
        total - len(wrong),
        total,
        first(wrong),
    )


def cut_row(style: Format, rows: Sequence[Recorded], tokenizer: Tokenizer, name: str) -> Row:
    """Count the token sequences of recorded completions that the engine cuts at the token which completes the call."""
    wrong, total = [], 0
    for row in rows:
        end = len(style.parse(row.text, ()).text) if style.complete(row.text) else len(row.text)
        for at in sorted({min(max(end + near, 0), len(row.text)) for near in NEAR}):
            tokens = [
                id for part in (row.text[:at], row.text[at:]) for id in _encode(tokenizer, part)
            ]
            total += 1
            if cut_at(style, tokens, tokenizer) != completed_at(style, tokens, tokenizer):
                wrong.append(f"{row.where} split at {at}")
    return Row(
        f"{style.name}: cut at the first call, tokens of {name}",
        total - len(wrong),
        total,
        first(wrong),
    )


def cut_at(style: Format, tokens: list[int], tokenizer: Tokenizer) -> int | None:
    """Return after how many tokens the engine cuts a turn; None where it goes on to the end."""
    from turngym.agents.engine import DecodedText, StopRule

    rule, text = StopRule(tokenizer), DecodedText()
    sizes = range(1, len(tokens) + 1)
    return next((size for size in sizes if rule.completes(tokens[:size], style, text)), None)


def completed_at(style: Format, tokens: list[int], tokenizer: Tokenizer) -> int | None:
    """Return how many tokens hold the first call whole, found from the text of all; None where there is no call."""
    text = tokenizer.decode(tokens, skip_special_tokens=False)
    if not style.complete(text):
        return None
    size = len(style.parse(text, ()).text)
    sizes = range(1, len(tokens) + 1)
    held = bisect.bisect_left(sizes, True, key=lambda n: _holds(tokenizer, tokens[:n], text[:size]))
    return sizes[held]


def _holds(tokenizer: Tokenizer, tokens: list[int], text: str) -> bool:
    return bool(tokenizer.decode(tokens, skip_special_tokens=False).startswith(text))


def _milliseconds(style: Format, text: str, limit: float) -> float:
    """Return the CPU time of reading `text` once; where it is over the limit, the least of three."""
    spent = float("inf")
    for _ in range(3):
        began = time.thread_time()
        style.parse(text, ("python", "search"))
        style.complete(text)
        spent = min(spent, 1000 * (time.thread_time() - began))
        if spent <= limit:
            break
    return spent


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)
