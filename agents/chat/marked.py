"""Text that knows which of its characters the chat template wrote.

Jinja builds a conversation from strings of the template and strings of the messages. Here the template's strings are
`MarkedText`, and what jinja makes of them by joining, cutting and trimming stays `MarkedText`; any other operation
gives a plain `str`, whose characters count as a message's. A control token is the template's only where every character
of it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_TEMPLATE, _MESSAGE = "1", "0"


class MarkedText(str):
    """A string with `marks`, a string of the same length: "1" where the template wrote the character, else "0"."""

    __slots__ = ("marks",)
    marks: str

    def __new__(cls, text: str = "", marks: str | None = None) -> MarkedText:
        """Return `text`, the template's where `marks` says so; without it, a message's."""
        made = super().__new__(cls, text)
        made.marks = _MESSAGE * len(text) if marks is None else marks
        return made

    def __str__(self) -> MarkedText:
        """Return itself: jinja passes all it writes through `str`."""
        return self

    def __add__(self, other: str) -> MarkedText:
        """Join with what follows."""
        return join((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> MarkedText:
        """Join with what stands before."""
        return join((other, self)) if isinstance(other, str) else NotImplemented

    def __getitem__(self, key: SupportsIndex | slice) -> MarkedText:
        """Cut a piece out."""
        return MarkedText(super().__getitem__(key), self.marks[key])

    def lstrip(self, chars: str | None = None, /) -> MarkedText:
        """Trim the left."""
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None, /) -> MarkedText:
        """Trim the right."""
        return self[: len(super().rstrip(chars))]

    def strip(self, chars: str | None = None, /) -> MarkedText:
        """Trim both sides."""
        return self.lstrip(chars).rstrip(chars)

    def join(self, pieces: Iterable[str], /) -> MarkedText:
        """Join pieces with this one between them."""
        parts = [part for piece in pieces for part in (self, piece)]
        return join(parts[1:])


def join(pieces: Iterable[Any]) -> MarkedText:
    """Join pieces end to end; what is not `MarkedText` is a message's."""
    parts = [piece if isinstance(piece, str) else str(piece) for piece in pieces]
    marks = "".join([part.marks if isinstance(part, MarkedText) else _MESSAGE * len(part) for part in parts])
    return MarkedText("".join(parts), marks)


def template_text(text: str) -> MarkedText:
    """Return `text` as written by the template."""
    return MarkedText(text, _TEMPLATE * len(text))


class _Generation(Extension):
    """The `{% generation %}` block of training templates: renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own annotation)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class MarkedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as transformers sets it up, rendering `MarkedText` text."""

    concat = staticmethod(join)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self.written: list[MarkedText] = []  # the strings that stand in the template
        self.filters["marked"] = join

    def compile_text(self, source: str) -> jinja2.Template:
        """Compile a template whose strings are `MarkedText`.

        Raises:
            jinja2.TemplateSyntaxError: it is not jinja.
        """
        tree: nodes.Template = _Writer(self.written).visit(self.parse(source))
        return self.from_string(tree)


class _Writer(NodeTransformer):
    """Turns every string of a template into a look-up in `environment.written`, which compiled code cannot fold."""

    def __init__(self, written: list[MarkedText]) -> None:
        self.written = written

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        return self._look_up(node, node.value) if isinstance(node.value, str) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return self._look_up(node, node.data)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = nodes.List([self.visit(part) for part in node.nodes], lineno=node.lineno)
        return nodes.Filter(parts, "marked", [], [], None, None, lineno=node.lineno, environment=node.environment)

    def _look_up(self, node: nodes.Node, text: str) -> nodes.Node:
        self.written.append(template_text(text))
        table = nodes.EnvironmentAttribute("written", lineno=node.lineno)
        index = nodes.Const(len(self.written) - 1, lineno=node.lineno)
        return nodes.Getitem(table, index, "load", lineno=node.lineno, environment=node.environment)
