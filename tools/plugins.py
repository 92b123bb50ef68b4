"""Other people's code: tools as objects, functions, classes or names; entry points of packages.

A name is `module:name`, or what an installed package declares as an entry point. Nothing is
imported before it is asked for, so broken code is an error only where it is used. Data (a journal,
a run folder, a recipe) may not ask for code: the present command has to name whatever `is_foreign`.

`load_tools` and `as_tools` make tools; `declared_plugins`, `find_plugin` and `list_plugins` read
entry points; `import_object` imports.
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

TOOLS_GROUP = "turngym.tools"  # the group of entry points that declare tools
LIFE_CYCLE = ("call", "reset", "fork", "close")
MEMBERS = ("name", "schema", *LIFE_CYCLE)  # what an object needs to be a tool
# How the paths of files begin whose lines are not the user's: turngym, the standard library,
# `<string>`.
_NOT_OWN = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")

AnyTool = Tool | Toolset | Callable[..., Any]
"""What is taken for tools: tools, typed functions, classes with typed methods."""


# --- tools from what a user gives


def load_tools(tools: str | Iterable[str | AnyTool]) -> list[Tool]:
    """Return tools, like `as_tools`, that may also be given by name.

    Args:
        tools: A list of tools and names, or names in one text with commas between them. A name is
            `module:name`, or what an installed package declares in the group `TOOLS_GROUP`.

    Raises:
        TypeError: A member of the list is no tool.
        ValueError: A name cannot be imported, or does not stand for a tool.
    """
    all_tools: list[Tool] = []
    for member in _list_members(tools):
        if isinstance(member, str):
            all_tools += _load_named_tools(member.strip())
        else:
            all_tools += _tools_of(member)
    return all_tools


def as_tools(tools: Any) -> list[Tool]:
    """Return the tools that the members of a list of `AnyTool` give.

    Raises:
        TypeError: A member is no tool; the message says what it lacks.
    """
    all_tools: list[Tool] = []
    for member in _list_members(tools):
        all_tools += _tools_of(member)
    return all_tools


def tool_names(tools: Any) -> list[str]:
    """Return only the names of a list of tools, or of a text with commas between names."""
    return [member.strip() for member in _list_members(tools) if isinstance(member, str)]


def fork_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return forks of tools. Methods of one `Toolset` become methods of one copy of it."""
    fork_toolset = cache(
        Toolset.fork
    )  # a set is copied once, however many of its methods are given
    forks: list[Tool] = []
    for tool in tools:
        if isinstance(tool, MethodTool):
            forks.append(fork_toolset(tool.owner).tools[tool.name])
        else:
            forks.append(tool.fork())
    return forks


def _list_members(tools: Any) -> list[Any]:
    """Return the members of a list, or of a text with commas; raises TypeError for all else."""
    if tools is None:
        raise TypeError("tools is None; leave it out, or write an empty list: tools=[]")
    if isinstance(tools, Mapping):
        raise TypeError(f"tools is {tools!r:.60}; write a list of its values, without names")
    if not isinstance(tools, Iterable):
        raise TypeError(
            f"tools is {tools!r}; write a list, such as tools=[{getattr(tools, '__name__', tools)}]"
        )
    if isinstance(tools, str):
        return tools.split(",")
    return list(tools)


def _load_named_tools(name: str) -> list[Tool]:
    """Import what a name stands for and return its tools, forked for one environment.

    Args:
        name: `module:name`, or the name of an entry point in the group `TOOLS_GROUP`.

    Raises:
        ValueError: Nothing is called so, it cannot be imported, or it is no tool.
    """
    if ":" in name:
        spec = name
        role = "tool"
    else:
        plugin = find_plugin(name, TOOLS_GROUP)
        if plugin is None:
            names = list(
                dict.fromkeys(candidate.name for candidate in declared_plugins(TOOLS_GROUP))
            )
            raise ValueError(
                f"no tool is called {name!r}; {did_you_mean(name, names)}"
                f"installed packages declare {', '.join(names) or 'none'}; or write module:name"
            )
        spec = plugin.spec
        role = f"tool {name} of the package {plugin.package}"
    imported = import_object(spec, role)
    try:
        return fork_tools(_tools_of(imported))
    except TypeError as error:
        raise ValueError(f"the {role} {spec!r}: {error}") from error


