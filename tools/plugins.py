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
TOOL_METHODS = ("call", "reset", "fork", "close")
TOOL_ATTRIBUTES = ("name", "schema", *TOOL_METHODS)  # what an object needs to be a tool
# How the paths of files begin whose lines are not the user's: turngym, the standard library,
# `<string>`.
_PATHS_OF_OTHER_CODE = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")

AnyTool = Tool | Toolset | Callable[..., Any]
"""What is taken for tools: tools, typed functions, classes with typed methods."""


# --- tools from what a user gives


def load_tools(tools: str | Iterable[str | AnyTool]) -> list[Tool]:
    """Make tools from objects and names; `as_tools` does it for objects only.

    Args:
        tools: A list of objects and names, or a text of names with commas between them. An object
            is a tool, a `Toolset`, a typed function, or a class whose public methods are tools. A
            name is `module:name`, or that of an entry point in the group `turngym.tools`.

    Raises:
        TypeError: An object is no tool.
        ValueError: A name cannot be imported, or does not stand for a tool.
    """
    all_tools: list[Tool] = []
    for member in _list_members(tools):
        if isinstance(member, str):
            all_tools += _load_named_tools(member.strip())
        else:
            all_tools += _make_tools(member)
    return all_tools


def as_tools(tools: Any) -> list[Tool]:
    """Make tools from a list of objects.

    Args:
        tools: Tools, `Toolset`s, typed functions, and classes whose public methods are tools.

    Raises:
        TypeError: A member is no tool; the message says what it lacks.
    """
    all_tools: list[Tool] = []
    for member in _list_members(tools):
        all_tools += _make_tools(member)
    return all_tools


def tool_names(tools: Any) -> list[str]:
    """Return only the names of a list of tools, or of a text with commas between names."""
    return [member.strip() for member in _list_members(tools) if isinstance(member, str)]


def fork_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return forks of tools. Methods of one `Toolset` become methods of one copy of it."""
    fork_toolset_once = cache(Toolset.fork)  # one copy, however many of its methods are given
    forks: list[Tool] = []
    for tool in tools:
        if isinstance(tool, MethodTool):
            forks.append(fork_toolset_once(tool.owner).tools[tool.name])
        else:
            forks.append(tool.fork())
    return forks


def _list_members(tools: Any) -> list[Any]:
    """Return the members of an iterable, or the names in a text that commas separate.

    Raises:
        TypeError: It is neither, or is a mapping.
    """
    if tools is None:
        raise TypeError("tools is None; leave it out, or write an empty list: tools=[]")
    if isinstance(tools, Mapping):
        raise TypeError(f"tools is {tools!r:.60}; write a list of its values, without names")
    if not isinstance(tools, Iterable):
        expression = getattr(tools, "__name__", tools)
        raise TypeError(f"tools is {tools!r}; write a list, such as tools=[{expression}]")
    if isinstance(tools, str):
        return tools.split(",")
    return list(tools)


def _load_named_tools(name: str) -> list[Tool]:
    """Import what a name stands for and make tools of it, for the use of one environment.

    Args:
        name: `module:name`, or the name of an entry point in the group `turngym.tools`.

    Raises:
        ValueError: Nothing has the name, it cannot be imported, or it is no tool.
    """
    if ":" in name:
        spec = name
        role = "tool"
    else:
        plugin = find_plugin(name, TOOLS_GROUP)
        if plugin is None:
            all_names = [declared.name for declared in declared_plugins(TOOLS_GROUP)]
            names = list(dict.fromkeys(all_names))  # several packages may declare one name
            raise ValueError(
                f"no tool is called {name!r}; {did_you_mean(name, names)}"
                f"installed packages declare {', '.join(names) or 'none'}; or write module:name"
            )
        spec = plugin.spec
        role = f"tool {name} of the package {plugin.package}"
    imported = import_object(spec, role)
    try:
        # Forks, since other environments in this process may import the same object.
        return fork_tools(_make_tools(imported))
    except TypeError as error:
        raise ValueError(f"the {role} {spec!r}: {error}") from error


def _make_tools(member: Any) -> list[Tool]:
    """Make the tools that one object stands for.

    Args:
        member: A tool, a `Toolset`, a typed function, or a class whose public methods are to be
            tools.

    Raises:
        TypeError: It is none of these; the message says what it lacks.
    """
    if isinstance(member, type):
        # A class with these methods is meant to be instantiated by the user.
        if all(hasattr(member, attribute) for attribute in TOOL_METHODS):
            raise TypeError(
                f"{member.__name__} is the class of a tool; "
                f"make one, as in tools=[{member.__name__}()]"
            )
        return list(Toolset(member).tools.values())
    if isinstance(member, Toolset):
        return list(member.tools.values())
    if inspect.isroutine(member):
        return [FunctionTool(member)]
    missing = [attribute for attribute in TOOL_ATTRIBUTES if not hasattr(member, attribute)]
    if missing:
        raise TypeError(
            f"{member!r:.80} is no tool: it has no {', '.join(missing)}; a tool has these, "
            "is a typed function with a docstring, or a class whose public methods are"
        )
    _check_schema(member)
    return [member]


def _check_schema(tool: Tool) -> None:
    """Raise TypeError unless a tool's schema has OpenAI's format and contains the tool's name."""
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
        name: Its name.
        spec: The object that it stands for, as `module:name`.
        package: The name of the package.
        summary: The package's one-line description.
    """

    name: str
    spec: str
    package: str
    summary: str = ""


def declared_plugins(group: str) -> tuple[Plugin, ...]:
    """Return the entry points of a group in all installed packages, sorted by name and package.

    Nothing is imported.
    """
    return _read_entry_points(group, search_path=tuple(sys.path))


@cache
def _read_entry_points(group: str, search_path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Read the entry points of a group from the metadata of installed packages.

    The result is cached because reading takes 10 ms and is repeated for every new environment.

    Args:
        group: The group of entry points.
        search_path: Only a key of the cache: `sys.path`, on which the packages are found.
    """
    plugins = []
    for entry_point in metadata.entry_points(group=group):
        package = entry_point.dist
        if package is None:  # no installed package declares it
            continue
        summary = str(package.metadata.json.get("summary", ""))
        plugins.append(
            Plugin(
                name=entry_point.name,
                spec=entry_point.value,
                package=package.name,
                summary=summary,
            )
        )
    plugins.sort(key=lambda plugin: (plugin.name, plugin.package))
    return tuple(plugins)


