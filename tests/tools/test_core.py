from typing import Any, Literal, Optional

import pytest

from turngym.tools import FunctionTool, Status, Tool, ToolFailure, ToolResult, tool


@tool
def convert(
    degrees: float, unit: Literal["C", "F"], digits: int = 1, tags: list[str] | None = None, loud: bool = False
) -> str:
    """Convert a temperature
    to the other scale.

    This paragraph is for readers of the code.

    Args:
        degrees: the temperature,
            in degrees of `unit`
        unit (str): the scale it is in

        digits: decimals to keep
    Returns:
        text: not an argument
    """
    value = degrees * 9 / 5 + 32 if unit == "C" else (degrees - 32) * 5 / 9
    return f"{value:.{digits}f}" + "!" * loud + "".join(tags or [])


def test_schema_comes_from_types_and_docstring():
    assert convert.schema == {
        "type": "function",
        "function": {
            "name": "convert",
            "description": "Convert a temperature to the other scale.",
            "parameters": {
                "type": "object",
                "properties": {
                    "degrees": {"type": "number", "description": "the temperature, in degrees of `unit`"},
                    "unit": {"type": "string", "enum": ["C", "F"], "description": "the scale it is in"},
                    "digits": {"type": "integer", "description": "decimals to keep"},
                    "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
                    "loud": {"type": "boolean"},
                },
                "required": ["degrees", "unit"],
            },
        },
    }


def test_a_function_tool_is_a_tool_and_still_the_function():
    assert isinstance(convert, Tool)
    assert convert.name == "convert"
    assert convert(100.0, "C") == "212.0"
    assert convert.fork() is convert
    convert.reset()
    convert.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"degrees": 100, "unit": "C"}, "212.0"),  # an integer is a number
        ({"degrees": 212.0, "unit": "F", "digits": 0, "loud": True}, "100!"),
        ({"degrees": 0.0, "unit": "C", "tags": ["a", "b"]}, "32.0ab"),
        ({"degrees": 0.0, "unit": "C", "tags": None}, "32.0"),
    ],
)
def test_arguments_that_fit_reach_the_function(arguments: dict[str, Any], text: str):
    assert convert.call(arguments) == ToolResult(Status.OK, text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"unit": "C"}, "convert needs the argument 'degrees' (a number)"),
        (
            {"degrees": 1.0, "unit": "C", "to": "K"},
            "convert has no argument 'to'; it takes degrees, unit, digits, tags, loud",
        ),
        ({"degrees": "1", "unit": "C"}, "argument 'degrees' of convert is '1'; expected a number"),
        ({"degrees": True, "unit": "C"}, "argument 'degrees' of convert is True; expected a number"),
        ({"degrees": 1.0, "unit": "K"}, "argument 'unit' of convert is 'K'; expected one of 'C', 'F'"),
        ({"degrees": 1.0, "unit": "C", "digits": 1.5}, "argument 'digits' of convert is 1.5; expected an integer"),
        ({"degrees": 1.0, "unit": "C", "loud": 1}, "argument 'loud' of convert is 1; expected true or false"),
        (
            {"degrees": 1.0, "unit": "C", "tags": ["a", 2]},
            "argument 'tags' of convert is ['a', 2]; expected a list in which each item is a string or null",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_explained_to_the_agent(arguments: dict[str, Any], text: str):
    assert convert.call(arguments) == ToolResult(Status.ERROR, text)


def test_long_values_are_shortened_in_the_explanation():
    text = convert.call({"degrees": "9" * 10_000, "unit": "C"}).text
    assert "'999" in text
    assert len(text) < 200


def test_what_the_function_raises_is_an_error_result_except_a_tool_failure():
    @tool
    def divide(a: int, b: int) -> float:
        """Divide."""
        if b < 0:
            raise ToolFailure("the divider is broken")
        return a / b

    assert divide.call({"a": 1, "b": 2}) == ToolResult(Status.OK, "0.5")
    assert divide.call({"a": 1, "b": 0}) == ToolResult(Status.ERROR, "ZeroDivisionError: division by zero")
    with pytest.raises(ToolFailure, match="broken"):
        divide.call({"a": 1, "b": -1})


def test_annotations_without_a_json_form_are_refused_by_name():
    def bad_dict(options: dict[str, int]) -> str:
        """Do."""
        return ""

    def bad_literal(mode: Literal["a", 1]) -> str:
        """Do."""
        return ""

    def bare(query) -> str:  # type: ignore[no-untyped-def]
        """Do."""
        return ""

    def variadic(*queries: str) -> str:
        """Do."""
        return ""

    for function, parameter in ((bad_dict, "options"), (bad_literal, "mode"), (bare, "query"), (variadic, "queries")):
        with pytest.raises(TypeError, match=f"parameter '{parameter}' of tool {function.__name__}"):
            tool(function)


def test_functions_that_cannot_be_tools_are_refused():
    def silent(x: int) -> str:
        return ""

    async def later(x: int) -> str:
        """Do."""
        return ""

    with pytest.raises(TypeError, match="silent has no docstring"):
        tool(silent)
    with pytest.raises(TypeError, match="later is a coroutine function"):
        tool(later)


def test_nested_lists_and_optional_scalars_have_schemas():
    def nested(rows: list[list[int]], name: Optional[str] = None) -> str:  # noqa: UP045 - the old spelling counts too
        """Do."""
        return f"{rows}{name}"

    made: FunctionTool[Any, str] = tool(nested)
    properties = made.schema["function"]["parameters"]["properties"]
    assert properties["rows"] == {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    assert properties["name"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert made.call({"rows": [[1], []]}).text == "[[1], []]None"
    assert made.call({"rows": [1]}).status is Status.ERROR
