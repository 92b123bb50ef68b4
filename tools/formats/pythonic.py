"""Calls as Python writes them, `[f(a=1)]`.

Nothing is evaluated, and Python's own parser is not used: it warns, can use up the stack, and is slow on hostile text.
"""

import json
import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from ..checks import brief
from .base import LARGEST, Format, ToolCall, check_tool, closing

_NAME = r"[^\W\d][\w.]*+"
# A string that is not closed reaches to the end, so that no bracket in it counts before its end is written.
_STRING = "|".join(
    rf"{q * 3}[^{q}\\]*+(?:(?:\\.?|{q}(?!{q * 2}))[^{q}\\]*+)*+(?:{q * 3}|\Z)"
    rf"|{q}[^{q}\\]*+(?:\\.?[^{q}\\]*+)*+(?:{q}|\Z)"
    for q in "\"'"
)
_MARKS = re.compile(rf"{_STRING}|[][(){{}}]", re.DOTALL)
_BEHIND = re.compile(r"[^],]*+[],]")
_NUMBER = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_TOKEN = re.compile(
    rf"\s*+(?:(?P<text>{_STRING})|(?P<number>{_NUMBER})|(?P<word>[^\W\d]\w*+)|.|\Z)", re.DOTALL
)
_CONSTANTS = {
    "True": True,
    "False": False,
    "None": None,
    "true": True,
    "false": False,
    "null": None,
}
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"\n])|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3}))",
    re.ASCII,
)
_ESCAPED = dict(
    zip("abfnrtv\\'\"\n", ["\a", "\b", "\f", "\n", "\r", "\t", "\v", "\\", "'", '"', ""])
)


class Pythonic(Format):
    """Calls with named arguments, whose values are literals of Python or JSON.

    A first call ends with the `]` or the `,` behind it: what more the list would hold does not count.
    """

    name = "pythonic"
    opening = re.compile(
        rf"\[\s*+(?P<name>{_NAME})\s*+(?P<bracket>\()(?=\s*+(?:[)\"']|{_NAME}\s*+=))"
    )
    closers = ("]", ",")
    unclosed = "the list of calls is never closed by ], or too large"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        functions = "\n".join(
            json.dumps(schema["function"], ensure_ascii=False) for schema in schemas
        )
        return (
            "To call a function, write [name(argument=value)] with its arguments by name and their values as Python "
            f"literals, and stop; the result comes back in the next message. The functions are:\n{functions}"
        )

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        end = closing(text, opening.start("bracket"), _MARKS)
        behind = None if end is None else _BEHIND.match(text, end)
        return behind and behind.end()

    def _inside(self, text: str, opening: re.Match[str], end: int) -> tuple[int, int]:
        return opening.end("bracket"), text.rindex(")", 0, end)

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        check_tool(opening["name"], tools)
        reader = _Reader(text, opening.end("bracket"))
        arguments = reader.arguments()
        if reader.next() not in ("]", ","):
            raise ValueError(f"expected , or ] behind the call, found {reader.shown()}")
        return ToolCall(opening["name"], arguments)

    def _spell(self, call: ToolCall) -> str:
        arguments = ", ".join(f"{name}={_literal(value)}" for name, value in call.arguments.items())
        return f"[{call.name}({arguments})]"


class _Reader:
    """Reads values token by token. It recurs as deep as brackets nest, which `closing` has bounded."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.at, self.left = text, start, LARGEST
        self.token, self.comma = (
            "",
            False,
        )  # the latest token, and whether a comma stood behind the latest member

    def next(self) -> str:
        """Go to the next token: its text where it is a mark of its own, its kind otherwise; empty at the end."""
        found = _TOKEN.match(self.text, self.at)
        self.left -= 1
        if found is None or not self.left:  # it always matches, at least the end
            raise ValueError(f"the call holds more than {LARGEST} values and marks")
        self.at, self.token = found.end(), found[0].lstrip()
        return found.lastgroup or self.token

    def take(self, mark: str) -> bool:
        before = self.at
        if self.next() == mark:
            return True
        self.at = before
        return False

    def shown(self) -> str:
        return repr(brief(self.token)) if self.token else "the end"

    def members(self, closer: str) -> Iterator[None]:
        """Yield once for each member up to `closer`, which is to be read then; go past the commas behind them."""
        while not self.take(closer):
            yield
            if (mark := self.next()) not in (",", closer):
                raise ValueError(f"expected , or {closer}, found {self.shown()}")
            self.comma = mark == ","
            if not self.comma:
                return

    def arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in self.members(")"):
            if self.next() != "word":
                raise ValueError(
                    f"expected an argument by name, as in f(x=1), found {self.shown()}"
                )
            if (name := self.token) in found:
                raise ValueError(f"the argument {brief(name)!r} is given twice")
            if self.next() != "=":
                raise ValueError(f"expected = behind {brief(name)!r}, found {self.shown()}")
            found[name] = self.value()
        return found

    def value(self) -> Any:
        kind = self.next()
        if kind == "text":
            quotes = 3 if self.token[:3] in ('"""', "'''") else 1
            return _ESCAPE.sub(_character, self.token[quotes:-quotes])
        if kind == "number":
            return _number(self.token)
        if kind == "word" and self.token in _CONSTANTS:
            return _CONSTANTS[self.token]
        if kind == "[":
            return [self.value() for _ in self.members("]")]
        if kind == "(":
            items = [self.value() for _ in self.members(")")]
            return items[0] if len(items) == 1 and not self.comma else items
        if kind == "{":
            return self._pairs()
        raise ValueError(
            f"expected a literal (text, number, list, dict, True, False, None), found {self.shown()}"
        )

    def _pairs(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in self.members("}"):
            if not isinstance(key := self.value(), str):
                raise ValueError("the keys of a dict must be strings")
            if self.next() != ":":
                raise ValueError(f"expected : behind a key, found {self.shown()}")
            found[key] = self.value()
        return found


def _character(escape: re.Match[str]) -> str:
    simple, *hexadecimal, octal = escape.groups()
    if simple is not None:
        return _ESCAPED[simple]
    code = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
    if code > 0x10FFFF:
        raise ValueError(f"{escape[0]} is no character")
    return chr(code)


def _number(digits: str) -> int | float:
    if digits.lstrip("+-").isdigit():
        return int(digits)
    if not isfinite(value := float(digits)):
        raise ValueError(f"the number {brief(digits)} is too large")
    return value


def _literal(value: Any) -> str:
    """Return the literal of a JSON value; `</` is escaped so that no argument can close a thought."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("</", "<\\x2f")
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_literal(key)}: {_literal(item)}" for key, item in value.items())
            + "}"
        )
    return "[" + ", ".join(map(_literal, value)) + "]" if isinstance(value, list) else repr(value)