def find_plugin(name: str, group: str) -> Plugin | None:
    """Return the plugin with a name in a group of entry points; None if no package declares it.

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
        about: A sentence that describes it or says why it cannot be used.
        package: The package that declares it.
    """

    name: str
    about: str
    package: str


def list_plugins(group: str, taken: Collection[str] = ()) -> list[ListedPlugin]:
    """Return a line for each plugin of a group, sorted by name and package; nothing is imported.

    Args:
        group: The group of entry points.
        taken: Names that turngym itself uses; a plugin with such a name is not used.
    """
    return [
        ListedPlugin(plugin.name, _describe_plugin(plugin, group, taken), plugin.package)
        for plugin in declared_plugins(group)
    ]


def _describe_plugin(plugin: Plugin, group: str, taken: Collection[str]) -> str:
    """Return a sentence that describes a plugin or says why it cannot be used.

    It is the first sentence of its docstring, or else its package's one-line description.
    """
    if plugin.name in taken:
        return f"not used, as turngym has {plugin.name} itself: rename it"
    try:
        find_plugin(plugin.name, group)  # raises if several packages declare the name
        return first_sentence(read_docstring(plugin.spec)) or plugin.summary
    except ValueError as error:
        return f"broken: {error}"


def is_foreign(name: str, group: str) -> bool:
    """Return whether a name stands for code that a data file may not cause to be imported.

    Every `module:name` does, as it could name any function of any module, and so does the name of a
    plugin whose module is not imported yet.

    Args:
        name: A name in a journal, a run folder or a recipe.
        group: The group of entry points to which the plugin belongs.
    """
    if ":" in name:
        return True
    for plugin in declared_plugins(group):
        module_name = plugin.spec.partition(":")[0]
        if plugin.name == name and module_name not in sys.modules:
            return True
    return False


# --- imports, and their errors in one line


def import_object(spec: str, role: str) -> Any:
    """Import the object that `module:name` stands for.

    A module that is not on Python's path may be in the current folder.

    Args:
        spec: `module:name`.
        role: Its use, for messages: `environment`, `method x of the package y`.

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
        users_file = Path.cwd() / f"{module_name}.py"
        if users_file.is_file() and str(users_file) != module_file:
            # An installed module of the same name was imported in place of the user's file.
            hint = f"it has the name of your {module_name}.py: rename that"
        else:
            public_names = [key for key in vars(module) if not key.startswith("_")]
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
        ValueError: The name is not that of a module, there is no such module, or the import fails.
    """
    name_parts = name.split(".")
    if not all(part.isidentifier() for part in name_parts) or name_parts[-1] == "py":
        likely_name = ".".join(Path(name.removesuffix(".py")).parts)  # `a/b.py` -> `a.b`
        raise ValueError(
            f"{subject}: {name!r} is no module; write what Python imports, such as {likely_name!r}"
        )
    current_folder = str(Path.cwd())
    _add_to_path_if_needed(current_folder, top_package=name_parts[0])
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # The missing module is this one or a package around it, or else a module that it imports.
        is_this_module = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if not is_this_module:
            raise ValueError(
                f"{subject}: importing {name} raises {describe_error(error)}"
            ) from error
        modules_here = [path.stem for path in Path(current_folder).glob("*.py")]
        message = (
            f"{subject}: there is no module {error.name}, nor a file of it in {current_folder}; "
            f"{did_you_mean(name, modules_here)}"
        )
        raise ValueError(message.rstrip("; ")) from None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{subject}: importing {name} raises {describe_error(error)}") from error


def _add_to_path_if_needed(folder: str, top_package: str) -> None:
    """Append a folder to `sys.path` unless it is there or the package is found without it.

    At the end of the path its files hide no other module.
    """
    if folder in sys.path or top_package in sys.modules:
        return
    if find_spec(top_package) is None:
        sys.path.append(folder)


def describe_error(error: BaseException) -> str:
    """Return an exception's type and message in one line, with the line of the user's code."""
    one_line = " ".join(f"{type(error).__name__}: {error}".split())
    return one_line + user_code_place(error)


def user_code_place(error: BaseException) -> str:
    """Return where in the user's code an exception was raised, as ` (FILE, line N)`.

    It is the innermost line of the traceback that is not in turngym, Python or an installed
    package; "" if there is none.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_installed = "-packages" in frame.filename  # in `site-packages` or `dist-packages`
        if not is_installed and not frame.filename.startswith(_PATHS_OF_OTHER_CODE):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""
