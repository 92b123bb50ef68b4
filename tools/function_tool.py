"""Tools made from functions, and from the methods of a class."""

import asyncio
import copy
import inspect
import types
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, Self, TypeVar

from .base import StatelessTool, Status, ToolFailure, ToolResult
from .json_schema import check_arguments, convert_value, function_schema, read_annotations
from .subprocesses.deadlines import start_thread

P = ParamSpec("P")
R = TypeVar("R")
LIFE_CYCLE_METHODS = ("fork", "close")  # public methods of a class that are no tools


class FunctionTool(StatelessTool, Generic[P, R]):
    """A stateless tool made from a typed function; the tool can be called like the function.

    An async function runs in an event loop of its own.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.schema = function_schema(function)
        self.name: str = self.schema["function"]["name"]
        self.asynchronous = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._callable()(*args, **kwargs)

    def call(self, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        """Call the function with an agent's arguments.

        Args:
            arguments: The JSON values that the agent wrote, by name.
            timeout: Seconds after which an async function is cancelled; None for no limit.

        Returns:
            The function's result as text. If the arguments do not fit, or the function raises, the
            status is `error` and the text says why.

        Raises:
            ToolFailure: The function raises it, or an async function is late.
        """
        problem = check_arguments(self.schema, arguments)
        if problem:
            return ToolResult(Status.ERROR, problem)
        annotations = read_annotations(self.function, f"tool {self.name}")
        function: Callable[..., Any] = self._callable()
        try:
            converted_arguments = {
                name: convert_value(value, annotations[name]) for name, value in arguments.items()
            }
            result = function(**converted_arguments)
            if self.asynchronous:
                result = self._wait_for(result, timeout)
            return ToolResult(Status.OK, str(result))
        except ToolFailure:
            raise
        except Exception as error:
            return ToolResult(Status.ERROR, f"{type(error).__name__}: {error}")

    def _wait_for(self, coroutine: Awaitable[Any], timeout: float | None) -> Any:
        """Run a coroutine and return its result; raises ToolFailure after `timeout` seconds."""
        # On another thread, because an event loop may already run on this one.
        future = start_thread(
            lambda: asyncio.run(_await_with_timeout(coroutine, timeout, self.name)),
            f"turngym-{self.name}",
        )
        return future.result()

    def _callable(self) -> Callable[P, R]:
        return self.function


async def _await_with_timeout(awaitable: Awaitable[R], timeout: float | None, tool_name: str) -> R:
    """Await a result; raises ToolFailure if that takes longer than `timeout` seconds."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await awaitable
    except TimeoutError:
        if not limit.expired():  # the function itself raised it
            raise
        raise ToolFailure(f"the tool {tool_name} did not answer within {timeout:g} s") from None


def tool(function: Callable[P, R]) -> FunctionTool[P, R]:
    """Turn a typed function with a docstring into a tool.

    The first paragraph of the docstring is the description; lines `name: text` of an `Args:`
    section describe the parameters.

    Raises:
        TypeError: The annotation of a parameter has no JSON form; the message names the parameter.
    """
    return FunctionTool(function)


class Toolset:
    """The public methods of a class as tools that share one instance of it.

    Every episode has its own instance, which is made at the first call. A fork of the set has a
    copy of the instance: what the instance's method `fork` returns, or else a deep copy. The
    instance's method `close`, if there is one, is called when the episode is over. Neither of the
    two is a tool.

    Args:
        kind: The class. Each of its public methods needs types and a docstring, as a function does.
        args: Arguments of the class; each instance gets copies of them.
        kwargs: Further arguments of the class, by name.

    Raises:
        TypeError: The class does not take these arguments, has no public method, or a method cannot
            be a tool; the message names it.
    """

    def __init__(self, kind: type, *args: Any, **kwargs: Any) -> None:
        name = kind.__name__
        try:
            inspect.signature(kind).bind(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} cannot be made: {error}; write Toolset({name}, …) with its arguments"
            ) from None
        self.kind = kind
        self._args = args
        self._kwargs = kwargs
        self._instance: Any = None
        self.tools = {method.__name__: MethodTool(method, self) for method in _public_methods(kind)}
        if not self.tools:
            raise TypeError(
                f"{name} has no public method, so it gives no tool; "
                "write one with types and a docstring"
            )

    @property
    def instance(self) -> Any:
        """The instance of this episode, made at first use; ToolFailure if it cannot be made."""
        if self._instance is None:
            try:
                args, kwargs = copy.deepcopy((self._args, self._kwargs))
                self._instance = self.kind(*args, **kwargs)
            except Exception as error:
                raise ToolFailure(
                    f"{self.kind.__name__} cannot be made: {type(error).__name__}: {error}"
                ) from error
        return self._instance

    def reset(self) -> None:
        """Close the instance; the next call makes another one."""
        instance = self._instance
        self._instance = None
        if hasattr(instance, "close"):
            instance.close()

    def fork(self) -> Self:
        """Return a set with an independent copy of the instance.

        Raises:
            ToolFailure: The instance cannot be copied.
        """
        twin = copy.copy(self)
        twin.tools = {name: copy.copy(method_tool) for name, method_tool in self.tools.items()}
        for method_tool in twin.tools.values():
            method_tool.owner = twin
        if self._instance is None:
            return twin
        try:
            if hasattr(self._instance, "fork"):
                twin._instance = self._instance.fork()
            else:
                twin._instance = copy.deepcopy(self._instance)
        except Exception as error:
            raise ToolFailure(
                f"{self.kind.__name__} cannot be copied ({error}); "
                "give it a method fork() that returns a copy"
            ) from error
        return twin


class MethodTool(FunctionTool[..., Any]):
    """A method of the instance of a `Toolset`, whose life cycle it shares."""

    def __init__(self, method: Callable[..., Any], owner: Toolset) -> None:
        super().__init__(method)
        self.owner = owner

    def reset(self) -> None:
        self.owner.reset()

    close = reset

    def fork(self) -> Any:
        return self.owner.fork().tools[self.name]

    def _callable(self) -> Any:
        return getattr(self.owner.instance, self.name)


def _public_methods(kind: type) -> list[Callable[..., Any]]:
    """Return the public methods of a class in the order of its text, inherited ones first.

    Each is bound to the class, so that its signature has no `self`, as its callers see it.
    """
    names: dict[str, None] = {}  # a dict, as it keeps the order
    for base in reversed(kind.__mro__):
        names.update(dict.fromkeys(vars(base)))
    methods: list[Callable[..., Any]] = []
    for name in names:
        if name.startswith("_") or name in LIFE_CYCLE_METHODS:
            continue
        attribute = inspect.getattr_static(kind, name)
        if isinstance(attribute, types.FunctionType):
            methods.append(types.MethodType(attribute, kind))
        elif isinstance(attribute, staticmethod | classmethod):
            methods.append(getattr(kind, name))
    return methods
