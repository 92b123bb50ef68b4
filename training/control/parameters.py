"""The parameters of methods: declared in a function's signature, with their ranges, and checked when it is called.

A parameter is a number with a `Range` (`alpha: Annotated[float, Range(0, 1)] = 0.2`), a `Literal` of texts, or a bool.
`read_parameters` finds them in the text of a module, which needs torch to be imported.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from inspect import Signature, signature
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Range:
    """Which numbers are allowed: from `low` to `high`, both included, and finite.

    `above` leaves out `low`, `below` leaves out `high`, and `unbounded` adds inf. NaN is never allowed.
    """

    low: float = -inf
    high: float = inf
    above: bool = False
    below: bool = False
    unbounded: bool = False

    def __contains__(self, value: float) -> bool:
        """Return whether `value` is allowed."""
        finite = isfinite(value) or (self.unbounded and value == inf)
        over = value > self.low if self.above else value >= self.low
        return finite and over and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        """Return the range in words: `0 to 1`, `above 0`, `0 or more, or inf`."""
        if self.high < inf and not (self.above or self.below):
            return f"{self.low:g} to {self.high:g}"
        if self.high < inf:
            low, high = "above" if self.above else "at least", "below" if self.below else "at most"
            return f"{low} {self.low:g} and {high} {self.high:g}"
        if self.low == -inf:
            return "finite" + (", or inf" if self.unbounded else "")
        low = f"above {self.low:g}" if self.above else f"{self.low:g} or more"
        return f"{low}, or inf" if self.unbounded else low


Share = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(0, above=True)]
NonNegative = Annotated[float, Range(0)]
Bound = Annotated[float, Range(0, unbounded=True)]  # how far a value may move; inf holds nothing
Limit = Annotated[float, Range(1, above=True, unbounded=True)]  # of a dual clip; inf is without one
Finite = Annotated[float, Range()]
Count = Annotated[int, Range(1)]
Variant = Literal["paper", "code"]  # the paper's method, or the released code where that differs


@dataclass(frozen=True)
class Parameter:
    """One parameter: its type, default, and range or choices (a bool has neither)."""

    name: str
    kind: type
    default: Any
    allowed: Range | tuple[str, ...] | None = None

    def __str__(self) -> str:
        """Return `name=default (rule)`."""
        default = str(self.default).lower() if self.kind is bool else self.default
        return f"{self.name}={default} ({self.rule})"

    @property
    def rule(self) -> str:
        """Return what a value must be, in words."""
        if isinstance(self.allowed, tuple):
            return " or ".join([", ".join(self.allowed[:-1]), self.allowed[-1]])
        return str(self.allowed or "true or false")

    def check(self, method: str, value: Any) -> None:
        """Raise ValueError where a value of this method's parameter is not allowed."""
        require(self.allowed is None or value in self.allowed, method, self.name, value, self.rule)

    def parse(self, method: str, text: str) -> Any:
        """Return the value that `text` stands for. Raises ValueError where it is of another type."""
        if self.kind is str:
            return text
        if self.kind is bool:
            require(text in ("true", "false"), method, self.name, text, self.rule)
            return text == "true"
        try:
            return self.kind(text)
        except ValueError:
            noun = "a whole number" if self.kind is int else "a number"
            raise ValueError(f"{method}: {self.name} is {text!r}; it must be {noun}") from None


def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a method's function by name, in its order. Raises TypeError where one cannot be."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: parameter(name, hints.get(name), one.default)
        for name, one in signature(function).parameters.items()
    }


def checked(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Return a method's function, called `name` in errors, that raises ValueError where an argument is not allowed."""
    method = name or function.__name__.replace("_", "-")
    known, bind = parameters(function), signature(function).bind

    @wraps(function)
    def build(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in bind(*args, **kwargs).arguments.items():
            known[name].check(method, value)
        return function(*args, **kwargs)

    return build


def require(holds: bool, method: str, name: str, value: object, rule: str) -> None:
    """Raise ValueError naming the method, its parameter, the value and the rule unless the rule `holds`."""
    if not holds:
        raise ValueError(f"{method}: {name} is {value!r}; it must be {rule}")


def parameter(name: str, hint: Any, default: Any) -> Parameter:
    """Return the parameter that an annotation and a default declare. Raises TypeError where they declare none."""
    kind, allowed, *_ = (
        get_args(hint)
        if get_origin(hint) is Annotated
        else (hint, None if hint is bool else Range())
    )
    if get_origin(hint) is Literal:
        kind, allowed = str, get_args(hint)
    if kind not in (int, float, bool, str) or (kind is str and not isinstance(allowed, tuple)):
        raise TypeError(
            f"{name} is annotated {hint}; annotate it with float or int and a Range, Literal, or bool"
        )
    if default is Signature.empty:
        raise TypeError(f"{name} has no default; give it one")
    return Parameter(name, kind, default, allowed)


def read_parameters(path: Path, function: str) -> dict[str, Parameter]:
    """Return the parameters of a function in the module at `path`, which is not imported."""
    names = _Names(path)
    of = next(
        node.args
        for node in names.nodes
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    defaults = zip(of.args + of.kwonlyargs, of.defaults + of.kw_defaults)
    return {
        a.arg: parameter(a.arg, names.value(a.annotation), names.value(default))
        for a, default in defaults
    }


@cache
def _statements(path: Path) -> list[ast.stmt]:
    """Return the statements of a module's file, which is parsed once: many methods name the same modules."""
    return ast.parse(path.read_text("utf-8")).body


class _Names(dict[str, Any]):
    """What a module's names stand for, found out when one is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(globals())
        self.path, self.nodes = path, _statements(path)

    def value(self, node: ast.expr | None) -> Any:
        code = compile(ast.Expression(node or ast.Constant(None)), str(self.path), "eval")
        return eval(code, {}, self)  # noqa: S307 (this package's own text)

    def __missing__(self, name: str) -> Any:
        for node in self.nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return self.value(node.value)
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and name in (alias.name for alias in node.names)
            ):
                if not node.level:
                    return getattr(import_module(node.module), name)
                folder = self.path.parents[node.level - 1]
                return _Names(folder / f"{node.module.replace('.', '/')}.py")[name]
        raise KeyError(name)
