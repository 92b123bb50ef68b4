"""What is taken for tools: tools, typed functions, classes whose public methods are typed, and the names of these.

`as_tools` is called wherever tools are taken, and says there what is missing.
"""

import copy
import inspect
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any, Self

from .core import Tool, ToolFailure
from .functions import FunctionTool
from .plugins import declared, find, load

GROUP = "turngym.tools"  # of entry points
MEMBERS = ("name", "schema", "call", "reset", "fork", "close")
LIFE = ("fork", "close")  # methods of a class that are no tools


class Toolset:
    """The public methods of a class as tools that share one instance of it.

    Every episode has an instance of its own, made at its first call. A fork has a copy of it: what its method `fork`
    returns, else a deep copy. Its method `close`, if there is one, is called when the episode is over. Neither of the
    two is a tool.

    Args:
        kind: The class. Each public method needs types and a docstring, as a function does.
        args, kwargs: What the class is called with; each instance gets copies.

    Raises:
        TypeError: the class cannot be called so, or a method cannot be a tool; the message names it.
    """

    def __init__(self, kind: type, *args: Any, **kwargs: Any) -> None:
        name = kind.__name__
        try:
            inspect.signature(kind).bind(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} cannot be made: {error}; write Toolset({name}, …) with its arguments") from None
        self.kind, self._arguments = kind, (args, kwargs)
        self._instance: Any = None
        self.tools = {method.__name__: _Method(method, self) for method in _public_methods(kind)}
        if not self.tools:
            raise TypeError(f"{name} has no public method, so it gives no tool; write one with types and a docstring")

    @property
    def instance(self) -> Any:
        """The instance of this episode. Raises ToolFailure where it cannot be made."""
        if self._instance is None:
            try:
                args, kwargs = copy.deepcopy(self._arguments)
                self._instance = self.kind(*args, **kwargs)
            except Exception as error:
                raise ToolFailure(f"{self.kind.__name__} cannot be made: {type(error).__name__}: {error}") from error
        return self._instance

    def reset(self) -> None:
        """End the instance; the next call makes another one."""
        instance, self._instance = self._instance, None
        if hasattr(instance, "close"):
            instance.close()

    def fork(self) -> Self:
        """Return a set whose instance is an independent copy. Raises ToolFailure where it cannot be copied."""
        twin = copy.copy(self)
        twin.tools = {name: method.of(twin) for name, method in self.tools.items()}
        if self._instance is not None:
            try:
                twin._instance = (getattr(self._instance, "fork", None) or (lambda: copy.deepcopy(self._instance)))()
            except Exception as error:
                raise ToolFailure(
                    f"{self.kind.__name__} cannot be copied ({error}); give it a method fork() that returns a copy"
                ) from error
        return twin


class _Method(FunctionTool[..., Any]):
    """A method of the instance of a `Toolset`, whose life cycle it shares."""

    def __init__(self, method: Callable[..., Any], owner: Toolset) -> None:
        super().__init__(method)
        self.owner = owner

    def of(self, owner: Toolset) -> Self:
        """Return the same method of another set."""
        twin = copy.copy(self)
        twin.owner = owner
        return twin

    def reset(self) -> None:
        """Reset the set."""
        self.owner.reset()

    def fork(self) -> Any:
        """Return the same method of a copy of the set."""
        return self.owner.fork().tools[self.name]

    def close(self) -> None:
        """End the set's instance."""
        self.owner.reset()

    def _target(self) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self.owner.instance, self.name)
        return method


AnyTool = Tool | Toolset | Callable[..., Any]
"""What is taken for tools: tools, typed functions, classes with typed methods."""


def as_tools(tools: Any) -> list[Tool]:
    """Return tools: those in a list of `AnyTool`, and those that the functions, classes and sets in it give.

    Raises:
        TypeError: it is no list, or one is nothing of these; the message says what it lacks.
    """
    return [tool for one in _listed(tools) for tool in _as_tools(one)]


