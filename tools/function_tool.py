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

    An async function runs in its own event loop, on another thread.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.schema = function_schema(function)
        self.name: str = self.schema["function"]["name"]
        self.asynchronous = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function_to_call()(*args, **kwargs)

    def call(self, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        """Call the function with an agent's arguments.

        Args:
            arguments: The JSON values that the agent wrote, by name.
            timeout: Seconds after which an async function is cancelled; None for no limit.

        Returns:
            The function's result as text. If the arguments do not fit the schema, or the function
            raises, the status is `error` and the text says why.

        Raises:
            ToolFailure: The function raises it, or an async function exceeds the timeout.
        """
        mistake = check_arguments(self.schema, arguments)
        if mistake:
            return ToolResult(Status.ERROR, mistake)
        annotations = read_annotations(self.function, f"tool {self.name}")
        function: Callable[..., Any] = self._function_to_call()
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

        def run_event_loop() -> Any:
            return asyncio.run(_await_with_timeout(coroutine, timeout, self.name))

        # On another thread, because an event loop may already run on this one.
        future = start_thread(run_event_loop, f"turngym-{self.name}")
        return future.result()

    def _function_to_call(self) -> Callable[P, R]:
        return self.function


async def _await_with_timeout(awaitable: Awaitable[R], timeout: float | None, tool_name: str) -> R:
    """Await a result; raises ToolFailure if that takes longer than `timeout` seconds."""
    time_limit = asyncio.timeout(timeout)
    try:
        async with time_limit:
            return await awaitable
    except TimeoutError:
        if not time_limit.expired():  # the tool's function itself raised it
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
    copy of the instance: the class may define a method `fork` that returns one, otherwise it is a
    deep copy. A method `close`, if the class has one, is called when the episode is over. These two
    methods are not offered as tools.

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
        methods = _find_public_methods(kind)
        self.tools = {method.__name__: MethodTool(method, self) for method in methods}
        if not self.tools:
            raise TypeError(
                f"{name} has no public method, so it gives no tool; "
                "write one with types and a docstring"
            )

    @property
    def instance(self) -> Any:
        """The instance of this episode, which is made when it is first used.

        Raises:
            ToolFailure: The constructor raised an exception.
        """
        if self._instance is None:
            try:
                # Copies, so that an episode cannot change the arguments of the next one.
                args, kwargs = copy.deepcopy((self._args, self._kwargs))
                self._instance = self.kind(*args, **kwargs)
            except Exception as error:
                raise ToolFailure(
                    f"{self.kind.__name__} cannot be made: {type(error).__name__}: {error}"
                ) from error
        return self._instance

    def reset(self) -> None:
        """Close the instance, if there is one; the next call makes another."""
        instance = self._instance
        self._instance = None
        if hasattr(instance, "close"):
            instance.close()

    def fork(self) -> Self:
        """Return a set of the same tools with an independent copy of the instance.

        Raises:
            ToolFailure: The instance cannot be copied.
        """
        forked_set = copy.copy(self)
        forked_set.tools = {}
        for name, method_tool in self.tools.items():
            forked_tool = copy.copy(method_tool)
            forked_tool.owner = forked_set
            forked_set.tools[name] = forked_tool
        if self._instance is None:  # no call was made yet, so there is no state to copy
            return forked_set
        try:
            if hasattr(self._instance, "fork"):
                forked_set._instance = self._instance.fork()
            else:
                forked_set._instance = copy.deepcopy(self._instance)
        except Exception as error:
            raise ToolFailure(
                f"{self.kind.__name__} cannot be copied ({error}); "
                "give it a method fork() that returns a copy"
            ) from error
        return forked_set


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

    def _function_to_call(self) -> Any:
        return getattr(self.owner.instance, self.name)


def _find_public_methods(kind: type) -> list[Callable[..., Any]]:
    """Return the public methods of a class except `fork` and `close`.

    They come in the order in which the class defines them, inherited ones first. No method has
    `self` in its signature.
    """
    attribute_names: dict[str, None] = {}  # used as an ordered set
    for base in reversed(kind.__mro__):
        attribute_names.update(dict.fromkeys(vars(base)))
    methods: list[Callable[..., Any]] = []
    for name in attribute_names:
        if name.startswith("_") or name in LIFE_CYCLE_METHODS:
            continue
        # Without the descriptor protocol, so that no property is evaluated.
        attribute = inspect.getattr_static(kind, name)
        if isinstance(attribute, types.FunctionType):
            # Binding it to the class in place of an instance hides `self`.
            methods.append(types.MethodType(attribute, kind))
        elif isinstance(attribute, staticmethod | classmethod):
            methods.append(getattr(kind, name))
    return methods
