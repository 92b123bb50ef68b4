"""What others write: tools as objects, functions, classes and names, `module:name`, and entry points of packages.

Nothing is imported before it is asked for, so what is broken is an error only where it is used. Data (a journal, a run
folder, a recipe) may not ask: what `is_foreign` has to be named by the present command.
"""

import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from .base import Tool
from .checks import did_you_mean
from .docstrings import first_sentence, read_docstring
from .function_tool import FunctionTool, MethodTool, Toolset

GROUP = "turngym.tools"  # of entry points
MEMBERS = ("name", "schema", "call", "reset", "fork", "close")
_NOT_OWN = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package: its name, the `module:name` behind it, the package and its summary."""

    name: str
    spec: str
    package: str
    summary: str = ""


def declared(group: str) -> tuple[Plugin, ...]:
    """Return what installed packages declare in a group of entry points, by name and package; nothing is imported."""
    return _declared(group, tuple(sys.path))


@cache
def _declared(group: str, path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Return them for a search path: every environment that is made asks, and 10 ms are long for that."""
    points = [
        (one, one.dist) for one in metadata.entry_points(group=group) if one.dist
    ]  # as every installed one has
    found = [
        Plugin(p.name, p.value, d.name, str(d.metadata.json.get("summary", ""))) for p, d in points
    ]
    return tuple(sorted(found, key=lambda one: (one.name, one.package)))


def find(name: str, group: str) -> Plugin | None:
    """Return what declares a name; None where nothing does. Raises ValueError where several packages do."""
    if len(found := [one for one in declared(group) if one.name == name]) > 1:
        packages = " and ".join(one.package for one in found)
        raise ValueError(f"{name} is declared by the packages {packages}; uninstall all but one")
    return found[0] if found else None


@dataclass(frozen=True)
class ListedPlugin:
    """A line of a list of plugins: the name, what it is or why it cannot be used, and the package that declares it."""

    name: str
    about: str
    package: str


def list_plugins(group: str, taken: Collection[str] = ()) -> list[ListedPlugin]:
    """Return a line for each plugin of a group, by name and package; nothing is imported.

    Args:
        group: Of entry points.
        taken: Names that turngym has itself: a plugin that is called so is not used.
    """
    return [
        ListedPlugin(one.name, _about(one, group, taken), one.package) for one in declared(group)
    ]


def _about(plugin: Plugin, group: str, taken: Collection[str]) -> str:
    """Return the first sentence about a plugin, or else its package's summary; or why it cannot be used."""
    if plugin.name in taken:
        return f"not used, as turngym has {plugin.name} itself: rename it"
    try:
        find(plugin.name, group)
        return first_sentence(read_docstring(plugin.spec)) or plugin.summary
    except ValueError as error:
        return f"broken: {error}"


def is_foreign(name: str, group: str) -> bool:
    """Return whether a name stands for code that no data may ask for.

    That is `module:name`, and what another package declares in `group`, as long as its module is not imported.
    """
    behind = [one.spec.partition(":")[0] for one in declared(group) if one.name == name]
    return ":" in name or any(module not in sys.modules for module in behind)


def load(spec: str, what: str) -> Any:
    """Return what `module:name` stands for; a module that Python's path does not have may be in the current folder.

    `what` it is to be, and who says so, is for errors: `environment`, `method epo2 of the package other`. Raises
    ValueError where it is written otherwise, there is no such module or name, or the module cannot be imported.
    """
    module, colon, name = spec.partition(":")
    if not (module and colon and name.isidentifier()):
        raise ValueError(f"the {what} is {spec!r}; write module:name")
    found = load_module(module, f"the {what} {spec!r}")
    try:
        return getattr(found, name)
    except AttributeError:
        where = getattr(found, "__file__", None) or "part of Python"
        hint = did_you_mean(name, (one for one in vars(found) if not one.startswith("_")))
        if (own := Path.cwd() / f"{module}.py").is_file() and str(own) != where:
            hint = f"it has the name of your {module}.py: rename that"
        missing = f"the {what} {spec!r}: the module {module} ({where}) has no {name}; {hint}"
        raise ValueError(missing.rstrip("; ")) from None


