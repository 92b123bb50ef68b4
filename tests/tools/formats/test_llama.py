import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from turngym.tools import Parsed, ToolCall, get_format

LLAMA = get_format("llama-json")
TEXT = '{"name": "f", "parameters": {"x": "}{\\"}"}}'
CALL = ToolCall("f", {"x": '}{"}'})


@pytest.mark.parametrize(
    "before", ["", "<|python_tag|>", "Here is the result: ", "```json\n", "[", "{ } {\n", '{"x": ']
)
@pytest.mark.parametrize(
    "behind", ["", "; " + TEXT, ";\n{", " Would you like to know more?", "<|eom_id|>", "}", '"']
)
def test_the_first_object_is_the_call_wherever_it_stands(before, behind):
    assert LLAMA.parse(before + TEXT + behind, ["f"]) == Parsed(CALL, None, before + TEXT)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "arguments": {"x": 1}}',
        '{ "parameters" : {"x": 1}, "name":"f"}',
        '{\n  "type": "function",\n  "name": "f",\n  "parameters": {"x": 1}\n}',
        '{"type":"function","name":"f","parameters":"{\\"x\\": 1}"}',
    ],
)
def test_the_ways_in_which_models_write_it(text):
    assert LLAMA.parse(text, ["f"]).call == ToolCall("f", {"x": 1})


@pytest.mark.parametrize(
    "data", ['{"name": "Alice"}', '[{"name": "Alice", "age": 3}, {"name": "f"}]', '{"name": f}']
)
def test_an_object_with_a_name_and_no_arguments_is_data(data):
    text = f"The user is {data}, so \\boxed{{42}}"
    assert LLAMA.parse(text, ["f"]) == Parsed(None, None, text)
    assert not LLAMA.complete(text) and LLAMA.find_start(text) is None
    assert LLAMA.parse(f"{text} {TEXT}", ["f"]) == Parsed(CALL, None, f"{text} {TEXT}")


@pytest.mark.parametrize(
    "text", ['{"type": "dog", "name": 1}', '{"a": 1}', "{}", '{"names": 1}', '{name: "f"}', "{ {"]
)
def test_other_objects_are_text(text):
    assert LLAMA.parse(text, ["f"]) == Parsed(None, None, text)
    assert not LLAMA.complete(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            '{"parameters": {}}',
            '"name" must be a string; expected {"name": ..., "parameters": {...}}',
        ),
        ('{"type": "function", "name": "f"}', '"parameters" must be an object, it is missing'),
        ('{"name": "f", "parameters": []}', '"parameters" must be an object, it is a list'),
        (
            '{"name": "f", "parameters": {x}}',
            "the object is not valid JSON (Expecting property name",
        ),
        ('{"name": "f", "parameters": {"x": [}}', "the object is not valid JSON ("),
        ('{"name": "g", "parameters": {}}', "there is no tool 'g'; the tools are f"),
    ],
)
def test_malformed_calls_are_whole_and_explained(text, error):
    parsed = LLAMA.parse(f"{text} x", ["f"])
    assert (parsed.call, parsed.text) == (None, text)
    assert parsed.error.startswith(f"malformed tool call: {error}")


@pytest.mark.parametrize(
    "text",
    [TEXT[:-1], '{"name": "f", "parameters": {x}', '{"name": "f}}', '{"name": "f}}\\', '{"name":'],
)
def test_an_object_that_is_not_closed_is_explained(text):
    assert (
        LLAMA.parse(text, ["f"]).error
        == "malformed tool call: the object is never closed, or too large"
    )
    assert not LLAMA.complete(text)


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
@given(st.dictionaries(st.text(), json_values, max_size=3), st.text())
def test_what_is_rendered_is_read_back(arguments, name):
    for call in (ToolCall(name, arguments), ToolCall(name, {"code": "'</think><think>{'"})):
        assert LLAMA.parse(LLAMA.render(call), [name]) == Parsed(call, None, LLAMA.render(call))


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(), json_values, max_size=3))
def test_an_object_ends_where_json_says(arguments):
    text = json.dumps({"name": "f", "parameters": arguments})
    assume("</think>" not in text)  # which ends a thought that the template began
    assert LLAMA.parse(f"{text}}} {text}", ["f"]).text == text
    assert not any(LLAMA.complete(text[:size]) for size in range(len(text)))


def test_the_template_frames_results_and_shows_tools():
    assert LLAMA.observe("4", "f") == ("tool", "4")
    assert (LLAMA.native, LLAMA.instructions([{}])) == (True, "")