def _tools_of(member: Any) -> list[Tool]:
    """Return the tools of one member of a list of tools.

    Args:
        member: A tool, a `Toolset`, a typed function, or a class whose public methods are to be
            tools.

    Raises:
        TypeError: It is none of these; the message says what it lacks.
    """
    if isinstance(member, type):
        if all(hasattr(member, attribute) for attribute in LIFE_CYCLE):
            raise TypeError(
                f"{member.__name__} is the class of a tool; "
                f"make one, as in tools=[{member.__name__}()]"
            )
        return list(Toolset(member).tools.values())
    if isinstance(member, Toolset):
        return list(member.tools.values())
    if inspect.isroutine(member):
        return [FunctionTool(member)]
    missing = [attribute for attribute in MEMBERS if not hasattr(member, attribute)]
    if missing:
        raise TypeError(
            f"{member!r:.80} is no tool: it has no {', '.join(missing)}; a tool has these, "
            "is a typed function with a docstring, or a class whose public methods are"
        )
    _check_schema(member)
    return [member]


def _check_schema(tool: Tool) -> None:
    """Raise TypeError unless a tool's schema has the form of OpenAI and the tool's name."""
    try:
        name_in_schema = tool.schema["function"]["name"]
        tool.schema["function"]["parameters"]["properties"].keys()
    except (LookupError, TypeError, AttributeError) as error:
        raise TypeError(
            f"the schema of the tool {tool.name} is {tool.schema!r:.80}; it needs the form "
            "{'type': 'function', "
            "'function': {'name', 'description', 'parameters': {'properties'}}}"
        ) from error
    if name_in_schema != tool.name:
        raise TypeError(
            f"the tool {tool.name} is called {name_in_schema!r} in its schema; give both one name"
        )


# --- entry points of installed packages


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package.

    Args:
        name: The name that the package gives it.
        spec: The `module:name` that it stands for.
        package: The name of the package.
        summary: The package's one-line description.
    """

    name: str
    spec: str
    package: str
    summary: str = ""


def declared_plugins(group: str) -> tuple[Plugin, ...]:
    """Return what installed packages declare in a group of entry points, by name and package.

    Nothing is imported.
    """
    return _read_entry_points(group, search_path=tuple(sys.path))


@cache
def _read_entry_points(group: str, search_path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Read the entry points of a group; `search_path` is only the key of the cache.

    It is cached because every environment that is made asks, and the reading takes 10 ms.
    """
    plugins = []
    for entry_point in metadata.entry_points(group=group):
        if entry_point.dist is None:
            continue  # it is of no installed package
        package = entry_point.dist
        summary = str(package.metadata.json.get("summary", ""))
        plugins.append(Plugin(entry_point.name, entry_point.value, package.name, summary))
    plugins.sort(key=lambda plugin: (plugin.name, plugin.package))
    return tuple(plugins)


def find_plugin(name: str, group: str) -> Plugin | None:
    """Return the plugin with a name; None if no package declares the name.

    Raises:
        ValueError: Several packages declare it.
    """
    plugins = [plugin for plugin in declared_plugins(group) if plugin.name == name]
    if len(plugins) > 1:
        packages = " and ".join(plugin.package for plugin in plugins)
        raise ValueError(f"{name} is declared by the packages {packages}; uninstall all but one")
    return plugins[0] if plugins else None


@dataclass(frozen=True)
class ListedPlugin:
    """A line of a list of plugins.

    Args:
        name: The plugin's name.
        about: One sentence: what it is, or why it cannot be used.
        package: The package that declares it.
    """

    name: str
    about: str
    package: str


def list_plugins(group: str, taken: Collection[str] = ()) -> list[ListedPlugin]:
    """Return a line for each plugin of a group, by name and package; nothing is imported.

    Args:
        group: The group of entry points.
        taken: Names that turngym has itself; a plugin with such a name is not used.
    """
    return [
        ListedPlugin(plugin.name, _describe(plugin, group, taken), plugin.package)
        for plugin in declared_plugins(group)
    ]


