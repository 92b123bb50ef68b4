"""Choices that only the command line may make, found among those that a file makes.

`reserved_choices` finds them in the options of an environment, `refuse_unnamed` raises the error
for one that the present command has not made itself. Each is written as the command would:
`name=value`, or the name of an isolation level.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium

from ..tools.plugins import TOOLS_GROUP as TOOLS
from ..tools.plugins import declared_plugins, is_foreign, tool_names
from ..tools.python import LEVELS
from . import choices
from .options import to_toml_value
from .registry import _REGISTRY_TABLES, ENVS, GROUP, entries, flag_of, module_id

# Why an option is reserved, by its name: the end of an error, such as "opens pages of the
# internet".
_REASONS: dict[str, str] = _REGISTRY_TABLES["reserved"]
_OTHER_REASON = "is not of a form that a file may choose"
# Options that run code of somebody else, which the user has to trust.
_CODE_OPTIONS = ("env", "method", "tools", "packages", "server", "server_option", "chat_template")
_OWN_ENVS = frozenset(entry.id for entry in ENVS)


def reserved_choices(options: Mapping[str, Any], env_id: str = "") -> list[str]:
    """Return the choices among an environment's options that only the present command may make.

    Args:
        options: The options that a file asks for.
        env_id: The environment; "" for one of turngym that has any option.

    Returns:
        The names of isolation levels below the default, and `name=value` of every other option that
        `choices.OPTIONS` does not allow. In an environment of another package, whose options may
        mean anything, an option of its own is reserved if its value could name a file or a module.
        Last comes `env=ID` of an environment whose code would be imported.
    """
    env_id = module_id(env_id)
    is_own = not env_id or env_id in _OWN_ENVS
    # A weaker isolation level is reserved wherever it stands, as it may be nested in any option.
    weaker_levels = LEVELS[1:]
    reserved = [text for text in _iterate_texts(options) if text in weaker_levels]
    for name, value in options.items():
        if name == "packages" and not choices.is_empty(value):
            reserved += [f"packages={package}" for package in _package_names(value)]
        elif name == "tools":
            reserved += _reserved_tools(value)
        elif name == "level" and value in weaker_levels:
            continue  # it is among the texts above
        elif not _may_choose(name, value, is_own):
            reserved.append(format_choice(name, value))
    reserved = list(dict.fromkeys(reserved))  # each choice once, in order
    if _imports_foreign_code(env_id):
        reserved.append(f"env={env_id}")
    return reserved


def _may_choose(name: str, value: Any, is_own: bool) -> bool:
    """Return whether a file may choose this value of an environment's option.

    Args:
        name: The name of the option.
        value: The value.
        is_own: Whether the environment is one of turngym. Of another package's options only those
            in `choices.SHARED` have the meaning that the rules of `choices.OPTIONS` assume.
    """
    has_rule = name in choices.OPTIONS and (is_own or name in choices.SHARED)
    if has_rule:
        return choices.OPTIONS[name](value)
    return not is_own and choices.is_harmless(value)


def find_outside_paths(values: Mapping[str, Any], *folders: Path) -> list[str]:
    """Return, as `name=path`, a file's paths that lead outside of certain folders.

    It is for recipes and suites, which are written to be passed on. A journal and a run repeat the
    paths of their own command, which may be anywhere.

    Args:
        values: The options of the file.
        folders: The folders, in addition to the current one, that the paths may lead into.
    """
    outside_paths = []
    for name in ("tasks", "shots", "corpus", "policy"):
        path = values.get(name)
        if isinstance(path, str) and not choices.is_inside_folders(path, *folders):
            outside_paths.append(format_choice(name, path))
    return outside_paths


def format_choice(name: str, value: Any) -> str:
    """Return `name=value` as it stands in a command: the value in TOML, but texts without quotes.

    Examples: "split=test", "k=3", "held=true", "difficulty=[1, 2]"
    """
    if isinstance(value, str | float | int) and not isinstance(value, bool):
        return f"{name}={value}"
    return f"{name}={to_toml_value(value)}"


def refuse_unnamed(asked: Iterable[str], allowed: Collection[str], where: str) -> None:
    """Refuse the reserved choices of a file that the command does not make itself.

    Args:
        asked: The choices that the file makes, as `reserved_choices` returns them.
        allowed: The choices that the command makes. `name=` stands for any value, as the command's
            value replaces the file's.
        where: The file, for the error.

    Raises:
        ValueError: A choice is not allowed. The message is about the first, and says how to allow
            it.
    """
    for choice in asked:
        name, equals, _ = choice.partition("=")
        if choice in allowed or f"{name}=" in allowed:
            continue
        is_level = not equals  # any other choice is `name=value`
        if is_level:
            fault = (
                f"asks for isolation level {choice!r}, "
                f"which is weaker than the default {LEVELS[0]!r}"
            )
        else:
            limits = {"memory_mb": choices.MOST_MIB, "timeout": choices.MOST_SECONDS}
            reason = _REASONS.get(name, _OTHER_REASON).format(most=limits.get(name))
            fault = f"asks for {choice!r:.120}, which {reason}"
        runs_code = is_level or name in _CODE_OPTIONS
        trusted = "its code" if runs_code else "it"
        raise ValueError(
            f"{where} {fault}; a file cannot choose that. "
            f"If you trust {trusted}, add {flag_of(choice)} to the command"
        )


def is_plugin(env_id: str) -> bool:
    """Return whether only another installed package declares an environment, not turngym."""
    return env_id not in _OWN_ENVS and any(
        plugin.name == env_id for plugin in declared_plugins(GROUP)
    )


def plugin_tools(options: Mapping[str, Any]) -> list[str]:
    """Return the tools among the options of an environment that installed packages declare."""
    declared_tools = {plugin.name for plugin in declared_plugins(TOOLS)}
    named_tools: list[str] = []
    for text in _iterate_texts(options.get("tools")):
        named_tools += tool_names(text)
    return [name for name in named_tools if name in declared_tools]


def _package_names(value: Any) -> list[str]:
    """Return the packages that the option names: "numpy, sympy" -> ["numpy", "sympy"]."""
    names = value.split(",") if isinstance(value, str) else map(str, _as_list(value))
    return [name.strip() for name in names]


def _reserved_tools(value: Any) -> list[str]:
    """Return the tools that a file may not choose, as `tools=NAME`.

    They are those whose code would have to be imported, and names that are no words.

    Args:
        value: The option `tools`: a name or a list of names. A value of any other shape is itself
            reserved, together with such tools among the texts in it.
    """
    reserved = []
    is_list_of_names = value is None or all(isinstance(item, str) for item in _as_list(value))
    if not is_list_of_names:
        reserved.append(format_choice("tools", value))
    for text in _iterate_texts(value):
        for name in tool_names(text):
            if is_foreign(name, TOOLS) or not choices.WORD(name):
                reserved.append(f"tools={name}")
    return reserved


def _as_list(value: Any) -> list[Any]:
    """Return a list or tuple as a list; anything else is its one item."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _iterate_texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested lists and mappings, also those that are keys."""
    unvisited = [value]
    while unvisited:
        item = unvisited.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            unvisited += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            unvisited += item


def _imports_foreign_code(env_id: str) -> bool:
    """Return whether making an environment would import a module of another package.

    For an id with a module (`module:factory`) it is always True, as the file itself names code.
    Otherwise it is False if the module is already imported.
    """
    if ":" in env_id:
        return True
    spec = gymnasium.registry.get(env_id)
    entry_point = getattr(spec, "entry_point", None)
    if not entry_point:  # its package may be installed, but not yet registered with Gymnasium
        entry = next((entry for entry in entries() if entry.id == env_id), None)
        entry_point = None if entry is None else entry.entry_point
    if not isinstance(entry_point, str):
        return False
    module = entry_point.partition(":")[0]
    is_turngym = module.partition(".")[0] == "turngym"
    return bool(module) and module not in sys.modules and not is_turngym
