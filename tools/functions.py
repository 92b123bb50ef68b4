"""Tools made from functions with types and a docstring."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

from .core import StatelessTool, Status, ToolFailure, ToolResult
from .schema import check_arguments, converted, function_schema, hints_of
from .threads import start

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(StatelessTool, Generic[P, R]):
    """A stateless tool made from a typed function; calling the object calls the function itself.

    A function that is `async` runs in an event loop of its own, which ends with the call.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.schema = function_schema(function)
        self.name: str = self.schema["function"]["name"]
        self.asynchronous = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._target()(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def call(self, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        """Run the function on checked arguments; its exceptions become an `error` result.

        Raises:
            ToolFailure: the function raises it, or is `async` and takes longer than `timeout` seconds: it is cancelled.
        """
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        hints = hints_of(self.function, f"tool {self.name}")
        target: Callable[..., Any] = self._target()
        try:
            made = target(**{name: converted(value, hints[name]) for name, value in arguments.items()})
            if not self.asynchronous:
                return ToolResult(Status.OK, str(made))
            # On another thread, as a loop may run on this one.
            running = start(lambda: asyncio.run(_in_time(made, timeout, self.name)), f"turngym-{self.name}")
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
