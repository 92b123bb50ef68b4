"""Learning methods by name: `METHODS` is the only registry. A method is imported when it is first used.

Each module is the card of a paper: title, equation, source of the defaults, grade of the evidence, deviations.
Grades: A, read in released code; B, text of the paper; C, a plausible reading.

    base algorithms: reinforce, rloo, reinforce_pp, grpo, dr_grpo, dapo, ppo
    policy terms and weights: gspo, cispo, tis
    entropy in the loss: entropy_bonus, epo, turn_pi
    advantages by turn: empg, gigpo, mt_grpo, bilevel_gae
    branching: arpo, aepo_branching; aepo has all parts of AEPO
    what is trained on: starpo_s, dart, actfocus, spear

A parameter is declared in the signature of a method's function, with its range, and checked whenever that is called. It
is a number with a `Range` (`alpha: Annotated[float, Range(0, 1)] = 0.2`), a `Literal` of texts, or a bool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import signature
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from ..signatures import read_signature

if TYPE_CHECKING:
    from ..control import Control  # needs torch, which takes a second to import

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
    """Return the parameters of a method's function by name, in its order."""
    hints = get_type_hints(function, include_extras=True)
    return {name: _parameter(name, hints[name], one.default) for name, one in signature(function).parameters.items()}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a method's function that raises ValueError where an argument is not what its signature allows."""
    method = function.__name__.removesuffix("_code").replace("_", "-")
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


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    if get_origin(hint) is Literal:
        return Parameter(name, str, default, get_args(hint))
    if get_origin(hint) is Annotated:
        kind, allowed = get_args(hint)
        return Parameter(name, kind, default, allowed)
    return Parameter(name, hint, default, None if hint is bool else Range())


VARIANT = Parameter("variant", str, "paper", ("paper", "code"))


@dataclass(frozen=True)
class Method:
    """A row of `METHODS`: where the function that makes the control is, and what `turngym train NAME` runs."""

    module: str  # in this folder
    function: str
    recipe: Mapping[str, Any] = field(default_factory=dict)  # empty for a part, which is named with another method
    code: str = ""  # the function of `variant=code`: the released code, where it differs from the paper

    def __call__(self, **arguments: Any) -> Control:
        """Return the control. Raises ValueError on an argument out of range."""
        variant = arguments.pop("variant", "paper") if self.code else "paper"
        return self.load(variant)(**arguments)

    def load(self, variant: str = "paper") -> Callable[..., Control]:
        """Return the function of the paper's method, or of the released code's. Raises ValueError on another name."""
        function: Callable[..., Control] = getattr(import_module(f".{self.module}", __package__), self._name(variant))
        return function

    def parameters(self, variant: str = "paper") -> dict[str, Parameter]:
        """Return the parameters of that function, which is not imported for it. Raises ValueError as `load` does."""
        signature = read_signature(self.path, self._name(variant), globals())
        return {name: _parameter(name, hint, default) for name, hint, default in signature}

    @property
    def path(self) -> Path:
        """The file of the module."""
        return Path(__file__).parent / f"{self.module}.py"

    def _name(self, variant: str) -> str:
        if self.code:
            VARIANT.check(self.function.replace("_", "-"), variant)
        return self.code if self.code and variant == "code" else self.function


METHODS: dict[str, Method | Callable[..., Control]] = {
    "actfocus": Method("actfocus", "actfocus", {"method": "grpo,actfocus"}),
    "aepo": Method("aepo", "aepo", {"method": "grpo,aepo", "updates": 2}, code="aepo_code"),
    "aepo-advantage": Method("aepo", "aepo_advantage"),
    "aepo-branching": Method("aepo_branching", "aepo_branching", code="aepo_branching_code"),
    "aepo-clip": Method("aepo", "aepo_clip", code="aepo_clip_code"),
    "arpo": Method("arpo", "arpo", {"method": "grpo,arpo"}, code="arpo_code"),
    "bilevel-gae": Method("bilevel_gae", "bilevel_gae", {"method": "bilevel-gae", "updates": 2}),
    "cispo": Method("cispo", "cispo", {"method": "grpo,cispo", "updates": 2}),
    "dapo": Method("dapo", "dapo", {"method": "dapo", "updates": 2}, code="dapo_code"),
    "dart": Method("dart", "dart", {"method": "dart", "updates": 2}),
    "dr-grpo": Method("dr_grpo", "dr_grpo", {"method": "dr-grpo"}),
    "empg": Method("empg", "empg", {"method": "grpo,empg"}),
    "entropy-bonus": Method("entropy_bonus", "entropy_bonus", {"method": "grpo,entropy-bonus"}),
    "epo": Method("epo", "epo", {"method": "grpo,epo"}, code="epo_code"),
    "gigpo": Method("gigpo", "gigpo", {"method": "gigpo"}),
    "grpo": Method("grpo", "grpo", {"method": "grpo"}),
    "gspo": Method("gspo", "gspo", {"method": "grpo,gspo", "updates": 2}),
    "mt-grpo": Method("mt_grpo", "mt_grpo", {"method": "mt-grpo"}),
    "ppo": Method("ppo", "ppo", {"method": "ppo", "updates": 2}),
    "reinforce": Method("reinforce", "reinforce", {"method": "reinforce:baseline=group"}),
    "reinforce-pp": Method("reinforce_pp", "reinforce_pp", {"method": "reinforce-pp"}),
    "rloo": Method("rloo", "rloo", {"method": "rloo"}, code="rloo_code"),
    "spear": Method("spear", "spear", {"method": "grpo:normalize=none,clip_high=0.28,spear"}),
    "starpo-s": Method("starpo_s", "starpo_s", {"method": "grpo,starpo-s", "updates": 2}),
    "tis": Method("tis", "tis"),
    "turn-pi": Method("turn_pi", "turn_pi", {"method": "grpo,turn-pi"}),
}


