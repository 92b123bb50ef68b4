import asyncio
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest

from turngym.tools import (
    FunctionTool,
    PythonTool,
    Status,
    Tool,
    ToolFailure,
    ToolResult,
    Toolset,
    tool,
)
from turngym.tools.plugins import as_tools, fork_tools


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


@dataclass
class Point:
    x: float
    unit: Unit = Unit.METRE
    tags: list[str] = field(default_factory=list)


@dataclass
class Node:
    child: "Node | None" = None


class Query(TypedDict):
    text: Annotated[str, "what to look for"]
    most: NotRequired[int]


@tool
def convert(
    degrees: float,
    unit: Literal["C", "F"],
    digits: int = 1,
    tags: list[str] | None = None,
    loud: bool = False,
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
                    "degrees": {
                        "type": "number",
                        "description": "the temperature, in degrees of `unit`",
                    },
                    "unit": {
                        "type": "string",
                        "enum": ["C", "F"],
                        "description": "the scale it is in",
                    },
                    "digits": {"type": "integer", "description": "decimals to keep"},
                    "tags": {
                        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
                    },
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
        (
            {"degrees": True, "unit": "C"},
            "argument 'degrees' of convert is True; expected a number",
        ),
        (
            {"degrees": 1.0, "unit": "K"},
            "argument 'unit' of convert is 'K'; expected one of 'C', 'F'",
        ),
        (
            {"degrees": 1.0, "unit": "C", "digits": 1.5},
            "argument 'digits' of convert is 1.5; expected an integer",
        ),
        (
            {"degrees": 1.0, "unit": "C", "loud": 1},
            "argument 'loud' of convert is 1; expected true or false",
        ),
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
    assert divide.call({"a": 1, "b": 0}) == ToolResult(
        Status.ERROR, "ZeroDivisionError: division by zero"
    )
    with pytest.raises(ToolFailure, match="broken"):
        divide.call({"a": 1, "b": -1})


def test_annotations_without_a_json_form_are_refused_by_name():
    def bad_dict(options: dict[int, str]) -> str:
        """Do."""
        return ""

    def endless(node: Node) -> str:
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

    pairs = [(bad_dict, "options"), (bad_literal, "mode"), (bare, "query"), (variadic, "queries")]
    for function, parameter in [*pairs, (endless, "node")]:
        with pytest.raises(TypeError, match=f"parameter '{parameter}' of tool {function.__name__}"):
            tool(function)


def test_functions_that_cannot_be_tools_are_refused():
    def silent(x: int) -> str:
        return ""

    def strange(x: "Nowhere") -> str:
        """Do."""
        return ""

    with pytest.raises(TypeError, match="silent has no docstring"):
        tool(silent)
    with pytest.raises(
        TypeError, match="annotations of tool strange cannot be read: name 'Nowhere' is not defined"
    ):
        tool(strange)


def test_nested_lists_and_optional_scalars_have_schemas():
    def nested(rows: list[list[int]], name: Optional[str] = None) -> str:  # noqa: UP045 - the old spelling counts too
        """Do."""
        return f"{rows}{name}"

    made: FunctionTool[Any, str] = tool(nested)
    properties = made.schema["function"]["parameters"]["properties"]
    assert properties["rows"] == {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}},
    }
    assert properties["name"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert made.call({"rows": [[1], []]}).text == "[[1], []]None"
    assert made.call({"rows": [1]}).status is Status.ERROR


@tool
def measure(
    point: Point,
    rest: list[Point] | None = None,
    by: dict[str, Unit] = {},  # noqa: B006
    any: Any = None,
    loose: dict = {},  # noqa: B006
) -> str:
    """Measure."""
    return f"{point.x:g} {point.unit.name} {point.tags} {rest} {by} {any} {loose}"


def test_objects_have_schemas_and_reach_the_function_as_they_are_annotated():
    known = measure.schema["function"]["parameters"]["properties"]
    unit = {"type": "string", "enum": ["m", "ft"]}
    point = {
        "type": "object",
        "properties": {
            "x": {"type": "number"},
            "unit": unit,
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert known == {
        "point": point,
        "rest": {"anyOf": [{"type": "array", "items": point}, {"type": "null"}]},
        "by": {"type": "object", "additionalProperties": unit},
        "any": {},
        "loose": {"type": "object"},
    }
    given = {
        "point": {"x": 1, "unit": "ft"},
        "rest": [{"x": 2}],
        "by": {"a": "m"},
        "any": [1],
        "loose": {"b": [{}]},
    }
    result = measure.call(given)
    assert result.status is Status.OK, result.text
    rest = "[Point(x=2, unit=<Unit.METRE: 'm'>, tags=[])]"
    assert result.text == f"1 FOOT [] {rest} {{'a': <Unit.METRE: 'm'>}} [1] {{'b': [{{}}]}}"


def test_a_typed_dict_says_which_of_its_keys_may_be_left_out():
    @tool
    def look(query: Query) -> str:
        """Look."""
        return f"{query}"

    assert look.schema["function"]["parameters"]["properties"]["query"] == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to look for"},
            "most": {"type": "integer"},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    assert look.call({"query": {"text": "a"}}).text == "{'text': 'a'}"
    assert look.call({"query": {"most": 1}}).text == (
        "argument 'query' of look is {'most': 1}; expected an object with 'text' (a string), "
        "'most' (an integer, may be left out)"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"point": 3},
            "argument 'point' of measure is 3; expected an object with 'x' (a number), 'unit' (one of ",
        ),
        ({"point": {"x": 1, "y": 2}}, "argument 'point' of measure is {'x': 1, 'y': 2}; expected"),
        ({"point": {"x": 1, "unit": "mile"}}, "expected an object with"),
        (
            {"point": {"x": 1}, "by": {"a": 1}},
            "expected an object in which each value is one of 'm', 'ft'",
        ),
        ({"point": {"x": 1}, "loose": []}, "argument 'loose' of measure is []; expected an object"),
    ],
)
def test_an_object_that_does_not_fit_is_explained(given: dict[str, Any], text: str):
    result = measure.call(given)
    assert result.status is Status.ERROR and text in result.text


