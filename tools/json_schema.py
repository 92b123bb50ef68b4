"""JSON schemas of functions, from annotations and docstrings; arguments checked against them.

A parameter is annotated with str, int, float, bool, None, Any, list, dict with keys that are str,
Literal, Enum, a TypedDict, a dataclass, or a union of these; a text in `Annotated` describes it.

`function_schema` makes a schema, `check_arguments` compares the arguments of a call with it, and
`convert_value` turns an argument into what the annotation says.
"""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, Union

from .checks import shorten

Schema = dict[str, Any]

# The JSON type of each Python type. A value's exact type is looked up, since True is an int in
# Python but not in JSON.
JSON_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
# How messages to an agent call the JSON types.
TYPE_DESCRIPTIONS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_UNIONS = (Union, types.UnionType)  # `Union[a, b]` and `a | b`
# Their first argument is the type itself: `Annotated[int, "metres"]`.
_ANNOTATION_WRAPPERS = (Annotated, Required, NotRequired)

# The indented lines after `Args:`.
_ARGS_SECTION = re.compile(r"^Args:[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)*)", re.MULTILINE)
# `query: the words`, `query (str): the words`
_ARGS_ENTRY = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


# --- from a function to a schema


def function_schema(function: Callable[..., Any]) -> Schema:
    """Make the schema of a tool from a function's name, annotations and docstring.

    The first paragraph of the docstring describes the tool, its `Args:` section the parameters.

    Returns:
        The schema in the format of OpenAI's function calling.

    Raises:
        TypeError: The function cannot be a tool; the message names the parameter and the reason.
    """
    name = getattr(function, "__name__", repr(function))
    docstring = _parse_docstring(inspect.getdoc(function) or "")
    if not docstring.first_paragraph:
        raise TypeError(
            f"tool {name} has no docstring; its first paragraph is what the agent reads"
        )
    annotations = read_annotations(function, f"tool {name}")
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        place = f"parameter {parameter.name!r} of tool {name}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"{place} is {parameter.kind.description}; arguments of a tool are given by name"
            )
        if parameter.name not in annotations:
            raise TypeError(f"{place} has no annotation; annotate it, e.g. `{parameter.name}: str`")
        schema = annotation_schema(annotations[parameter.name], place)
        if parameter.name in docstring.parameters:
            schema["description"] = docstring.parameters[parameter.name]
        properties[parameter.name] = schema
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return make_schema(name, docstring.first_paragraph, properties, required)


def make_schema(
    name: str, description: str, properties: dict[str, Any], required: list[str]
) -> Schema:
    """Return the schema of a tool in the format of OpenAI's function calling.

    Args:
        name: The tool's name.
        description: What the agent reads about it.
        properties: The schema of each argument, by name.
        required: The names of the arguments that must be given.
    """
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def read_annotations(annotated: Any, label: str) -> dict[str, Any]:
    """Return the annotations of a function or class by name; strings among them are evaluated.

    Args:
        annotated: The function or class.
        label: Its name for the message, such as `tool search`.

    Raises:
        TypeError: An annotation uses a name that the module of the function or class does not
            define.
    """
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the annotations of {label} cannot be read: {error}; import it where {label} is"
        ) from error


def annotation_schema(annotation: Any, place: str, enclosing: tuple[Any, ...] = ()) -> Schema:
    """Return the JSON schema of an annotation, such as `{"type": "integer"}` for `int`.

    Args:
        annotation: The annotation.
        place: Where it stands, for the message, such as `parameter 'query' of tool search`.
        enclosing: The TypedDicts and dataclasses of which it annotates a field, the outermost
            first. A class that contains itself has no schema.

    Raises:
        TypeError: The annotation has no JSON form.
    """
    if annotation in JSON_TYPES:
        return {"type": JSON_TYPES[annotation]}
    # `list[int]` has the origin `list` and the arguments `(int,)`; a plain `list` has no arguments.
    origin = typing.get_origin(annotation) or annotation
    arguments = typing.get_args(annotation)
    schema: Schema
    if origin is Any:
        return {}
    if origin in _ANNOTATION_WRAPPERS:
        # `Annotated[int, "metres"]`: the first string describes the value.
        schema = annotation_schema(arguments[0], place, enclosing)
        descriptions = [metadata for metadata in arguments[1:] if isinstance(metadata, str)]
        if descriptions:
            schema["description"] = descriptions[0]
        return schema
    if origin in (list, Sequence):
        schema = {"type": "array"}
        if arguments:
            schema["items"] = annotation_schema(arguments[0], place, enclosing)
        return schema
    has_string_keys = not arguments or arguments[0] is str
    if origin in (dict, Mapping) and has_string_keys:
        schema = {"type": "object"}
        if arguments:
            schema["additionalProperties"] = annotation_schema(arguments[1], place, enclosing)
        return schema
    if origin in _UNIONS:
        return {"anyOf": [annotation_schema(option, place, enclosing) for option in arguments]}
    choices_schema = _make_choices_schema(origin, arguments)
    if choices_schema is not None:
        return choices_schema
    if _is_typed_dict_or_dataclass(origin) and origin not in enclosing:
        return _make_record_schema(origin, place, (*enclosing, origin))
    raise TypeError(
        f"{place} is annotated {annotation}; use str, int, float, bool, list, dict with keys that "
        "are str, Literal, Enum, a TypedDict, a dataclass, or a union of these (no class may hold "
        "itself)"
    )


