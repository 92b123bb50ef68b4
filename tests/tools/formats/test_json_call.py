import pytest

from turngym.tools.formats.base import ToolCall
from turngym.tools.formats.json_call import load_json, read_json_call, spell_json_call

KEYS = ("parameters", "arguments")


@pytest.mark.parametrize("source", [f'{{"name": "f", "{key}": {{"x": 1}}}}' for key in KEYS])
def test_the_arguments_may_have_any_of_the_keys(source):
    assert read_json_call(source, "it", KEYS, ("f",)) == ToolCall("f", {"x": 1})


def test_the_first_key_that_is_there_decides():
    both = '{"name": "f", "arguments": {"x": 2}, "parameters": {"x": 1}}'
    assert read_json_call(both, "it", KEYS, ("f",)).arguments == {"x": 1}
    with pytest.raises(
        ValueError,
        match=r'^"parameters" must be an object, it is null; expected \{"name": \.\.\., "param',
    ):
        read_json_call('{"name": "f", "arguments": {}, "parameters": null}', "it", KEYS, ("f",))
    with pytest.raises(ValueError, match=r'^"arguments" must be an object, it is a boolean'):
        read_json_call('{"name": "f", "arguments": true}', "it", KEYS, ("f",))


def test_no_closing_tag_is_ever_spelled():
    text = spell_json_call(ToolCall("</f>", {"</x": ["</tool_call>"]}), "arguments")
    assert "</" not in text
    assert load_json(text, "it") == {"name": "</f>", "arguments": {"</x": ["</tool_call>"]}}


@pytest.mark.parametrize(
    "source", ["", "NaN", "Infinity", "[1e999]", "1" * 5000, "[" * 10**5, "\ud800", "{} {}", "'a'"]
)
def test_what_is_no_json_is_refused_by_its_name(source):
    with pytest.raises(ValueError, match=r"^the thing is not valid JSON \(."):
        load_json(source, "the thing")


def test_numbers_keep_their_value():
    assert load_json("[1, -0.5, 1e3, 1e308]", "it") == [1, -0.5, 1000.0, 1e308]
