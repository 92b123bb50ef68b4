"""Options that only the command line may choose, found in whatever a file asks for."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium

from ..tools.plugins import GROUP as TOOLS
from ..tools.plugins import declared, is_foreign, tool_names
from ..tools.python import LEVELS
from . import choices
from .options import _literal
from .registry import _TABLES, ENVS, GROUP, entries, flag_of, module_id

_WIDER: dict[str, str] = _TABLES["reserved"]
_OTHER = "is not of a form that a file may choose"
_OWN_ENVS = frozenset(entry.id for entry in ENVS)


def reserved_choices(options: Mapping[str, Any], env_id: str = "") -> list[str]:
    """Return what of an environment and its options only the present command may choose, each as it is named there.

    That is all that `choices.OPTIONS` does not allow: an isolation level below the default by its name, and
    `name=value` of the rest. Of an environment of another package it is what reaches further by its name, and what
    could name a file or a module.
    """
    env_id = module_id(env_id)
    own = not env_id or env_id in _OWN_ENVS
    found = [level for level in _texts(options) if level in LEVELS[1:]]
    for name, value in options.items():
        if name == "packages" and not choices.is_empty(value):
            names = value.split(",") if isinstance(value, str) else map(str, _items(value))
            found += [f"packages={package.strip()}" for package in names]
        elif name == "tools":
            found += _reserved_tools(value)
        elif name == "level" and value in LEVELS[1:]:
            continue  # it is there
        elif name in choices.OPTIONS and (own or name in choices.SHARED):
            found += [] if choices.OPTIONS[name](value) else [named_choice(name, value)]
        elif own or not choices.is_plain(value):
            found.append(named_choice(name, value))
    return [*dict.fromkeys(found), *([f"env={env_id}"] if _is_foreign(env_id) else [])]


def far_choices(values: Mapping[str, Any], *folders: Path) -> list[str]:
    """Return the paths that lead away from the current folder and from `folders`, where a file that names them lies.

    For recipes and suites, which are written to be passed on; a journal and a run name what their own command named.
    """
    paths = {name: values.get(name) for name in ("tasks", "shots", "corpus", "policy")}
    texts = {name: path for name, path in paths.items() if isinstance(path, str)}
    return [
        named_choice(name, path)
        for name, path in texts.items()
        if not choices.is_near(path, *folders)
    ]


def named_choice(name: str, value: Any) -> str:
    """Return `name=value` as a command has it."""
    plain = isinstance(value, str | float | int) and not isinstance(value, bool)
    return f"{name}={value if plain else _literal(value)}"


def _reserved_tools(value: Any) -> list[str]:
    """Return the tools whose code is not imported yet; of a shape that is no list of names all of it."""
    names = [one for text in _texts(value) for one in tool_names(text)]
    found = [f"tools={one}" for one in names if is_foreign(one, TOOLS) or not choices.WORD(one)]
    flat = (
        value is None
        or isinstance(value, str)
        or all(isinstance(one, str) for one in _items(value))
    )
    return found if flat else [named_choice("tools", value), *found]


def _items(value: Any) -> list[Any]:
    """Return the items of a list; anything else is one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _texts(value: Any) -> Iterator[str]:
    left = [value]  # of nested data
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            left += value


def _is_foreign(env_id: str) -> bool:
    """Return whether an environment is of another package, and its module not imported yet, or named by its module."""
    if ":" in env_id:
        return True
    known = (entry.entry_point for entry in entries() if entry.id == env_id)
    point = getattr(gymnasium.registry.get(env_id), "entry_point", None) or next(known, None)
    module = point.partition(":")[0] if isinstance(point, str) else ""
    return bool(module) and module not in sys.modules and module.partition(".")[0] != "turngym"


def is_plugin(env_id: str) -> bool:
    """Return whether an installed package declares an environment that turngym does not have itself."""
    return env_id not in _OWN_ENVS and any(plugin.name == env_id for plugin in declared(GROUP))


def plugin_tools(options: Mapping[str, Any]) -> list[str]:
    """Return the tools among the options of an environment that installed packages declare."""
    declared_tools = {plugin.name for plugin in declared(TOOLS)}
    return [
        name
        for text in _texts(options.get("tools"))
        for name in tool_names(text)
        if name in declared_tools
    ]


def refuse_unnamed(asked: Iterable[str], allowed: Collection[str], where: str) -> None:
    """Refuse what data (a journal, a run folder, a recipe) may not choose; `where` names the data in the error.

    `asked` is what the data names and `allowed` what the present caller names himself, both as `reserved_choices` gives
    it; `name=` stands for every value, as that of the command takes its place. Raises ValueError for the first that is
    not allowed; the message says how to allow it.
    """
    for one in asked:
        name, equals, _ = one.partition("=")
        if one in allowed or f"{name}=" in allowed:
            continue
        what = f"asks for isolation level {one!r}, which is weaker than the default {LEVELS[0]!r}"
        if equals:
            most = {"memory_mb": choices.MOST_MIB, "timeout": choices.MOST_SECONDS}
            what = f"asks for {one!r:.120}, which {_WIDER.get(name, _OTHER).format(most=most.get(name))}"
        fix = f"If you trust {'its code' if name in _CODE or not equals else 'it'}, add {flag_of(one)} to the command"
        raise ValueError(f"{where} {what}; a file cannot choose that. {fix}")


_CODE = ("env", "method", "tools", "packages", "server", "server_option", "chat_template")