def _make_choices_schema(origin: Any, arguments: tuple[Any, ...]) -> Schema | None:
    """Return the schema of an Enum or a Literal, such as `{"type": "string", "enum": ["m", "ft"]}`.

    Args:
        origin: The annotation without its arguments: `Literal`, an Enum, or any other type.
        arguments: The arguments of the annotation: the values of a Literal.

    Returns:
        The schema. It is None if the annotation is neither an Enum nor a Literal, or if its values
        have different types or one that is not in `JSON_TYPES`.
    """
    choices: list[Any] = []
    if _is_enum(origin):
        choices = [member.value for member in origin]
    elif origin is Literal:
        choices = list(arguments)
    json_types = {JSON_TYPES.get(type(choice)) for choice in choices}
    if len(json_types) != 1 or None in json_types:
        return None
    return {"type": json_types.pop(), "enum": choices}


class RecordFields(NamedTuple):
    """The fields of a TypedDict or dataclass.

    Args:
        annotations: The annotation of each field by its name, in order.
        required: The names of the fields that must be given.
    """

    annotations: dict[str, Any]
    required: set[str]


def _make_record_schema(record: Any, place: str, enclosing: tuple[Any, ...]) -> Schema:
    """Return the schema of an object with the fields of a TypedDict or dataclass, and no others.

    Args:
        record: The TypedDict or dataclass.
        place: Where it stands, for messages, such as `parameter 'query' of tool search`.
        enclosing: The TypedDicts and dataclasses around its fields, `record` included.
    """
    if typing.is_typeddict(record):
        record_fields = _read_typed_dict_fields(record)
    else:
        record_fields = _read_dataclass_fields(record)
    properties = {}
    for name, annotation in record_fields.annotations.items():
        field_place = f"field {name!r} of {record.__name__}, of {place},"
        properties[name] = annotation_schema(annotation, field_place, enclosing)
    required = [name for name in properties if name in record_fields.required]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _read_typed_dict_fields(record: Any) -> RecordFields:
    """Return the annotations of a TypedDict's keys, and which of the keys are required."""
    annotations = read_annotations(record, record.__name__)
    required = set(record.__required_keys__)
    # `__required_keys__` ignores `Required[…]` and `NotRequired[…]` in annotations that are
    # strings, as all are after `from __future__ import annotations`.
    for name, annotation in annotations.items():
        if typing.get_origin(annotation) is Required:
            required.add(name)
        elif typing.get_origin(annotation) is NotRequired:
            required.discard(name)
    return RecordFields(annotations, required)


def _read_dataclass_fields(record: Any) -> RecordFields:
    """Return the fields of a dataclass that its constructor takes, and which have no default."""
    all_annotations = read_annotations(record, record.__name__)
    annotations: dict[str, Any] = {}
    required: set[str] = set()
    for field in fields(record):
        if not field.init:
            continue
        annotations[field.name] = all_annotations[field.name]
        if field.default is MISSING and field.default_factory is MISSING:
            required.add(field.name)
    return RecordFields(annotations, required)


class ParsedDocstring(NamedTuple):
    """The description of a tool in a docstring, and those of its parameters by name."""

    first_paragraph: str
    parameters: dict[str, str]


def _parse_docstring(docstring: str) -> ParsedDocstring:
    """Read the first paragraph and the `Args:` section of a docstring; each text becomes one line.

    An entry of the section begins with `name:` or `name (type):`. Lines that are indented further,
    or that do not begin an entry, continue the one before them.
    """
    first_paragraph = docstring.split("\n\n", 1)[0]
    section = _ARGS_SECTION.search(docstring)
    section_lines = inspect.cleandoc(section[1]).splitlines() if section else []
    descriptions: dict[str, str] = {}
    current_name = ""  # of the parameter whose description the line continues
    for line in section_lines:
        entry = _ARGS_ENTRY.match(line)
        if entry:
            current_name = entry[1]
            descriptions[current_name] = entry[2].strip()
        elif current_name and line.strip():
            longer_description = f"{descriptions[current_name]} {line.strip()}"
            descriptions[current_name] = longer_description.strip()
    return ParsedDocstring(
        first_paragraph=" ".join(first_paragraph.split()), parameters=descriptions
    )


