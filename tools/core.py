"""What an agent can hold: a tool has a name, a JSON schema, `call`, and a life cycle of `reset`, `fork`, `close`.

A call never raises because of what the agent wrote: that is a `ToolResult` the agent can read. Only `ToolFailure`, the
tool itself being unable to run, leaves a call as an exception, so an infrastructure fault is never scored as play.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import (
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

P = ParamSpec("P")
R = TypeVar("R")

SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


class Status(StrEnum):
    """How a call ended, seen from the tool."""

    OK = "ok"  # it ran to its end
    ERROR = "error"  # the agent's mistake: bad arguments, or its code raised
    TIMEOUT = "timeout"  # it used up its wall-clock time
    MEMORY = "memory"  # it asked for more memory than allowed
    OUTPUT = "output"  # it wrote more than the hard cap and was stopped
    KILLED = "killed"  # its process died: a signal, `os._exit`, a crash in native code
    REJECTED = "rejected"  # it was not run at all


@dataclass(frozen=True)
class ToolResult:
    """What a call gives back; `text` is for the agent."""

    status: Status
    text: str


class ToolFailure(RuntimeError):
    """The tool itself could not run, through no fault of the agent."""


@runtime_checkable
class Tool(Protocol):
    """Anything an agent can call. Methods may be called from any thread, one at a time per tool."""

    @property
    def name(self) -> str:
        """The name by which the agent calls it."""

    @property
    def schema(self) -> dict[str, Any]:
        """The OpenAI form: `{"type": "function", "function": {"name", "description", "parameters"}}`."""

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one call; raises `ToolFailure` when the tool itself cannot run."""

    def reset(self) -> None:
        """Start a new episode with fresh state."""

    def fork(self) -> "Tool":
        """Return an independent live copy with the same state: later calls to one never affect the other."""

    def close(self) -> None:
        """Release what the tool holds; it may be called twice."""


class StatelessTool:
    """The life cycle of a tool that keeps no state."""

    def reset(self) -> None:
        """Nothing to reset."""

    def fork(self) -> Self:
        """Return the tool itself."""
        return self

    def close(self) -> None:
        """Nothing to release."""


class FunctionTool(StatelessTool, Generic[P, R]):
    """A stateless tool made from a typed function; calling the object calls the function itself."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.schema = function_schema(function)
        self.name: str = self.schema["function"]["name"]
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run the function on checked arguments; its exceptions become an `error` result."""
        if problem := check_arguments(self.schema, arguments):
            return ToolResult(Status.ERROR, problem)
        call: Callable[..., R] = self.function
        try:
            return ToolResult(Status.OK, str(call(**arguments)))
        except ToolFailure:
            raise
        except Exception as error:
            return ToolResult(Status.ERROR, f"{type(error).__name__}: {error}")


def tool(function: Callable[P, R]) -> FunctionTool[P, R]:
    """Turn a typed function with a docstring into a tool.

    The first paragraph of the docstring is the description; lines `name: text` of an `Args:` section describe the
    parameters. Raises TypeError naming the parameter whose annotation has no JSON form.
    """
    return FunctionTool(function)


def function_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON schema of a typed function; raises TypeError where the function cannot be a tool."""
    name = getattr(function, "__name__", repr(function))
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"tool {name} is a coroutine function; a tool is called from a worker thread and must be plain")
    description, notes = _read_docstring(inspect.getdoc(function) or "")
    if not description:
        raise TypeError(f"tool {name} has no docstring; its first paragraph is what the agent reads")
    hints = get_type_hints(function)
    properties: dict[str, Any] = {}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        where = f"parameter {parameter.name!r} of tool {name}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{where} is {parameter.kind.description}; arguments of a tool are given by name")
        if parameter.name not in hints:
            raise TypeError(f"{where} has no annotation; annotate it, e.g. `{parameter.name}: str`")
        properties[parameter.name] = _annotation_schema(hints[parameter.name], where)
        if parameter.name in notes:
            properties[parameter.name]["description"] = notes[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return make_schema(name, description, properties, required)


def make_schema(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the OpenAI form of a tool's schema."""
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def check_arguments(schema: dict[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return a sentence for the agent on the first thing wrong with the arguments, or None when they fit the schema."""
    name, parameters = schema["function"]["name"], schema["function"]["parameters"]
    properties = parameters["properties"]
    takes = ", ".join(properties) or "no arguments"
    for key in arguments:
        if key not in properties:
            return f"{name} has no argument {_show(key)}; it takes {takes}"
    for key in parameters["required"]:
        if key not in arguments:
            return f"{name} needs the argument {key!r} ({_expected(properties[key])})"
    for key, value in arguments.items():
        if not _fits(value, properties[key]):
            return f"argument {key!r} of {name} is {_show(value)}; expected {_expected(properties[key])}"
    return None


def check_range(name: str, value: float, low: float, high: float, unit: str) -> None:
    """Raise ValueError unless `value` lies between two bounds, both included; `unit` is for the message."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low:g} to {high:g} {unit}")


def _annotation_schema(annotation: Any, where: str) -> dict[str, Any]:
    if annotation in SCALARS:
        return {"type": SCALARS[annotation]}
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list:
        return {"type": "array", "items": _annotation_schema(args[0], where)}
    if origin is Literal:
        kinds = {SCALARS.get(type(value)) for value in args}
        if len(kinds) == 1 and None not in kinds:
            return {"type": kinds.pop(), "enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_annotation_schema(arg, where) for arg in args]}
    raise TypeError(
        f"{where} is annotated {annotation}; use str, int, float, bool, list[...], Literal[...] or a union of these"
    )


def _read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and the `name: text` entries of the `Args:` section, continuation lines joined."""
    description = " ".join(doc.split("\n\n", 1)[0].split())
    notes: dict[str, str] = {}
    section = re.search(r"^Args:[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)*)", doc, re.MULTILINE)
    body = inspect.cleandoc(section[1]) if section else ""
    latest = None
    for line in body.splitlines():
        entry = re.match(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line)
        if entry:
            latest = entry[1]
            notes[latest] = entry[2].strip()
        elif latest and line.strip():
            notes[latest] = f"{notes[latest]} {line.strip()}".strip()
    return description, notes


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_fits(value, option) for option in schema["anyOf"])
    kind = schema["type"]
    if kind == "array":
        return isinstance(value, list) and all(_fits(item, schema["items"]) for item in value)
    # bool is an int in Python but not in JSON; an integer is a fine number.
    natural = SCALARS.get(type(value))
    return (natural == kind or (natural, kind) == ("integer", "number")) and value in schema.get("enum", [value])


def _expected(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_expected(option) for option in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(repr(value) for value in schema["enum"])
    if schema["type"] == "array":
        return f"a list in which each item is {_expected(schema['items'])}"
    return WORDS[schema["type"]]


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
