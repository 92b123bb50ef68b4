"""What a chat template writes: which characters are its own, and how much work it may do for them.

Jinja builds a conversation from strings of the template and strings of the messages. Here the template's strings are
`MarkedText`, and what jinja makes of them by joining, cutting and trimming stays `MarkedText`; any other operation
gives a plain `str`, whose characters count as a message's.

A template is a program of somebody else. Jinja's sandbox keeps it from the machine, but not from running without end
or from filling the memory. Here each operation of a template takes from an allowance, first for what it reads and then
for what it made: 1, and 1 for every `PIECE` characters and every item, nested ones too. Nothing that a template can
reach makes much of little: what could is paid for before it runs (`replace`, `indent`, `join`, `*`), or missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, SupportsIndex

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

PIECE = 16
BASE = 200_000  # the allowance of a conversation without messages
FOR_ITEM, FOR_CHARACTER = 1000, 64  # and what each item and character of its messages adds
_TEMPLATE, _MESSAGE = "1", "0"
_FREE = ("count", "d", "default", "first", "last", "length")  # take the same time for any value
_ALLOWED = json.loads(
    Path(__file__).with_name("allowed.json").read_text("utf-8")
)  # what templates may use
_METHODS = {
    kind: frozenset(_ALLOWED["methods"][kind.__name__].split()) for kind in (str, dict, list, tuple)
}
_REPEATING = ("replace", "indent", "join")  # filters and methods that can make much of little
_NESTED: tuple[type, ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    range,
    Namespace,
    KeysView,
    ValuesView,
    ItemsView,
)


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
        return join((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> MarkedText:
        return join((other, self)) if isinstance(other, str) else NotImplemented

    def __getitem__(self, key: SupportsIndex | slice) -> MarkedText:
        return MarkedText(super().__getitem__(key), self.marks[key])

    def lstrip(self, chars: str | None = None, /) -> MarkedText:
        return self[len(self) - len(super().lstrip(chars)) :]

    def rstrip(self, chars: str | None = None, /) -> MarkedText:
        return self[: len(super().rstrip(chars))]

    def strip(self, chars: str | None = None, /) -> MarkedText:
        return self.lstrip(chars).rstrip(chars)

    def join(self, pieces: Iterable[str], /) -> MarkedText:
        parts = [part for piece in pieces for part in (self, piece)]
        return join(parts[1:])


def join(pieces: Iterable[Any]) -> MarkedText:
    """Join pieces end to end; what is not `MarkedText` is a message's."""
    parts = [piece if isinstance(piece, str) else str(piece) for piece in pieces]
    marks = "".join(
        [part.marks if isinstance(part, MarkedText) else _MESSAGE * len(part) for part in parts]
    )
    return MarkedText("".join(parts), marks)


def template_text(text: str) -> MarkedText:
    """Return `text` as written by the template."""
    return MarkedText(text, _TEMPLATE * len(text))


_left = ContextVar("_left", default=BASE)  # of the allowance


def begin(values: Iterable[Any]) -> None:
    """Give the template that this thread renders next the allowance for `values`, which it reads."""
    _left.set(1 << 62)
    items, characters = _size(list(values))
    _left.set(BASE + FOR_ITEM * items + FOR_CHARACTER * characters)


def _spend(*values: Any, repeating: bool = False) -> None:
    """Take what `values` cost, and what `repeating` one for each piece of another makes. Raises SecurityError."""
    cost, largest = 1, [0, 0]
    for value in values:
        weight = 0
        if isinstance(value, str):
            weight = len(value)
            cost += weight // PIECE
        elif isinstance(value, _NESTED):
            items, characters = _size(value)
            weight = items * PIECE + characters
            cost += items + characters // PIECE
        elif isinstance(value, int):
            weight = abs(value)
            if value.bit_length() > 64:
                raise SecurityError("it makes a number of more than 64 bits")
        if repeating:
            largest = sorted((*largest, weight))[1:]
    _left.set(left := _left.get() - cost - largest[0] * largest[1] // PIECE)
    if left < 0:
        raise SecurityError(
            "it takes more work than a chat template may; nothing in it may run or grow without end"
        )


def _size(value: Any) -> tuple[int, int]:
    """Return the items and the characters of a nested value, as far as the allowance goes."""
    items = characters = 0
    most, left = _left.get(), [value]
    while left and items + characters // PIECE <= most:
        value = left.pop()
        items += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, range):
            items += len(value)
        elif isinstance(value, Namespace):
            left.append(value._Namespace__attrs)
        elif isinstance(value, _NESTED):
            left += list(value)  # type: ignore[call-overload]
    return items, characters


