"""Calls as Python writes them, `[f(a=1)]`.

Nothing is evaluated, and Python's own parser is not used: it warns, can overflow the stack, and is
slow on hostile text. `_Reader` reads the literals token by token.
"""

import json
import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from ..checks import shorten
from .base import MAX_LEXICAL_TOKENS, Format, ToolCall, check_tool, find_closing_bracket

_NAME = r"[^\W\d][\w.]*+"


def _string_pattern(quote: str) -> str:
    """Return a regex of Python's strings with this quote character, in three quotes or one.

    A string that is not closed extends to the end of the text, so that a bracket in a string never
    counts while the string is still being generated.
    """
    triple = quote * 3
    triple_quoted = (
        rf"{triple}[^{quote}\\]*+(?:(?:\\.?|{quote}(?!{quote * 2}))[^{quote}\\]*+)*+(?:{triple}|\Z)"
    )
    quoted_once = rf"{quote}[^{quote}\\]*+(?:\\.?[^{quote}\\]*+)*+(?:{quote}|\Z)"
    return f"{triple_quoted}|{quoted_once}"


_STRING = _string_pattern('"') + "|" + _string_pattern("'")
_STRING_OR_BRACKET = re.compile(rf"{_STRING}|[][(){{}}]", re.DOTALL)
_CALL_END = re.compile(r"[^],]*+[],]")  # from behind the call's ")" to the "]" or "," behind it
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
    r"""
    \\ (?: (?P<character> [abfnrtv\\'"\n] )
         | x (?P<hex2> [\da-fA-F]{2} )
         | u (?P<hex4> [\da-fA-F]{4} )
         | U (?P<hex8> [\da-fA-F]{8} )
         | (?P<octal> [0-7]{1,3} )
       )
    """,
    re.ASCII | re.VERBOSE,
)
_ESCAPED_CHARACTERS = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",  # a backslash at the end of a line continues the string on the next
}


