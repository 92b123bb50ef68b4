import ast
import json
import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tools import Parsed, ToolCall, get_format
from turngym.tools.formats.base import MAX_LEXICAL_TOKENS
from turngym.tools.json_schema import make_schema

PYTHONIC = get_format("pythonic")


def value(literal):
    """What `[f(x=LITERAL)]` passes; an error is raised as one."""
    parsed = PYTHONIC.parse(f"[f(x={literal})]", ["f"])
    if parsed.call is None:
        raise ValueError(parsed.error)
    return parsed.call.arguments["x"]


@pytest.mark.parametrize(
    "before",
    ["", "This is text before ", "User wants [it]. <|python_start|>", "[[", "f(x=1) [1, 2] "],
)
@pytest.mark.parametrize("behind", ["", "<|python_end|> In this way", " Here's", "]", '"'])
def test_the_first_list_is_the_call_wherever_it_stands(before, behind):
    text = before + "[f(x=1, y='a')]"
    assert PYTHONIC.parse(text + behind, ["f"]) == Parsed(
        ToolCall("f", {"x": 1, "y": "a"}), None, text
    )


@pytest.mark.parametrize("gap", ["", " ", "\n"])
def test_of_a_list_the_first_call_counts_and_its_comma_ends_it(gap):
    text = f"[f(x=[1, 2]){gap},"
    assert PYTHONIC.parse(f"{text} g()]", ["f"]) == Parsed(ToolCall("f", {"x": [1, 2]}), None, text)
    assert PYTHONIC.complete(text) and not PYTHONIC.complete(text[:-1])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("[f()]", {}),
        ("[ f ( ) ]", {}),
        ("[\n  f(\n    x = 1,\n  )\n]", {"x": 1}),
        (
            "[f(x={'a': [1, 2.5,], \"b\": (True, None)}, y=-1e-3)]",
            {"x": {"a": [1, 2.5], "b": [True, None]}, "y": -0.001},
        ),
        ("[f(x=true, y=false, z=null)]", {"x": True, "y": False, "z": None}),
        ("[f(x='''a\n'b' ''', y=\"\"\"\"c\"\"\")]", {"x": "a\n'b' ", "y": '"c'}),
        ("[f(x='a]) [', y=\"}'\")]", {"x": "a]) [", "y": "}'"}),
        ("[f(é=1)]", {"é": 1}),
    ],
)
def test_arguments_are_literals_by_name(text, arguments):
    assert PYTHONIC.parse(text, ["f"]) == Parsed(ToolCall("f", arguments), None, text)


@pytest.mark.parametrize("name", ["a.b.c", "get_weather", "é2", "_f"])
def test_names_of_tools(name):
    assert PYTHONIC.parse(f"[{name}(x=1)]", [name]).call == ToolCall(name, {"x": 1})


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "[f]",
        "[x(t) + y(t)]",
        "[sqrt(2)]",
        "[f(x)](y)",
        "[]",
        "f(x=1)",
        "[2f()]",
        "[-f(x=1)]",
        "[f(",
        "[f(x",
    ],
)
def test_other_lists_are_text(text):
    assert PYTHONIC.parse(text, ["f"]) == Parsed(None, None, text)
    assert not PYTHONIC.complete(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[g(x=1)]", "there is no tool 'g'; the tools are f"),
        ("[f('a')]", "expected an argument by name, as in f(x=1), found \"'a'\""),
        ("[f(x=1, 2)]", "expected an argument by name, as in f(x=1), found '2'"),
        ("[f(x=1, x=2)]", "the argument 'x' is given twice"),
        ("[f(x=1, y)]", "expected = behind 'y', found ')'"),
        ("[f(x=1 y=2)]", "expected , or ), found 'y'"),
        ("[f(x=)]", "expected a literal (text, number, list, dict, True, False, None), found ')'"),
        (
            "[f(x=g(1))]",
            "expected a literal (text, number, list, dict, True, False, None), found 'g'",
        ),
        ("[f(x=1+1)]", "expected , or ), found '+1'"),
        (
            "[f(x=not_a_literal)]",
            "expected a literal (text, number, list, dict, True, False, None), found 'not_a_lit",
        ),
        (
            "[f(x=f'{a}')]",
            "expected a literal (text, number, list, dict, True, False, None), found 'f'",
        ),
        ("[f(x={1: 2})]", "the keys of a dict must be strings"),
        ("[f(x={'a', 'b'})]", "expected : behind a key, found ','"),
        ("[f(x=[1 2])]", "expected , or ], found '2'"),
        ("[f(x=(1])]", "expected , or ), found ']'"),
        ("[f(x=1e999)]", "the number 1e999 is too large"),
        ("[f(x=%s)]" % ("9" * 5000), "Exceeds the limit"),
        ("[f(x='\\U00110000')]", "\\U00110000 is no character"),
        ("[f(x=1) and more]", "expected , or ] behind the call, found 'and'"),
        (
            "[f(x=[%s])]" % ("1," * MAX_LEXICAL_TOKENS),
            "the call holds more than 10000 values and marks",
        ),
    ],
)
def test_malformed_calls_are_whole_and_explained(text, error):
    parsed = PYTHONIC.parse(f"{text} x", ["f"])
    assert (parsed.call, parsed.text) == (None, text)
    assert parsed.error.startswith(f"malformed tool call: {error}")
    assert len(parsed.error) < 300


