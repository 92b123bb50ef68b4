"""Learning methods by name: `METHODS` has those of turngym. A method is imported when it is first used.

Each module is the card of a paper: title, equation, source of the defaults, grade of the evidence, deviations.
Grades: A, read in released code; B, text of the paper; C, a plausible reading.

    base algorithms: reinforce, rloo, reinforce_pp, grpo, dr_grpo, dapo, ppo
    policy terms and weights: gspo, cispo, tis
    entropy in the loss: entropy_bonus, epo, turn_pi
    advantages by turn: empg, gigpo, mt_grpo, bilevel_gae
    branching: arpo, aepo_branching; aepo has all parts of AEPO
    what is trained on: starpo_s, dart, actfocus, spear

Methods of others are functions of the same form: an installed package declares them as entry points of the group
`turngym.methods` (the name is the method's, the value `module:factory`), and one's own is named `module:factory`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...tools.plugins import Plugin, declared, find, is_foreign, load, raised
from ..parameters import VARIANT, Parameter, checked, parameter, parameters
from ..signatures import read_signature

if TYPE_CHECKING:
    from ..control import Control  # needs torch, which takes a second to import

GROUP = "turngym.methods"  # of entry points
_OF_A_MODULE = re.compile(r"([^:=]+:[^\W\d]\w*)(?:(:)(.*))?")


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
        signature = read_signature(self.path, self._name(variant))
        return {name: parameter(name, hint, default) for name, hint, default in signature}

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


COMPARING = frozenset({"dapo", "dart", "dr-grpo", "gigpo", "grpo", "mt-grpo", "rloo"})  # paths of a group
METHOD_RECIPES = {name: row.recipe for name, row in METHODS.items() if isinstance(row, Method) and row.recipe}


def others() -> list[Plugin]:
    """Return the methods that installed packages declare; nothing is imported."""
    return [one for one in declared(GROUP) if one.name not in METHODS]


def foreign(text: str) -> bool:
    """Return whether a text names a method that only the present command may name."""
    return any(name not in METHODS and is_foreign(name, GROUP) for name, _ in _split(text))


def title(name: str) -> str:
    """Return the first line of a method's card. Raises ValueError on an unknown name, with the nearest known one."""
    return _card(name).partition("\n")[0]


def describe(name: str) -> str:
    """Return a method's name and card, and its parameters with defaults and ranges. Raises as `title` does."""
    lines = [name, "", _card(name), "", "Parameters:", *map(str, method_parameters(name).values())]
    return "\n".join(lines) + "\n"


def check_methods(text: str) -> None:
    """Raise ValueError as `parse_methods` does, and where `text` names two base algorithms; import none of turngym."""
    named = list(_split(text))
    for name, pairs in named:
        _values(name, pairs) if name in METHODS else _build(name, pairs, {})
    bases = [name for name, _ in named if METHOD_RECIPES.get(name, {}).get("method") == name]
    for one, other in pairwise(bases):
        raise ValueError(f"{one} and {other} both set credit; use one of them: --method {one} or --method {other}")


def check_group(text: str, group: int) -> None:
    """Raise ValueError where a method of `text` compares the paths of a group, and a group is a single path."""
    for name, pairs in _split(text) if group == 1 else ():
        if name in COMPARING or (name in METHODS and _values(name, pairs)[1].get("baseline") == "group"):
            raise ValueError(
                f"group is 1, but {name} judges a path by the others of its group; use --group 8, or a method that "
                "needs no others: --method reinforce-pp"
            )


def method_parameters(name: str, variant: str = "paper") -> dict[str, Parameter]:
    """Return the parameters of a method by name. Raises ValueError on an unknown method or variant."""
    row = _row(name)
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
        _row(name)
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
        if name not in METHODS and (of_a_module := _OF_A_MODULE.fullmatch(item)):
            name, colon, pair = of_a_module.groups()
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
    return _row(name)(**{key: value for key, value in defaults.items() if key in known} | values)


def _row(name: str) -> Method | Callable[..., Control]:
    """Return what makes a method's control: a row of `METHODS`, or the function of others, which is imported for it."""
    if name in METHODS:
        return METHODS[name]
    spec, what = name, "method"
    if ":" not in name:
        if (plugin := find(name, GROUP)) is None:
            _known("method", name, {*METHODS, *(one.name for one in others())})
            raise AssertionError("unreachable: nobody declares it")
        spec, what = plugin.spec, f"method {name} of the package {plugin.package}"
    function = load(spec, what)
    if not inspect.isfunction(function):
        raise ValueError(f"the {what} {spec!r} is a {type(function).__name__}; write a function that returns a Control")
    try:
        parameters(function)
    except (TypeError, ValueError, NameError) as error:
        raise ValueError(f"the {what} {spec!r}: {error}") from error
    return _others_function(function, name, f"the {what} {spec!r}")


def _others_function(function: Callable[..., Any], name: str, what: str) -> Callable[..., Control]:
    """Return a function of others whose arguments and result are checked; what it raises is a ValueError."""

    @wraps(function)
    def build(*args: Any, **kwargs: Any) -> Control:
        from ..control import Control

        try:
            made = checked(function, name)(*args, **kwargs)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{what} raises {raised(error)}") from error
        if not isinstance(made, Control):
            raise ValueError(
                f"{what} returns a {type(made).__name__}; it must return a turngym.training.control.Control"
            )
        return made

    return build


def _card(name: str) -> str:
    """Return the docstring of a method's module, which is not imported for it."""
    row = _row(name)
    if not isinstance(row, Method):
        return inspect.getdoc(row) or sys.modules[row.__module__].__doc__ or name
    return row.path.read_text("utf-8").split('"""', 2)[1].strip()


def _known(what: str, name: str, table: Iterable[str]) -> str:
    if name not in table:
        close = get_close_matches(name, table, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no {what} is called {name!r}; {hint}known are {', '.join(sorted(table))}")
    return name