METHOD_RECIPES = {name: row.recipe for name, row in METHODS.items() if isinstance(row, Method) and row.recipe}


def title(name: str) -> str:
    """Return the first line of a method's card. Raises ValueError on an unknown name, with the nearest known one."""
    return _card(name).partition("\n")[0]


def describe(name: str) -> str:
    """Return a method's name and card, and its parameters with defaults and ranges. Raises as `title` does."""
    lines = [name, "", _card(name), "", "Parameters:", *map(str, method_parameters(name).values())]
    return "\n".join(lines) + "\n"


def check_methods(text: str) -> None:
    """Raise ValueError as `parse_methods` does, and where `text` names two base algorithms; import no method."""
    named = [(_known("method", name, METHODS), pairs) for name, pairs in _split(text)]
    for name, pairs in named:
        _values(name, pairs)
    bases = [name for name, _ in named if METHOD_RECIPES.get(name, {}).get("method") == name]
    for one, other in pairwise(bases):
        raise ValueError(f"{one} and {other} both set credit; use one of them: --method {one} or --method {other}")


def method_parameters(name: str, variant: str = "paper") -> dict[str, Parameter]:
    """Return the parameters of a method by name. Raises ValueError on an unknown method or variant."""
    row = METHODS[_known("method", name, METHODS)]
    if not isinstance(row, Method):
        return parameters(row)
    return row.parameters(variant) | ({"variant": VARIANT} if row.code else {})


def parse_methods(text: str, defaults: Mapping[str, Any] = MappingProxyType({})) -> list[Control]:
    """Return the controls that a text such as "grpo,epo:alpha=0.2,high=1.5" names, in its order.

    Parameters follow the method they belong to; `defaults` fill those that the text leaves out, as a run's number of
    `steps` does. Raises ValueError on an unknown method or parameter, with the nearest known one, on a parameter given
    twice and on a bad value.
    """
    for name, _ in _split(text):
        _known("method", name, METHODS)
    return [_build(name, pairs, defaults) for name, pairs in _split(text)]


def _split(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each method's name and its `name=value` texts: an item without a colon but with "=" continues the last."""
    name, pairs = "", list[str]()
    for item in (item.strip() for item in text.split(",")):
        if name and "=" in item and ":" not in item.partition("=")[0]:
            pairs.append(item)
            continue
        if name:
            yield name, pairs
        name, colon, pair = item.partition(":")
        pairs = [pair] if colon else []
        if not name:
            raise ValueError(f"methods are {text!r}; write names with commas between, such as grpo,epo:alpha=0.2")
    yield name, pairs


def _values(name: str, pairs: list[str]) -> tuple[dict[str, Parameter], dict[str, Any]]:
    """Return the parameters of a method, and the values that `name=value` texts give to some."""
    texts: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"{name}: {pair!r} is no parameter; write {name}:parameter=value")
        if key in texts:
            raise ValueError(f"{name}: {key} is given twice; give it once")
        texts[key] = text
    known = method_parameters(name, texts.get("variant", "paper"))
    values = {key: known[_known(f"parameter of {name}", key, known)].parse(name, text) for key, text in texts.items()}
    for key, value in values.items():
        known[key].check(name, value)
    return known, values


def _build(name: str, pairs: list[str], defaults: Mapping[str, Any]) -> Control:
    known, values = _values(name, pairs)
    return METHODS[name](**{key: value for key, value in defaults.items() if key in known} | values)


def _card(name: str) -> str:
    """Return the docstring of a method's module, which is not imported for it."""
    row = METHODS[_known("method", name, METHODS)]
    if not isinstance(row, Method):
        return row.__doc__ or name
    return row.path.read_text("utf-8").split('"""', 2)[1].strip()


def _known(what: str, name: str, table: Iterable[str]) -> str:
    if name not in table:
        close = get_close_matches(name, table, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no {what} is called {name!r}; {hint}known are {', '.join(sorted(table))}")
    return name