def _describe(plugin: Plugin, group: str, taken: Collection[str]) -> str:
    """Return a sentence about a plugin: its docstring's, its package's, or why it is unusable."""
    if plugin.name in taken:
        return f"not used, as turngym has {plugin.name} itself: rename it"
    try:
        find_plugin(plugin.name, group)  # raises if several packages declare the name
        return first_sentence(read_docstring(plugin.spec)) or plugin.summary
    except ValueError as error:
        return f"broken: {error}"


def is_foreign(name: str, group: str) -> bool:
    """Return whether a name stands for code that no data file may ask for.

    That is `module:name`, by which any function of any module could be written, and whatever a
    package declares in the group as long as its module is not imported.
    """
    if ":" in name:
        return True
    modules = [
        plugin.spec.partition(":")[0] for plugin in declared_plugins(group) if plugin.name == name
    ]
    return any(module not in sys.modules for module in modules)


# --- imports, and their errors in one line


def import_object(spec: str, role: str) -> Any:
    """Import what `module:name` stands for.

    A module that is not on Python's path may be in the current folder.

    Args:
        spec: `module:name`.
        role: What it is used as, for messages: `environment`, `method x of the package y`.

    Raises:
        ValueError: The spec has another form, there is no such module or name, or the import fails.
    """
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name.isidentifier()):
        raise ValueError(f"the {role} is {spec!r}; write module:name")
    module = import_user_module(module_name, f"the {role} {spec!r}")
    try:
        return getattr(module, name)
    except AttributeError:
        module_file = getattr(module, "__file__", None) or "part of Python"
        file_here = Path.cwd() / f"{module_name}.py"
        if file_here.is_file() and str(file_here) != module_file:
            # An installed module of the same name was imported in place of the user's file.
            hint = f"it has the name of your {module_name}.py: rename that"
        else:
            public_names = (key for key in vars(module) if not key.startswith("_"))
            hint = did_you_mean(name, public_names)
        message = (
            f"the {role} {spec!r}: the module {module_name} ({module_file}) has no {name}; {hint}"
        )
        raise ValueError(message.rstrip("; ")) from None


def import_user_module(name: str, subject: str) -> ModuleType:
    """Import a module, from Python's path or else from the current folder.

    Args:
        name: The full name of the module.
        subject: The beginning of messages, such as `the environment 'guess:Guess'`.

    Raises:
        ValueError: The name is not a module's, there is no such module, or the import fails.
    """
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts) or parts[-1] == "py":
        likely_name = ".".join(Path(name.removesuffix(".py")).parts)  # `a/b.py` -> `a.b`
        raise ValueError(
            f"{subject}: {name!r} is no module; write what Python imports, such as {likely_name!r}"
        )
    current_folder = str(Path.cwd())
    top_package = parts[0]
    if (
        current_folder not in sys.path
        and top_package not in sys.modules
        and find_spec(top_package) is None
    ):
        sys.path.append(current_folder)  # at the end, so that its files replace no other module
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # The missing module may be another one, which this one imports.
        is_wanted = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if not is_wanted:
            raise ValueError(
                f"{subject}: importing {name} raises {describe_error(error)}"
            ) from error
        modules_here = (path.stem for path in Path(current_folder).glob("*.py"))
        message = (
            f"{subject}: there is no module {error.name}, nor a file of it in {current_folder}; "
            f"{did_you_mean(name, modules_here)}"
        )
        raise ValueError(message.rstrip("; ")) from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{subject}: importing {name} raises {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """Return an exception's type and message in one line, with its place in the user's code."""
    one_line = " ".join(f"{type(error).__name__}: {error}".split())
    return one_line + user_code_place(error)


def user_code_place(error: BaseException) -> str:
    """Return ` (FILE, line N)`: the innermost line of a traceback that is the user's code.

    That is neither turngym's nor Python's nor an installed package's; "" if there is none.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_installed = "-packages" in frame.filename  # in `site-packages` or `dist-packages`
        if not is_installed and not frame.filename.startswith(_NOT_OWN):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""