UNCLOSED = [
    "[f(x=1)",
    "[f(x=1",
    "[f(x='a)]",
    "[f(x='a)]\\",
    '[f(x="""a")]',
    '[f(x="""a")]\\',
    "[f(x='\\\\\\')]",
]


@pytest.mark.parametrize("text", [*UNCLOSED, "[f(x=" + "[" * 99 + "]" * 99 + ")]"])
def test_a_call_that_is_not_closed_is_explained(text):
    assert PYTHONIC.parse(text, ["f"]).error == (
        "malformed tool call: the list of calls is never closed by ], or too large"
    )
    assert not PYTHONIC.complete(text)


# --- Python itself as the second source

KNOWN = (
    r"""\a \b \f \n \r \t \v \\ \' \" \x41 \u00e9 \ud83d \U0001f642 \101 \0 \18 \777 \d \boxed \8"""
)
ESCAPES = [*KNOWN.split(), "\\\n"]


@pytest.mark.filterwarnings("ignore")  # Python warns about escapes that it does not know
@pytest.mark.parametrize("escape", ESCAPES)
def test_every_escape_is_the_character_that_python_makes_of_it(escape):
    assert value(f"'a{escape}b'") == ast.literal_eval(f"'a{escape}b'")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([*ESCAPES, "a", " ", "é", "]", ")", "#", "\ud800"])).map("".join),
    st.sampled_from("'\""),
)
def test_text_is_read_as_python_reads_it(body, quote):
    for literal in (f"{quote}{body}{quote}", f"{quote * 3}{body}{quote}{body}{quote * 3}"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python warns about escapes that it does not know
                want = ast.literal_eval(literal)
        except (
            SyntaxError,
            UnicodeEncodeError,
        ):  # it cannot parse lone surrogates, nor \" at the end
            continue
        assert value(literal) == want


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(json_values)
def test_values_are_read_as_python_and_json_write_them(wanted):
    assert value(repr(wanted)) == wanted
    assert value(json.dumps(wanted)) == _paired(wanted)
    assert ast.literal_eval(repr(value(repr(wanted)))) == wanted


def _paired(wanted):
    """JSON writes an astral character as two halves, which Python's literals leave apart."""
    return (
        json.loads(json.dumps(wanted))
        if json.dumps(wanted).count("\\ud") == 0
        else value(json.dumps(wanted))
    )


@settings(deadline=None, max_examples=60)
@given(
    st.from_regex(
        r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?",
        fullmatch=True,
        alphabet=st.characters(codec="ascii"),
    )
)
def test_numbers_are_read_as_python_reads_them(digits):
    wanted = float(digits) if set(digits) & set(".eE") else int(digits)
    if math.isfinite(wanted):
        assert (value(digits), type(value(digits))) == (wanted, type(wanted))


@pytest.mark.parametrize("literal", ["(1, 2)", "(1,)", "()", "(1)", "((1))", "([1],)", "('a')"])
def test_a_tuple_is_a_list_and_lone_brackets_are_none(literal):
    wanted = ast.literal_eval(literal)
    assert value(literal) == (list(wanted) if isinstance(wanted, tuple) else wanted)


# --- writing


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.from_regex(r"[a-z_é]\w*", fullmatch=True), json_values, max_size=3))
def test_what_is_rendered_is_read_back_and_is_python(arguments):
    for call in (ToolCall("f", arguments), ToolCall("f", {"code": "'</think><think>]'"})):
        text = PYTHONIC.render(call)
        assert PYTHONIC.parse(text, ["f"]) == Parsed(call, None, text)
        assert not any(PYTHONIC.complete(text[:size]) for size in range(len(text)))
    assert ast.parse(PYTHONIC.render(ToolCall("f", {"x": "é\n'\""})), mode="eval")


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("my tool", {}),
        ToolCall("f", {"a b": 1}),
        ToolCall("f", {"x": float("inf")}),
        ToolCall("", {}),
    ],
)
def test_what_cannot_be_spelled_is_refused(call):
    with pytest.raises(ValueError, match="the format pythonic cannot spell"):
        PYTHONIC.render(call)


def test_instructions_show_the_schemas_and_results_come_from_the_tool():
    schemas = [make_schema(name, "Do é.", {"x": {"type": "string"}}, ["x"]) for name in ("f", "g")]
    first, *rest = PYTHONIC.instructions(schemas).split("\n")
    assert "[name(argument=value)]" in first and not PYTHONIC.native
    assert [json.loads(line) for line in rest] == [schema["function"] for schema in schemas]
    assert PYTHONIC.observe("4", "f") == ("tool", "4")
