"""Text that knows which of its characters the chat template wrote.

Jinja builds a conversation from the template's own strings and the messages'. Here its own strings are `Laid`, and
what it makes of them by joining, cutting and trimming stays `Laid`; any other operation gives a plain `str`, whose
characters count as a message's. So a control token is the template's only where every character of it is.
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

_OWN, _THEIRS = "1", "0"


class Laid(str):
    """A string with `own`, a string of the same length: "1" where the template wrote the character, else "0"."""

    __slots__ = ("own",)
    own: str

    def __new__(cls, text: str = "", own: str | None = None) -> Laid:
        """Return `text`, the template's where `own` says so; without it, a message's."""
        made = super().__new__(cls, text)
        made.own = _THEIRS * len(text) if own is None else own
        return made

    def __str__(self) -> Laid:
        """Return itself: jinja passes all it writes through `str`."""
        return self

    def __add__(self, other: str) -> Laid:
        """Join with what follows."""
        return join((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> Laid:
        """Join with what stands before."""
        return join((other, self)) if isinstance(other, str) else NotImplemented

    def __getitem__(self, key: SupportsIndex | slice) -> Laid:
        """Cut a piece out."""
        return Laid(super().__getitem__(key), self.own[key])

    def lstrip(self, chars: str | None = None, /) -> Laid:
        """Trim the left."""
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None, /) -> Laid:
        """Trim the right."""
        return self[: len(super().rstrip(chars))]

    def strip(self, chars: str | None = None, /) -> Laid:
        """Trim both sides."""
        return self.lstrip(chars).rstrip(chars)

    def join(self, pieces: Iterable[str], /) -> Laid:
        """Join pieces with this one between them."""
        parts = [part for piece in pieces for part in (self, piece)]
        return join(parts[1:])


def join(pieces: Iterable[Any]) -> Laid:
    """Join pieces end to end; what is no `Laid` is a message's."""
    parts = [piece if isinstance(piece, str) else str(piece) for piece in pieces]
    own = "".join([part.own if isinstance(part, Laid) else _THEIRS * len(part) for part in parts])
    return Laid("".join(parts), own)


def own(text: str) -> Laid:
    """Return `text` as written by the template."""
    return Laid(text, _OWN * len(text))


class _Generation(Extension):
    """The `{% generation %}` block of training templates: renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own annotation)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class LaidEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as transformers sets it up, rendering `Laid` text."""

    concat = staticmethod(join)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self.written: list[Laid] = []  # the strings that stand in the template
        self.filters["laid"] = join

    def compile_text(self, source: str) -> jinja2.Template:
        """Compile a template whose own strings are `Laid`.

        Raises:
            jinja2.TemplateSyntaxError: it is not jinja.
        """
        tree: nodes.Template = _Writer(self.written).visit(self.parse(source))
        return self.from_string(tree)


class _Writer(NodeTransformer):
    """Turns every string of a template into a look-up in `environment.written`, which compiled code cannot fold."""

    def __init__(self, written: list[Laid]) -> None:
        self.written = written

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        return self._look_up(node, node.value) if isinstance(node.value, str) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return self._look_up(node, node.data)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = nodes.List([self.visit(part) for part in node.nodes], lineno=node.lineno)
        return nodes.Filter(parts, "laid", [], [], None, None, lineno=node.lineno, environment=node.environment)

    def _look_up(self, node: nodes.Node, text: str) -> nodes.Node:
        self.written.append(own(text))
        table = nodes.EnvironmentAttribute("written", lineno=node.lineno)
        index = nodes.Const(len(self.written) - 1, lineno=node.lineno)
        return nodes.Getitem(table, index, "load", lineno=node.lineno, environment=node.environment)