def limited(function: Callable[..., Any], repeating: bool = False) -> Callable[..., Any]:
    """Return a filter or test that is paid for; what it makes by `repeating`, before it runs."""

    @wraps(function)
    def paid(*args: Any, **options: Any) -> Any:
        args = _listed(args) if repeating else args
        _spend(*args, *options.values(), repeating=repeating)
        made = function(*args, **options)
        _spend(made)
        return made

    return paid


def _listed(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `args` with lists in place of iterators, whose items could not be counted."""
    return tuple(list(one) if isinstance(one, Iterator) else one for one in args)


def _kept(value: Any) -> Any:
    _spend(value)
    return value


def _each(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _spend()
        yield value


class _Generation(Extension):
    """The `{% generation %}` block of training templates: renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own annotation)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class MarkedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as transformers sets it up, rendering `MarkedText`, with an allowance and without what grows unseen."""

    concat = staticmethod(join)
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        extensions = [loopcontrols, _Generation]
        super().__init__(
            finalize=_kept,
            optimized=False,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=extensions,
        )
        self.written: list[MarkedText] = []  # the strings that stand in the template
        known = self.filters
        self.filters = {name: known[name] for name in _FREE} | {
            "kept": _kept,
            "each": _each,
            "marked": limited(join),
        }
        self.filters |= {
            name: limited(known[name], name in _REPEATING) for name in _ALLOWED["filters"].split()
        }
        tests: dict[str, Any] = self.tests
        tests |= {name: limited(tests[name]) for name in _ALLOWED["tests"].split()}
        self.globals = {name: self.globals[name] for name in ("dict", "namespace", "range")}

    def compile_text(self, source: str) -> jinja2.Template:
        """Compile a template with strings that are `MarkedText`. Raises jinja2.TemplateSyntaxError."""
        tree: nodes.Template = _Writer(self.written).visit(self.parse(source))
        return self.from_string(tree)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls: a method that is known, a macro, a function that it was given."""
        owner = getattr(__obj, "__self__", None)
        name = getattr(__obj, "__name__", "")
        for kind, methods in _METHODS.items():
            if isinstance(owner, kind) and name not in methods:
                raise SecurityError(
                    f"it calls {kind.__name__}.{name}, which no chat template needs"
                )
        repeating = isinstance(owner, str) and name in _REPEATING
        args = _listed(args) if repeating else args
        _spend(
            owner if isinstance(owner, str) else "", *args, *kwargs.values(), repeating=repeating
        )
        made = ImmutableSandboxedEnvironment.call(__self, __context, __obj, *args, **kwargs)
        _spend(made)
        return made

    def wrap_str_format(self, value: Any) -> None:
        """Refuse `str.format`: a width in it may be any number."""
        of_text = isinstance(getattr(value, "__self__", None), str)
        if of_text and getattr(value, "__name__", "") in ("format", "format_map"):
            raise SecurityError("it calls str.format, which no chat template needs")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        _spend(left, right, repeating=operator == "*" and not numbers)
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return left + right
        if operator == "**" and not (numbers and abs(right) <= 64):
            raise SecurityError(f"it computes {left!r:.20} ** {right!r:.20}")
        if (
            operator == "%"
            and not numbers
            and not (isinstance(left, str) and re.fullmatch("([^%]|%[%dsr])*", left))
        ):
            raise SecurityError(
                "it formats text with more than %s, %d and %r, which no chat template needs"
            )
        made = super().call_binop(context, operator, left, right)
        _spend(made)
        return made


class _Writer(NodeTransformer):
    """Turns every string of a template into a look-up in `environment.written`, which compiled code cannot fold."""

    def __init__(self, written: list[MarkedText]) -> None:
        self.written = written

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        return self._look_up(node, node.value) if isinstance(node.value, str) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return self._look_up(node, node.data)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = [self.visit(part) for part in node.nodes]
        return _filtered(
            nodes.List(parts, lineno=node.lineno, environment=node.environment), "marked"
        )

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "each")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "kept") if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") != "load" else _filtered(node, "kept")

    visit_Dict = visit_Tuple = visit_List

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        constant = isinstance(node.expr, nodes.Const) or any(
            isinstance(one.expr, nodes.Const) for one in node.ops
        )
        self.generic_visit(node)
        for one in node.ops:
            if not constant or one.op in ("in", "notin"):
                node.expr, one.expr = _filtered(node.expr, "kept"), _filtered(one.expr, "kept")
        return node

    def _look_up(self, node: nodes.Node, text: str) -> nodes.Node:
        self.written.append(template_text(text))
        table = nodes.EnvironmentAttribute("written", lineno=node.lineno)
        index = nodes.Const(len(self.written) - 1, lineno=node.lineno)
        return nodes.Getitem(table, index, "load", lineno=node.lineno, environment=node.environment)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(
        node, name, [], [], None, None, lineno=node.lineno, environment=node.environment
    )
