"""The entropy methods by name. A name in a command line or recipe is a row of `METHODS`; there is no other registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from inspect import getdoc, getmodule, signature
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..control import Control
from .actfocus import actfocus
from .aepo import aepo, aepo_advantage, aepo_branching, aepo_clip
from .arpo import arpo
from .bilevel_gae import bilevel_gae
from .cispo import cispo
from .dapo import dapo
from .dart import dart
from .dr_grpo import dr_grpo
from .empg import empg
from .entropy_bonus import entropy_bonus
from .epo import epo
from .gigpo import gigpo
from .grpo import grpo
from .gspo import gspo
from .mt_grpo import mt_grpo
from .ppo import ppo
from .reinforce import reinforce
from .reinforce_pp import reinforce_pp
from .rloo import rloo
from .spear import spear
from .starpo_s import starpo_s
from .tis import tis
from .turn_pi import turn_pi

METHODS: dict[str, Callable[..., Control]] = {
    "actfocus": actfocus,
    "aepo": aepo,
    "aepo-advantage": aepo_advantage,
    "aepo-branching": aepo_branching,
    "aepo-clip": aepo_clip,
    "arpo": arpo,
    "bilevel-gae": bilevel_gae,
    "cispo": cispo,
    "dapo": dapo,
    "dart": dart,
    "dr-grpo": dr_grpo,
    "empg": empg,
    "entropy-bonus": entropy_bonus,
    "epo": epo,
    "gigpo": gigpo,
    "grpo": grpo,
    "gspo": gspo,
    "mt-grpo": mt_grpo,
    "ppo": ppo,
    "reinforce": reinforce,
    "reinforce-pp": reinforce_pp,
    "rloo": rloo,
    "spear": spear,
    "starpo-s": starpo_s,
    "tis": tis,
    "turn-pi": turn_pi,
}


def get_method(name: str) -> Callable[..., Control]:
    """Return the factory of a method. Raises ValueError on an unknown name, with the nearest known one."""
    return METHODS[_known("method", name, METHODS)]


def describe(name: str) -> tuple[str, str, str]:
    """Return a method's name, its parameters with their defaults, and the title on its card."""
    factory = get_method(name)
    parameters = ", ".join(f"{key}={value.default}" for key, value in signature(factory).parameters.items())
    card = getdoc(getmodule(factory)) or ""
    return name, parameters, card.partition("\n")[0]


def parse_methods(text: str, defaults: Mapping[str, Any] = MappingProxyType({})) -> list[Control]:
    """Return the controls that a text such as "grpo,epo:alpha=0.2,high=1.5" names, in its order.

    Parameters follow the method they belong to; `defaults` fill those that the text leaves out, as a run's number of
    `steps` does. Raises ValueError on an unknown method or parameter, with the nearest
    known one, on a parameter given twice and on a bad value.
    """
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


def _build(name: str, pairs: list[str], defaults: Mapping[str, Any]) -> Control:
    factory = get_method(name)
    kinds = {key: kind for key, kind in get_type_hints(factory).items() if key != "return"}
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"{name}: {pair!r} is no parameter; write {name}:parameter=value")
        if _known(f"parameter of {name}", key, kinds) in values:
            raise ValueError(f"{name}: {key} is given twice; give it once")
        values[key] = _value(f"{name}: {key}", text, kinds[key])
    return factory(**{key: value for key, value in defaults.items() if key in kinds} | values)


def _value(what: str, text: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"{what} is {text!r}; it must be one of {', '.join(get_args(kind))}")
        return text
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{what} is {text!r}; it must be true or false")
        return text == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{what} is {text!r}; it must be {_NOUN[kind]}") from None


_NOUN = {int: "a whole number", float: "a number"}


def _known(what: str, name: str, table: Mapping[str, Any]) -> str:
    if name not in table:
        close = get_close_matches(name, table, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no {what} is called {name!r}; {hint}known are {', '.join(sorted(table))}")
    return name