# --- async functions


def test_an_async_function_is_a_tool_also_where_a_loop_runs():
    @tool
    async def wait(text: str) -> str:
        """Wait."""
        await asyncio.sleep(0)
        if text == "bad":
            raise TimeoutError("its own")
        return text.upper()

    async def around() -> ToolResult:
        return wait.call({"text": "b"}, timeout=9)

    assert wait.call({"text": "a"}).text == "A" and asyncio.run(around()).text == "B"
    assert wait.call({"text": "bad"}, timeout=9) == ToolResult(
        Status.ERROR, "TimeoutError: its own"
    )


def test_an_async_function_that_is_late_is_cancelled():
    ended = []

    @tool
    async def sleep() -> str:
        """Sleep."""
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("cancelled")
        return ""

    with pytest.raises(ToolFailure, match=r"the tool sleep did not answer within 0\.01 s"):
        sleep.call({}, timeout=0.01)
    assert ended == ["cancelled"]


# --- classes


class Shop:
    """A shop with a stock."""

    def __init__(self, stock: int = 3) -> None:
        self.stock, self.sold, self.log = stock, 0, []

    def buy(self, count: int) -> str:
        """Buy some.

        Args:
            count: how many
        """
        if count > self.stock:
            raise ValueError(f"only {self.stock} left")
        self.stock, self.sold = self.stock - count, self.sold + count
        return f"{self.stock} left"

    async def ask(self) -> int:
        """Ask how many were sold."""
        return self.sold

    @staticmethod
    def price(kind: Literal["a", "b"]) -> int:
        """Return a price."""
        return 1 if kind == "a" else 2

    def close(self) -> None:
        CLOSED.append(self)

    def _hidden(self, x):
        """Not a tool."""


CLOSED: list[Shop] = []


def said(tools, name: str, **arguments: Any) -> str:
    (found,) = [one for one in tools if one.name == name]
    return found.call(arguments).text


def test_the_public_methods_of_a_class_are_tools_that_share_an_instance():
    tools = as_tools([Shop])
    assert [one.name for one in tools] == ["buy", "ask", "price"]
    assert all(isinstance(one, Tool) for one in tools)
    count = {"type": "integer", "description": "how many"}
    assert tools[0].schema["function"]["parameters"] == {
        "type": "object",
        "properties": {"count": count},
        "required": ["count"],
    }
    assert [said(tools, "buy", count=2), said(tools, "ask"), said(tools, "price", kind="b")] == [
        "1 left",
        "2",
        "2",
    ]
    assert said(tools, "buy", count=2) == "ValueError: only 1 left"
    assert said(tools, "buy", count="x").startswith("argument 'count' of buy is 'x'")


