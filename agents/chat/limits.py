"""What a chat template may do: a bounded amount of work, whatever it says.

A template is a program of somebody else. Jinja's sandbox keeps it from the machine, but not from running without end
or from filling the memory. Here each operation of a template takes from an allowance, first for what it reads and then
for what it made: 1, and 1 for every `PIECE` characters and every item, nested ones too. Nothing that a template can
reach makes much of little: what could is counted before it runs (`replace`, `indent`, `join`, `*`), or missing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

PIECE = 16
BASE = 200_000  # the allowance of a conversation without messages
FOR_ITEM, FOR_CHARACTER = 1000, 64  # and what each item and character of its messages adds

_FREE = ("count", "d", "default", "first", "last", "length")  # take the same time for any value
_FILTERS = """abs attr capitalize dictsort e escape float forceescape indent int items join list lower map max min
    reject rejectattr replace reverse round safe select selectattr sort string striptags title trim truncate unique
    upper urlencode wordcount""".split()  # noqa: SIM905 (a name a line would be a page)
_COMPARE = "== != < <= > >= eq equalto ge greaterthan gt in le lessthan lt ne".split()  # noqa: SIM905
_OF_TEXT = """capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric
    isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit
    rstrip split splitlines startswith strip swapcase title upper"""
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_OF_TEXT.split()),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
}
_KEPT = "kept"  # the filter that counts what it passes on
_EACH = "each"  # the one that counts items as they come


_NESTED: tuple[type, ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    range,
    Namespace,
    type({}.values()),
    type({}.items()),
    type({}.keys()),
)


class _Allowance(threading.local):
    left = BASE


_allowance = _Allowance()


def begin(values: Iterable[Any]) -> None:
    """Give the template that this thread renders next the allowance for `values`, which it reads."""
    _allowance.left = 1 << 62
    items, characters = _size(list(values))
    _allowance.left = BASE + FOR_ITEM * items + FOR_CHARACTER * characters


def spend(*values: Any) -> None:
    """Take from the allowance what `values` cost; raises SecurityError where it is used up."""
    cost = 1
    for value in values:
        if isinstance(value, str):
            cost += len(value) // PIECE
        elif isinstance(value, _NESTED):
            items, characters = _size(value)
            cost += items + characters // PIECE
        elif isinstance(value, int) and value.bit_length() > 64:
            raise SecurityError("it makes a number of more than 64 bits")
    _allowance.left = left = _allowance.left - cost
    if left < 0:
        raise SecurityError("it takes more work than a chat template may; nothing in it may run or grow without end")


def _size(value: Any) -> tuple[int, int]:
    """Return the items and the characters of a nested value, as far as the allowance goes."""
    items = characters = 0
    most, left = _allowance.left, [value]
    while left and items + characters // PIECE <= most:
        value = left.pop()
        items += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            left += value.keys()
            left += value.values()
        elif isinstance(value, range):
            items += len(value)
        elif isinstance(value, Namespace):
            left.append(value._Namespace__attrs)
        elif isinstance(value, _NESTED):
            left += list(value)  # type: ignore[call-overload]
    return items, characters


def limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter or test that is paid for."""

    @wraps(function)
    def paid(*args: Any, **options: Any) -> Any:
        spend(*args, *options.values())
        made = function(*args, **options)
        spend(made)
        return made

    return paid


def _kept(value: Any) -> Any:
    spend(value)
    return value


def _each(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        spend()
        yield value


def _pay(characters: int) -> None:
    """Pay for what will be made, before it is."""
    _allowance.left -= characters // PIECE
    spend()


def _replace(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def replace(context: Any, text: Any, old: Any, new: Any, count: int | None = None) -> Any:
        text, old, new = (one if isinstance(one, str) else str(one) for one in (text, old, new))
        _pay(text.count(old) * len(new))
        return function(context, text, old, new, count)

    return replace


def _indent(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        _pay((len(text.splitlines()) + 1) * (len(width) if isinstance(width, str) else abs(width)))
        return str(function(text, width, first, blank))

    return indent


def _join(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def join(context: Any, values: Iterable[Any], between: str = "", attribute: Any = None) -> Any:
        values = list(values)
        spend(values)
        _pay(len(values) * len(between))
        return function(context, values, between, attribute)

    return join


_COUNTED = {"replace": _replace, "indent": _indent, "join": _join}  # these can make much of little


class LimitedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with an allowance, and without what makes much of little."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_kept, optimized=False, **options)
        known = self.filters | {name: count(self.filters[name]) for name, count in _COUNTED.items()}
        self.filters = {name: known[name] for name in _FREE} | {name: limited(known[name]) for name in _FILTERS}
        self.filters |= {_KEPT: _kept, _EACH: _each}
        tests: dict[str, Any] = self.tests
        tests |= {name: limited(tests[name]) for name in _COMPARE}
        self.globals = {name: self.globals[name] for name in ("dict", "namespace", "range")}

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls: a method that is known, a macro, a function that it was given."""
        owner = getattr(__obj, "__self__", None)
        name = getattr(__obj, "__name__", "")
        for kind, methods in _METHODS.items():
            if isinstance(owner, kind) and name not in methods:
                raise SecurityError(f"it calls {kind.__name__}.{name}, which no chat template needs")
        text = owner if isinstance(owner, str) else ""
        spend(text, *args, *kwargs.values())
        if text and name == "replace" and len(args) > 1:
            _pay(text.count(args[0]) * len(args[1]))
        elif text and name == "join" and args:
            args = (list(args[0]),)
            spend(*args)
            _pay(len(args[0]) * len(text))
        made = ImmutableSandboxedEnvironment.call(__self, __context, __obj, *args, **kwargs)
        spend(made)
        return made

    def wrap_str_format(self, value: Any) -> None:
        """Refuse `str.format`: a width in it may be any number."""
        if getattr(value, "__name__", "") in ("format", "format_map") and isinstance(
            getattr(value, "__self__", None), str
        ):
            raise SecurityError("it calls str.format, which no chat template needs")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute what a template computes, in bounded sizes."""
        spend(left, right)
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return left + right
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" and not (numbers and abs(right) <= 64):
            raise SecurityError(f"it computes {left!r:.20} ** {right!r:.20}")
        if operator == "%" and not numbers and not (isinstance(left, str) and re.fullmatch("([^%]|%[%dsr])*", left)):
            raise SecurityError("it formats text with more than %s, %d and %r, which no chat template needs")
        if operator == "*" and not numbers:
            times = next((abs(one) for one in (left, right) if isinstance(one, int)), 0)
            items, characters = _size([left, right])
            _pay(times * (items * PIECE + characters))
        made = super().call_binop(context, operator, left, right)
        spend(made)
        return made


def kept(node: nodes.Expr) -> nodes.Expr:
    """Return an expression whose value is paid for."""
    return nodes.Filter(node, _KEPT, [], [], None, None, lineno=node.lineno, environment=node.environment)


def each(node: nodes.Expr) -> nodes.Expr:
    """Return an iterable whose items are paid for one by one."""
    return nodes.Filter(node, _EACH, [], [], None, None, lineno=node.lineno, environment=node.environment)