class Pythonic(Format):
    """Calls with named arguments, whose values are literals of Python or JSON.

    `[f(x=1)]`. The first call ends with the `]` or the `,` behind it: further calls in the list do
    not count.
    """

    name = "pythonic"
    opening = re.compile(
        rf"\[\s*+(?P<name>{_NAME})\s*+(?P<bracket>\()(?=\s*+(?:[)\"']|{_NAME}\s*+=))"
    )
    closers = ("]", ",")
    unclosed = "the list of calls is never closed by ], or too large"

    def instructions(self, schemas: Sequence[dict[str, Any]]) -> str:
        functions = [json.dumps(schema["function"], ensure_ascii=False) for schema in schemas]
        return (
            "To call a function, write [name(argument=value)] with its arguments by name and "
            "their values as Python literals, and stop; the result comes back in the next "
            "message. The functions are:\n" + "\n".join(functions)
        )

    def _find_end(self, text: str, opening: re.Match[str]) -> int | None:
        call_end = find_closing_bracket(text, opening.start("bracket"), _STRING_OR_BRACKET)
        if call_end is None:
            return None
        # The block ends with the "]" or "," behind the call.
        separator = _CALL_END.match(text, call_end)
        return None if separator is None else separator.end()

    def _find_arguments_in(
        self, text: str, opening: re.Match[str], end: int
    ) -> tuple[int, int] | None:
        # `_find_end` lets any bracket close any other, so a block such as `[f(x=1],` has no `)`.
        start = opening.end("bracket")
        closing = text.rfind(")", start, end)
        return None if closing < 0 else (start, closing)

    def _read_call(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        tool = opening["name"]
        check_tool(tool, tools)
        reader = _Reader(text, opening.end("bracket"))
        arguments = reader.read_arguments()
        if reader.next_token() not in ("]", ","):
            raise ValueError(f"expected , or ] behind the call, found {reader.describe_token()}")
        return ToolCall(tool, arguments)

    def _spell_call(self, call: ToolCall) -> str:
        arguments = [f"{name}={_spell_literal(value)}" for name, value in call.arguments.items()]
        return f"[{call.name}({', '.join(arguments)})]"


class _Reader:
    """Reads the arguments of a call token by token.

    It recurses as deeply as brackets nest, which `find_closing_bracket` has limited before. Its
    methods raise ValueError, with a message for the agent, if the text is not what they expect.

    Args:
        text: The completion up to the end of the call.
        start: Where to begin, behind the `(` of the call.
    """

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.position = start
        self.tokens_left = MAX_LEXICAL_TOKENS
        self.token = ""  # the text of the latest token
        self.ended_with_comma = False  # whether the latest bracket ended with a comma, as (1,)

    def next_token(self) -> str:
        """Go to the next token and return its kind.

        Returns:
            `text` for a string, `number`, `word` for a name, the character itself for any other
            token, "" at the end.
        """
        match = _TOKEN.match(self.text, self.position)
        self.tokens_left -= 1
        # The pattern always matches, at least the end; `match is None` is for the type checker.
        if match is None or self.tokens_left == 0:
            raise ValueError(f"the call holds more than {MAX_LEXICAL_TOKENS} values and marks")
        self.position = match.end()
        self.token = match[0].lstrip()
        return match.lastgroup or self.token

    def skip_if_next(self, character: str) -> bool:
        """Skip the next token if it is `character`; return whether it is."""
        position_before = self.position
        if self.next_token() == character:
            return True
        self.position = position_before
        return False

    def describe_token(self) -> str:
        """Return the latest token for messages."""
        return repr(shorten(self.token)) if self.token else "the end"

    def iterate_members(self, closer: str) -> Iterator[None]:
        """Iterate over the members of a bracket such as `1, 2]`, behind its opening.

        Yields in front of each member, which the caller must read before it continues. The commas
        and the closing bracket are read here.

        Args:
            closer: The closing bracket.
        """
        while not self.skip_if_next(closer):
            yield
            separator = self.next_token()
            if separator not in (",", closer):
                raise ValueError(f"expected , or {closer}, found {self.describe_token()}")
            self.ended_with_comma = separator == ","
            if separator == closer:
                return

    def read_arguments(self) -> dict[str, Any]:
        """Read named arguments up to the end of the call: `x=1, y=2)`."""
        arguments: dict[str, Any] = {}
        for _ in self.iterate_members(")"):
            if self.next_token() != "word":
                raise ValueError(
                    f"expected an argument by name, as in f(x=1), found {self.describe_token()}"
                )
            name = self.token
            if name in arguments:
                raise ValueError(f"the argument {shorten(name)!r} is given twice")
            if self.next_token() != "=":
                raise ValueError(
                    f"expected = behind {shorten(name)!r}, found {self.describe_token()}"
                )
            arguments[name] = self.read_value()
        return arguments

    def read_value(self) -> Any:
        """Read a literal of Python or JSON; a tuple becomes a list."""
        token_kind = self.next_token()
        if token_kind == "text":
            return _unescape_string(self.token)
        if token_kind == "number":
            return _parse_number(self.token)
        if token_kind == "word" and self.token in _CONSTANTS:
            return _CONSTANTS[self.token]
        if token_kind == "[":
            return [self.read_value() for _ in self.iterate_members("]")]
        if token_kind == "(":
            items = [self.read_value() for _ in self.iterate_members(")")]
            # `(1)` is a number in parentheses, `(1,)` a tuple.
            is_parenthesized = len(items) == 1 and not self.ended_with_comma
            return items[0] if is_parenthesized else items
        if token_kind == "{":
            return self._read_dict()
        raise ValueError(
            "expected a literal (text, number, list, dict, True, False, None), "
            f"found {self.describe_token()}"
        )

    def _read_dict(self) -> dict[str, Any]:
        """Read the items of a dict up to its end: `"x": 1, "y": 2}`."""
        items: dict[str, Any] = {}
        for _ in self.iterate_members("}"):
            key = self.read_value()
            if not isinstance(key, str):
                raise ValueError("the keys of a dict must be strings")
            if self.next_token() != ":":
                raise ValueError(f"expected : behind a key, found {self.describe_token()}")
            items[key] = self.read_value()
        return items


def _unescape_string(literal: str) -> str:
    """Return the text of a string literal: what is between its quotes, without escapes."""
    quotes = 3 if literal[:3] in ('"""', "'''") else 1
    return _ESCAPE.sub(_unescape_character, literal[quotes:-quotes])


def _unescape_character(escape: re.Match[str]) -> str:
    r"""Return the character of an escape: `\n`, `\x41`, `\u0041`, `\U00000041` or `\101`."""
    if escape["character"] is not None:
        return _ESCAPED_CHARACTERS[escape["character"]]
    if escape["octal"]:
        code = int(escape["octal"], base=8)
    else:
        code = int(escape["hex2"] or escape["hex4"] or escape["hex8"], base=16)
    if code > 0x10FFFF:
        raise ValueError(f"{escape[0]} is no character")
    return chr(code)


def _parse_number(literal: str) -> int | float:
    """Return the number of a decimal literal; raises ValueError beyond the range of floats."""
    if literal.lstrip("+-").isdigit():
        return int(literal)
    value = float(literal)
    if not isfinite(value):
        raise ValueError(f"the number {shorten(literal)} is too large")
    return value


def _spell_literal(value: Any) -> str:
    r"""Return the Python literal of a JSON value.

    In strings, `</` is written as `<\x2f`: it means the same, and no argument can end a thought.
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("</", "<\\x2f")
    if isinstance(value, dict):
        items = [f"{_spell_literal(key)}: {_spell_literal(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_spell_literal(item) for item in value]) + "]"
    return repr(value)
