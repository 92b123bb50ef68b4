"""Tools made from functions, and from the methods of a class; their JSON schemas, against which arguments are checked.

A parameter is annotated with str, int, float, bool, None, Any, list, dict with keys that are str, Literal, Enum, a
TypedDict, a dataclass, or a union of these; a text in `Annotated` describes it.
"""

import asyncio
import copy
import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NotRequired,
    ParamSpec,
    Required,
    Self,
    TypeVar,
    Union,
)

from .core import StatelessTool, Status, ToolFailure, ToolResult, brief, start

P = ParamSpec("P")
R = TypeVar("R")
Schema = dict[str, Any]
SCALARS: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
}
WORDS |= {"null": "null", "array": "a list", "object": "an object"}
LIFE = ("fork", "close")  # methods of a class that are no tools
_UNIONS = (Union, types.UnionType)
_MARKS = (Annotated, Required, NotRequired)  # what stands around an annotation


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


def function_schema(function: Callable[..., Any]) -> Schema:
    """Return the JSON schema of a typed function; raises TypeError where the function cannot be a tool."""
    name = getattr(function, "__name__", repr(function))
    description, notes = _read_docstring(inspect.getdoc(function) or "")
    if not description:
        raise TypeError(
            f"tool {name} has no docstring; its first paragraph is what the agent reads"
        )
    hints, properties, required = hints_of(function, f"tool {name}"), dict[str, Any](), list[str]()
    for parameter in inspect.signature(function).parameters.values():
        where = f"parameter {parameter.name!r} of tool {name}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"{where} is {parameter.kind.description}; arguments of a tool are given by name"
            )
        if parameter.name not in hints:
            raise TypeError(f"{where} has no annotation; annotate it, e.g. `{parameter.name}: str`")
        properties[parameter.name] = annotation_schema(hints[parameter.name], where)
        if parameter.name in notes:
            properties[parameter.name]["description"] = notes[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return make_schema(name, description, properties, required)


def make_schema(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> Schema:
    """Return the schema of a tool in the OpenAI form."""
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def check_arguments(schema: Schema, arguments: Mapping[str, Any]) -> str | None:
    """Return a sentence for the agent on the first thing wrong with the arguments, or None when they fit the schema."""
    name, parameters = schema["function"]["name"], schema["function"]["parameters"]
    properties = parameters["properties"]
    takes = ", ".join(properties) or "no arguments"
    for key in arguments:
        if key not in properties:
            return f"{name} has no argument {brief(repr(key), 80)}; it takes {takes}"
    for key in parameters["required"]:
        if key not in arguments:
            return f"{name} needs the argument {key!r} ({_expected(properties[key])})"
    for key, value in arguments.items():
        if not _fits(value, properties[key]):
            return f"argument {key!r} of {name} is {brief(repr(value), 80)}; expected {_expected(properties[key])}"
    return None


def hints_of(annotated: Any, what: str) -> dict[str, Any]:
    """Return the annotations of a function or a class; raises TypeError naming `what` where they cannot be read."""
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the annotations of {what} cannot be read: {error}; import it where {what} is"
        ) from error


def annotation_schema(annotation: Any, where: str, inside: tuple[Any, ...] = ()) -> Schema:
    """Return the schema of an annotation; raises TypeError that names `where`. `inside` are the classes around it."""
    if annotation in SCALARS:
        return {"type": SCALARS[annotation]}
    origin, args = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin is Any:
        return {}
    if origin in _MARKS:
        notes = [note for note in args[1:] if isinstance(note, str)]
        return annotation_schema(args[0], where, inside) | (
            {"description": notes[0]} if notes else {}
        )
    if origin in (list, Sequence):
        return {"type": "array"} | (
            {"items": annotation_schema(args[0], where, inside)} if args else {}
        )
    if origin in (dict, Mapping) and (not args or args[0] is str):
        values = {"additionalProperties": annotation_schema(args[1], where, inside)} if args else {}
        return {"type": "object"} | values
    if origin in _UNIONS:
        return {"anyOf": [annotation_schema(arg, where, inside) for arg in args]}
    is_enum = isinstance(origin, type) and issubclass(origin, Enum)
    choices = (
        [member.value for member in origin] if is_enum else list(args) if origin is Literal else []
    )
    if len(kinds := {SCALARS.get(type(value)) for value in choices}) == 1 and None not in kinds:
        return {"type": kinds.pop(), "enum": choices}
    if _is_record(origin) and origin not in inside:
        return _record_schema(origin, where, (*inside, origin))
    raise TypeError(
        f"{where} is annotated {annotation}; use str, int, float, bool, list, dict with keys that are str, Literal, "
        "Enum, a TypedDict, a dataclass, or a union of these (no class may hold itself)"
    )


def converted(value: Any, annotation: Any) -> Any:
    """Return what fits an annotation's schema as the annotation says: members of an Enum, instances of a dataclass."""
    origin, args = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in _MARKS:
        return converted(value, args[0])
    if origin in _UNIONS:
        return converted(
            value, next(arg for arg in args if _fits(value, annotation_schema(arg, "")))
        )
    if origin in (list, Sequence) and args:
        return [converted(item, args[0]) for item in value]
    if origin in (dict, Mapping) and args:
        return {key: converted(item, args[1]) for key, item in value.items()}
    if isinstance(origin, type) and issubclass(origin, Enum):
        return origin(value)
    if _is_record(origin):
        hints = hints_of(origin, origin.__name__)
        return origin(**{name: converted(item, hints[name]) for name, item in value.items()})
    return value


def _is_record(origin: Any) -> bool:
    return typing.is_typeddict(origin) or (isinstance(origin, type) and is_dataclass(origin))


def _record_schema(record: Any, where: str, inside: tuple[Any, ...]) -> Schema:
    hints = hints_of(record, record.__name__)
    if typing.is_typeddict(record):
        # Where annotations are texts, `__required_keys__` does not know what is marked.
        marks = {name: typing.get_origin(hint) for name, hint in hints.items()}
        needed = record.__required_keys__ | {
            name for name, mark in marks.items() if mark is Required
        }
        needed -= {name for name, mark in marks.items() if mark is NotRequired}
    else:
        known = [field for field in fields(record) if field.init]
        needed = {
            field.name for field in known if field.default is field.default_factory is MISSING
        }
        hints = {field.name: hints[field.name] for field in known}
    of = f"of {record.__name__}, of {where},"
    properties = {
        name: annotation_schema(hint, f"field {name!r} {of}", inside)
        for name, hint in hints.items()
    }
    required = [name for name in hints if name in needed]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and the `name: text` entries of the `Args:` section, continuation lines joined."""
    description, notes, latest = " ".join(doc.split("\n\n", 1)[0].split()), dict[str, str](), ""
    section = re.search(r"^Args:[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)*)", doc, re.MULTILINE)
    for line in inspect.cleandoc(section[1]).splitlines() if section else ():
        if entry := re.match(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line):
            latest, notes[entry[1]] = entry[1], entry[2].strip()
        elif latest and line.strip():
            notes[latest] = f"{notes[latest]} {line.strip()}".strip()
    return description, notes


def _fits(value: Any, schema: Schema) -> bool:
    if "anyOf" in schema:
        return any(_fits(value, option) for option in schema["anyOf"])
    if (kind := schema.get("type")) is None:
        return True
    if kind == "array":
        return isinstance(value, list) and all(
            _fits(item, schema.get("items", {})) for item in value
        )
    if kind == "object":
        known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
        return (
            isinstance(value, dict)
            and all(name in value for name in schema.get("required", ()))
            and all(more is not False or name in known for name in value)
            and all(_fits(item, known.get(name, more)) for name, item in value.items())
        )
    # bool is an int in Python but not in JSON; an integer is a fine number.
    natural = SCALARS.get(type(value))
    return (natural == kind or (natural, kind) == ("integer", "number")) and value in schema.get(
        "enum", [value]
    )


def _expected(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_expected(option) for option in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(repr(value) for value in schema["enum"])
    kind, items, values = (
        schema.get("type"),
        schema.get("items"),
        schema.get("additionalProperties"),
    )
    if kind == "array" and items:
        return f"a list in which each item is {_expected(items)}"
    if kind == "object" and values:
        return f"an object in which each value is {_expected(values)}"
    if known := schema.get("properties"):
        left = {name: "" if name in schema["required"] else ", may be left out" for name in known}
        return f"an object with {', '.join(f'{name!r} ({_expected(known[name])}{left[name]})' for name in known)}"
    return WORDS[kind] if kind else "any value"