def test_a_reset_begins_with_a_fresh_instance_and_closes_the_last_one():
    CLOSED.clear()
    tools = as_tools([Toolset(Shop, stock=5)])
    assert said(tools, "buy", count=2) == "3 left"
    for one in tools:  # as a toolbox does
        one.reset()
    assert [shop.stock for shop in CLOSED] == [3] and said(tools, "buy", count=2) == "3 left"
    for one in (*tools, *tools):
        one.close()
    assert len(CLOSED) == 2


def test_a_fork_has_a_copy_that_all_methods_share():
    tools = as_tools([Shop])
    said(tools, "buy", count=1)
    twins = fork_tools(tools)
    assert (said(twins, "buy", count=2), said(tools, "buy", count=1)) == ("0 left", "1 left")
    assert (said(twins, "ask"), said(tools, "ask")) == ("3", "2")
    alone = tools[0].fork()
    assert alone.call({"count": 1}).text == "0 left" and said(tools, "buy", count=1) == "0 left"


def test_an_instance_may_copy_itself_and_one_that_cannot_be_copied_is_named():
    class Open:
        def __init__(self, copies: bool = True) -> None:
            self.at, self.lines = 0, (line for line in "abc")
            if copies:
                self.fork = lambda: setattr(twin := Open(), "at", self.at) or twin

        def next(self) -> int:
            """Go on."""
            self.at += 1
            return self.at

    tools = as_tools([Open])
    said(tools, "next")
    assert said(fork_tools(tools), "next") == "2"
    stuck = as_tools([Toolset(Open, copies=False)])
    fork_tools(stuck)  # there is nothing to copy yet
    said(stuck, "next")
    with pytest.raises(
        ToolFailure, match=r"Open cannot be copied \(.*generator.*\); give it a method fork\(\)"
    ):
        fork_tools(stuck)


def test_a_class_that_cannot_be_made_in_an_episode_is_a_failure_of_the_tool():
    class Down(Shop):
        def __init__(self) -> None:
            raise OSError("the disk is full")

    with pytest.raises(ToolFailure, match="Down cannot be made: OSError: the disk is full"):
        said(as_tools([Down]), "buy", count=1)


class NeedsMore(Shop):
    def __init__(self, name: str) -> None: ...


class Untyped:
    def go(self, way): ...


class Undocumented:
    def go(self, way: str) -> str: ...


class Empty:
    """Nothing."""


class Half:
    name, schema = "half", {}

    def call(self, arguments): ...


class Wrong(Half):
    reset = fork = close = lambda self: None

    def __init__(self, schema: Any) -> None:
        self.schema = schema


def plain(x: int) -> str:
    """Do."""
    return str(x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([lambda x: x], "tool <lambda> has no docstring"),
        (
            [NeedsMore],
            "NeedsMore cannot be made: missing a required argument: 'name'; write Toolset(NeedsMore, …)",
        ),
        ([Untyped], "tool go has no docstring"),
        ([Undocumented], "tool go has no docstring; its first paragraph is what the agent reads"),
        ([Empty], "Empty has no public method, so it gives no tool"),
        ([Half()], "Half object at"),
        (
            [Half()],
            "is no tool: it has no reset, fork, close; a tool has these, is a typed function",
        ),
        ([Shop()], "is no tool: it has no name, schema, call, reset, fork"),
        (["python"], "'python' is no tool: it has no name, schema, call"),
        ([Wrong({})], "the schema of the tool half is {}; it needs the form {'type': 'function'"),
        ([Wrong(plain)], "the schema of the tool half is <function"),
        (
            [Wrong(tool(plain).schema)],
            "the tool half is called 'plain' in its schema; give both one name",
        ),
        ([PythonTool], "PythonTool is the class of a tool; make one, as in tools=[PythonTool()]"),
        (plain, "write a list, such as tools=[plain]"),
        ("plain", "'plain' is no tool: it has no name"),
    ],
)
def test_what_is_missing_is_said_where_tools_are_taken(given: Any, message: str):
    with pytest.raises(TypeError, match=re.escape(message)):
        as_tools(given)
