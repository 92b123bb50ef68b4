"""JSON schemas of functions, made from their annotations and docstrings, and arguments checked against them.

A parameter is annotated with str, int, float, bool, None, Any, list, dict with keys that are str, Literal, Enum, a
TypedDict, a dataclass, or a union of these; a text in `Annotated` describes it.
"""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Required, Union

from .checks import brief

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


_UNIONS = (Union, types.UnionType)
_MARKS = (Annotated, Required, NotRequired)  # what stands around an annotation


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