def load_module(name: str, where: str) -> ModuleType:
    """Return a module, as `load` finds it. Raises ValueError, begun with `where`, if it cannot be imported."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts) or parts[-1] == "py":
        plain = ".".join(Path(name.removesuffix(".py")).parts)
        raise ValueError(
            f"{where}: {name!r} is no module; write what Python imports, such as {plain!r}"
        )
    if (
        (here := str(Path.cwd())) not in sys.path
        and parts[0] not in sys.modules
        and find_spec(parts[0]) is None
    ):
        sys.path.append(here)  # at the end: a file there takes the place of no other module
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"{where}: importing {name} raises {raised(error)}") from error
        hint = did_you_mean(name, (path.stem for path in Path(here).glob("*.py")))
        missing = f"{where}: there is no module {error.name}, nor a file of it in {here}; {hint}"
        raise ValueError(missing.rstrip("; ")) from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{where}: importing {name} raises {raised(error)}") from error


def raised(error: BaseException) -> str:
    """Return what was raised, in one line with its place in the user's code, if it came from there."""
    return " ".join(f"{type(error).__name__}: {error}".split()) + place(error)


def place(error: BaseException) -> str:
    """Return ` (FILE, line N)`, the last in a traceback of neither turngym, Python nor an installed package, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if not frame.filename.startswith(_NOT_OWN) and "-packages" not in frame.filename
    ]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


AnyTool = Tool | Toolset | Callable[..., Any]
"""What is taken for tools: tools, typed functions, classes with typed methods."""


def as_tools(tools: Any) -> list[Tool]:
    """Return the tools that the members of a list of `AnyTool` give. Raises TypeError that says what one lacks."""
    return [tool for one in _listed(tools) for tool in _as_tools(one)]


def tool_names(tools: Any) -> list[str]:
    """Return the names among tools: those in a list, or in a text with commas between them."""
    return [one.strip() for one in _listed(tools) if isinstance(one, str)]


def load_tools(tools: str | Iterable[str | AnyTool]) -> list[Tool]:
    """Return tools as `as_tools` does, also by name: `module:name`, or what a package declares in the group `GROUP`.

    Raises TypeError where one is no tool, ValueError where a name cannot be imported, or what it stands for is none.
    """
    listed = _listed(tools)
    return [
        tool
        for one in listed
        for tool in (_load(one.strip()) if isinstance(one, str) else as_tools([one]))
    ]


def _listed(tools: Any) -> list[Any]:
    if tools is None:
        raise TypeError("tools is None; leave it out, or write an empty list: tools=[]")
    if isinstance(tools, Mapping):
        raise TypeError(f"tools is {tools!r:.60}; write a list of its values, without names")
    if not isinstance(tools, Iterable):
        raise TypeError(
            f"tools is {tools!r}; write a list, such as tools=[{getattr(tools, '__name__', tools)}]"
        )
    return tools.split(",") if isinstance(tools, str) else list(tools)


def _load(name: str) -> list[Tool]:
    spec, what = name, "tool"
    if ":" not in name:
        if (plugin := find(name, GROUP)) is None:
            names = list(dict.fromkeys(one.name for one in declared(GROUP)))
            known = f"{did_you_mean(name, names)}installed packages declare {', '.join(names) or 'none'}"
            raise ValueError(f"no tool is called {name!r}; {known}; or write module:name")
        spec, what = plugin.spec, f"tool {name} of the package {plugin.package}"
    loaded = load(spec, what)
    try:
        return forked(as_tools([loaded]))  # what is loaded is one for all environments
    except TypeError as error:
        raise ValueError(f"the {what} {spec!r}: {error}") from error


def forked(tools: Iterable[Tool]) -> list[Tool]:
    """Return forks of tools; methods of one set are methods of one copy."""
    copy = cache(Toolset.fork)  # once for each set
    return [
        copy(one.owner).tools[one.name] if isinstance(one, MethodTool) else one.fork()
        for one in tools
    ]


def _as_tools(one: Any) -> list[Tool]:
    if isinstance(one, type) and all(hasattr(one, name) for name in MEMBERS[2:]):
        raise TypeError(
            f"{one.__name__} is the class of a tool; make one, as in tools=[{one.__name__}()]"
        )
    if isinstance(one, type | Toolset):
        return list((Toolset(one) if isinstance(one, type) else one).tools.values())
    if inspect.isroutine(one):
        return [FunctionTool(one)]
    if missing := [name for name in MEMBERS if not hasattr(one, name)]:
        form = "a tool has these, is a typed function with a docstring, or a class whose public methods are"
        raise TypeError(f"{one!r:.80} is no tool: it has no {', '.join(missing)}; {form}")
    try:
        named = one.schema["function"]["name"]
        one.schema["function"]["parameters"]["properties"].keys()
    except (LookupError, TypeError, AttributeError) as error:
        form = "{'type': 'function', 'function': {'name', 'description', 'parameters': {'properties'}}}"
        what = f"the schema of the tool {one.name} is {one.schema!r:.80}"
        raise TypeError(f"{what}; it needs the form {form}") from error
    if named != one.name:
        raise TypeError(
            f"the tool {one.name} is called {named!r} in its schema; give both one name"
        )
    return [one]