# --- the arguments of a call


def check_arguments(schema: Schema, arguments: Mapping[str, Any]) -> str | None:
    """Compare the arguments of a call with the schema of its tool.

    Args:
        schema: The schema, as `make_schema` returns it.
        arguments: The JSON values by the names that the agent gave.

    Returns:
        A sentence for the agent about the first mistake, or None if the arguments fit.
    """
    name = schema["function"]["name"]
    properties = schema["function"]["parameters"]["properties"]
    required = schema["function"]["parameters"]["required"]
    for key in arguments:
        if key not in properties:
            argument_names = ", ".join(properties) or "no arguments"
            return f"{name} has no argument {shorten(repr(key), 80)}; it takes {argument_names}"
    for key in required:
        if key not in arguments:
            return f"{name} needs the argument {key!r} ({_describe_schema(properties[key])})"
    for key, value in arguments.items():
        if not _fits(value, properties[key]):
            return (
                f"argument {key!r} of {name} is {shorten(repr(value), 80)}; "
                f"expected {_describe_schema(properties[key])}"
            )
    return None


def convert_value(value: Any, annotation: Any) -> Any:
    """Convert a JSON value that fits the schema of an annotation to the annotated type.

    A value of an Enum becomes the member, and an object that describes a dataclass an instance of
    it, also within lists and objects. Other values stay as they are.
    """
    # `list[Unit]` has the origin `list` and the arguments `(Unit,)`.
    origin = typing.get_origin(annotation) or annotation
    arguments = typing.get_args(annotation)
    if origin in _ANNOTATION_WRAPPERS:
        return convert_value(value, arguments[0])
    if origin in _UNIONS:
        fitting_options = (
            option for option in arguments if _fits(value, annotation_schema(option, place=""))
        )
        return convert_value(value, next(fitting_options))
    if origin in (list, Sequence) and arguments:
        return [convert_value(item, arguments[0]) for item in value]
    if origin in (dict, Mapping) and arguments:
        return {key: convert_value(item, arguments[1]) for key, item in value.items()}
    if _is_enum(origin):
        return origin(value)
    if _is_typed_dict_or_dataclass(origin):
        annotations = read_annotations(origin, origin.__name__)
        field_values = {
            name: convert_value(item, annotations[name]) for name, item in value.items()
        }
        return origin(**field_values)
    return value


def _is_enum(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Enum)


def _is_typed_dict_or_dataclass(origin: Any) -> bool:
    return typing.is_typeddict(origin) or (isinstance(origin, type) and is_dataclass(origin))


def _fits(value: Any, schema: Schema) -> bool:
    """Return whether a JSON value fits a schema that `annotation_schema` made."""
    if "anyOf" in schema:
        return any(_fits(value, option) for option in schema["anyOf"])
    json_type = schema.get("type")
    if json_type is None:
        return True
    if json_type == "array":
        item_schema = schema.get("items", {})
        return isinstance(value, list) and all(_fits(item, item_schema) for item in value)
    if json_type == "object":
        return isinstance(value, dict) and _object_fits(value, schema)
    value_type = JSON_TYPES.get(type(value))
    is_integer_for_number = value_type == "integer" and json_type == "number"
    if value_type != json_type and not is_integer_for_number:
        return False
    return "enum" not in schema or value in schema["enum"]


def _object_fits(value: dict[str, Any], schema: Schema) -> bool:
    """Return whether the keys and values of an object fit the schema of an object."""
    properties = schema.get("properties", {})
    # The schema of the values of all other keys; False if there may be no other keys.
    additional_schema = schema.get("additionalProperties", {})
    if any(name not in value for name in schema.get("required", ())):
        return False
    for name, item in value.items():
        if name not in properties and additional_schema is False:
            return False
        if not _fits(item, properties.get(name, additional_schema)):
            return False
    return True


def _describe_schema(schema: Schema) -> str:
    """Describe the values of a schema in a message: `a list in which each item is a string`."""
    if "anyOf" in schema:
        return " or ".join(_describe_schema(option) for option in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(repr(choice) for choice in schema["enum"])
    json_type = schema.get("type")
    if json_type == "array" and schema.get("items"):
        return f"a list in which each item is {_describe_schema(schema['items'])}"
    if json_type == "object" and schema.get("additionalProperties"):
        value_description = _describe_schema(schema["additionalProperties"])
        return f"an object in which each value is {value_description}"
    if schema.get("properties"):
        key_descriptions = []
        for name, property_schema in schema["properties"].items():
            if_optional = "" if name in schema["required"] else ", may be left out"
            key_descriptions.append(f"{name!r} ({_describe_schema(property_schema)}{if_optional})")
        return f"an object with {', '.join(key_descriptions)}"
    if json_type is None:
        return "any value"
    return TYPE_DESCRIPTIONS[json_type]