def tool_names(tools: Any) -> list[str]:
    """Return the names among tools: those in a list, or in a text with commas between them."""
    return [one.strip() for one in _listed(tools) if isinstance(one, str)]


def load_tools(tools: str | Iterable[str | AnyTool]) -> list[Tool]:
    """Return tools as `as_tools` does, also by name: `module:name`, or what a package declares in the group `GROUP`.

    Raises:
        TypeError: one is no tool.
        ValueError: a name is not there or cannot be imported, or what it stands for is no tool.
    """
    listed = _listed(tools)
    return [tool for one in listed for tool in (_load(one.strip()) if isinstance(one, str) else as_tools([one]))]


def _listed(tools: Any) -> list[Any]:
    if not isinstance(tools, Iterable):
        raise TypeError(f"tools is {tools!r}; write a list, such as tools=[{getattr(tools, '__name__', tools)}]")
    return tools.split(",") if isinstance(tools, str) else list(tools)


def _load(name: str) -> list[Tool]:
    spec, what = name, "tool"
    if ":" not in name:
        if (plugin := find(name, GROUP)) is None:
            known = ", ".join(dict.fromkeys(one.name for one in declared(GROUP))) or "none"
            raise ValueError(f"no tool is called {name!r}; installed packages declare {known}; or write module:name")
        spec, what = plugin.spec, f"tool {name} of the package {plugin.package}"
    loaded = load(spec, what)
    try:
        return forked(as_tools([loaded]))  # what is loaded is one for all environments
    except TypeError as error:
        raise ValueError(f"the {what} {spec!r}: {error}") from error


def forked(tools: Iterable[Tool]) -> list[Tool]:
    """Return forks of tools; methods of one set are methods of one copy."""
    sets: dict[int, Toolset] = {}
    twins: list[Tool] = []
    for tool in tools:
        if isinstance(tool, _Method):
            if (owner := id(tool.owner)) not in sets:
                sets[owner] = tool.owner.fork()
            twins.append(sets[owner].tools[tool.name])
        else:
            twins.append(tool.fork())
    return twins


def _as_tools(one: Any) -> list[Tool]:
    if isinstance(one, type) and all(hasattr(one, name) for name in MEMBERS[2:]):
        raise TypeError(f"{one.__name__} is the class of a tool; make one, as in tools=[{one.__name__}()]")
    if isinstance(one, type):
        one = Toolset(one)
    if isinstance(one, Toolset):
        return list(one.tools.values())
    if inspect.isroutine(one):
        return [FunctionTool(one)]
    if missing := [name for name in MEMBERS if not hasattr(one, name)]:
        raise TypeError(
            f"{one!r:.80} is no tool: it has no {', '.join(missing)}; a tool has these, is a typed function with a "
            "docstring, or a class whose public methods are"
        )
    try:
        named = one.schema["function"]["name"]
        one.schema["function"]["parameters"]["properties"].keys()
    except (LookupError, TypeError, AttributeError) as error:
        raise TypeError(
            f"the schema of the tool {one.name} is {one.schema!r:.80}; it needs the form "
            "{'type': 'function', 'function': {'name', 'description', 'parameters': {'properties'}}}"
        ) from error
    if named != one.name:
        raise TypeError(f"the tool {one.name} is called {named!r} in its schema; give both one name")
    return [one]


def _public_methods(kind: type) -> list[Callable[..., Any]]:
    """Return the public methods of a class as their callers see them, without `self`, in the order of the text."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    found: list[Callable[..., Any]] = []
    for name in names:
        method = inspect.getattr_static(kind, name)
        if name.startswith("_") or name in LIFE:
            continue
        if isinstance(method, FunctionType):
            found.append(MethodType(method, kind))
        elif isinstance(method, staticmethod | classmethod):
            found.append(getattr(kind, name))
    return found
