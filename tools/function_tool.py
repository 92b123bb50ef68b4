"""Tools made from functions, and from the methods of a class."""

import asyncio
import copy
import inspect
import types
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, Self, TypeVar

from .base import StatelessTool, Status, ToolFailure, ToolResult
from .json_schema import check_arguments, converted, function_schema, hints_of
from .subprocesses.deadlines import start

P = ParamSpec("P")
R = TypeVar("R")
LIFE = ("fork", "close")  # methods of a class that are no tools


class FunctionTool(StatelessTool, Generic[P, R]):
    """A stateless tool made from a typed function, which calling the object calls; an async one has its own loop."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.schema = function_schema(function)
        self.name: str = self.schema["function"]["name"]
        self.asynchronous = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._target()(*args, **kwargs)

    def call(self, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        """Return the function's result, or its exception as an `error`. Raises ToolFailure if it does, or is late."""
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        hints = hints_of(self.function, f"tool {self.name}")
        target: Callable[..., Any] = self._target()
        try:
            made = target(
                **{name: converted(value, hints[name]) for name, value in arguments.items()}
            )
            if not self.asynchronous:
                return ToolResult(Status.OK, str(made))
            # On another thread, as a loop may run on this one.
            running = start(
                lambda: asyncio.run(_in_time(made, timeout, self.name)), f"turngym-{self.name}"
            )
            return ToolResult(Status.OK, str(running.result()))
        except ToolFailure:
            raise
        except Exception as error:
            return ToolResult(Status.ERROR, f"{type(error).__name__}: {error}")

    def _target(self) -> Callable[P, R]:
        return self.function


async def _in_time(made: Awaitable[R], timeout: float | None, name: str) -> R:
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await made
    except TimeoutError:
        if not limit.expired():  # its own
            raise
        raise ToolFailure(f"the tool {name} did not answer within {timeout:g} s") from None


def tool(function: Callable[P, R]) -> FunctionTool[P, R]:
    """Turn a typed function with a docstring into a tool.

    The first paragraph of the docstring is the description; lines `name: text` of an `Args:` section describe the
    parameters. Raises TypeError naming the parameter whose annotation has no JSON form.
    """
    return FunctionTool(function)


class Toolset:
    """The public methods of a class as tools that share one instance of it.

    Every episode has an instance of its own, made at its first call. A fork has a copy of it: what its method `fork`
    returns, else a deep copy. Its method `close`, if there is one, is called when the episode is over. Neither of the
    two is a tool. Each public method of `kind` needs types and a docstring, as a function does; each instance gets
    copies of `args` and `kwargs`. Raises TypeError, naming it, where the class or a method cannot be used so.
    """

    def __init__(self, kind: type, *args: Any, **kwargs: Any) -> None:
        name = kind.__name__
        try:
            inspect.signature(kind).bind(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} cannot be made: {error}; write Toolset({name}, …) with its arguments"
            ) from None
        self.kind, self._arguments = kind, (args, kwargs)
        self._instance: Any = None
        self.tools = {method.__name__: MethodTool(method, self) for method in _public_methods(kind)}
        if not self.tools:
            raise TypeError(
                f"{name} has no public method, so it gives no tool; write one with types and a docstring"
            )

    @property
    def instance(self) -> Any:
        """The instance of this episode. Raises ToolFailure where it cannot be made."""
        if self._instance is None:
            try:
                args, kwargs = copy.deepcopy(self._arguments)
                self._instance = self.kind(*args, **kwargs)
            except Exception as error:
                raise ToolFailure(
                    f"{self.kind.__name__} cannot be made: {type(error).__name__}: {error}"
                ) from error
        return self._instance

    def reset(self) -> None:
        """End the instance; the next call makes another one."""
        instance, self._instance = self._instance, None
        if hasattr(instance, "close"):
            instance.close()

    def fork(self) -> Self:
        """Return a set whose instance is an independent copy. Raises ToolFailure where it cannot be copied."""
        twin = copy.copy(self)
        twin.tools = {name: copy.copy(method) for name, method in self.tools.items()}
        for method in twin.tools.values():
            method.owner = twin
        if (instance := self._instance) is not None:
            try:
                twin._instance = (
                    instance.fork() if hasattr(instance, "fork") else copy.deepcopy(instance)
                )
            except Exception as error:
                fix = "give it a method fork() that returns a copy"
                raise ToolFailure(
                    f"{self.kind.__name__} cannot be copied ({error}); {fix}"
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

    def _target(self) -> Any:
        return getattr(self.owner.instance, self.name)


def _public_methods(kind: type) -> list[Callable[..., Any]]:
    """Return the public methods of a class as their callers see them, without `self`, in the order of the text."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    found = {
        name: inspect.getattr_static(kind, name)
        for name in names
        if name[:1] != "_" and name not in LIFE
    }
    return [
        types.MethodType(method, kind)
        if isinstance(method, types.FunctionType)
        else getattr(kind, name)
        for name, method in found.items()
        if isinstance(method, types.FunctionType | staticmethod | classmethod)
    ]
