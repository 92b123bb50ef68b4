"""Calls in another model's format are recognised by what only its calls hold."""

import pytest

from turngym.tools import FORMATS, ToolCall
from turngym.tools.formats.foreign import (
    CALL_PATTERNS,
    READABLE_FORMATS,
    advise_on_format,
    describe_format,
    find_foreign_call,
)

TOOLS = ("python", "search")
CODE = '{"code": "print(1)"}'
CALLS = {
    "Kimi's": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.python:0<|tool_call_argument_begin|>{CODE}",
    "DeepSeek's": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>python\n```json\n{CODE}\n```",
    "Mistral's": f'[TOOL_CALLS] [{{"name": "python", "arguments": {CODE}}}]',
    "gpt-oss's (harmony)": f"<|channel|>commentary to=functions.python <|constrain|>json<|message|>{CODE}<|call|>",
    "GLM's": "<tool_call>python\n<arg_key>code</arg_key>\n<arg_value>print(1)</arg_value>\n</tool_call>",
    "Llama 3.1's custom": f"<function=python>{CODE}</function>",
    "Qwen3-Coder's": "<tool_call>\n<function=python>\n<parameter=code>\n1\n</parameter>\n</function>\n</tool_call>",
    "Qwen2.5-Coder's (<tools>)": f'<tools>\n{{"name": "python", "arguments": {CODE}}}\n</tools>',
    "MiniMax's": '<minimax:tool_call>\n<invoke name="python">',
    "Claude's": '<function_calls>\n<invoke name="python">',
    "Granite's or Phi-4's (<|tool_call|>)": f'<|tool_call|>[{{"name": "python", "arguments": {CODE}}}]',
    "Nemotron's": f'<TOOLCALL>[{{"name": "python", "arguments": {CODE}}}]</TOOLCALL>',
    "Command R's": "<|START_ACTION|>[...]<|END_ACTION|>",
    "Gemma's (tool_code)": "```tool_code\nprint(python(code='1'))\n```",
    "Llama's (<|python_tag|>)": "<|python_tag|>print(1)",
}
OWN_CALLS = {
    name: FORMATS[name].render(ToolCall("python", {"code": "print(1)"}))
    for name in READABLE_FORMATS
}


def test_every_format_is_tried():
    assert CALL_PATTERNS.keys() | OWN_CALLS.keys() == CALLS.keys() | OWN_CALLS.keys()


@pytest.mark.parametrize("style", FORMATS)
def test_a_call_in_another_format_is_named(style):
    for name, text in CALLS.items():
        if FORMATS[style].parse(text, TOOLS).call is None:  # some hold a call that can be read
            assert find_foreign_call(f"Let me see.\n{text}", style, TOOLS) == name
    for name, text in OWN_CALLS.items():
        if name != style:
            assert find_foreign_call(f"Let me see. {text}", style, TOOLS) == name


@pytest.mark.parametrize("style", FORMATS)
def test_other_text_is_no_foreign_call(style):
    for text in (
        "",
        "\\boxed{4}",
        "[1, 2], [f(x)] and [sqrt(x=1)]",
        '{"name": "Alice"}',
        "<python>",
        "</search>",
        "a <tools> b",
    ):
        assert find_foreign_call(text, style, TOOLS) is None
    assert find_foreign_call("[python(code='1')]", "hermes", ()) is None  # a name that is no tool


def test_a_malformed_call_of_the_own_format_is_not_foreign():
    wrong = f'<tool_call>{{"name": "python", "parameters": {CODE}}}</tool_call>'
    assert find_foreign_call(wrong, "hermes", TOOLS, malformed=True) is None
    assert find_foreign_call(CALLS["GLM's"], "hermes", TOOLS, malformed=True) == "GLM's"


def test_what_to_do_is_said():
    assert (describe_format("Kimi's"), describe_format("hermes")) == (
        "Kimi's format",
        "the format hermes",
    )
    assert advise_on_format("hermes") == "try --option format=hermes"
    assert "--tool-calls structured" in advise_on_format(
        "Kimi's"
    ) and "turngym has no such format" in advise_on_format("Kimi's")
    assert (
        advise_on_format("hermes", has_format_option=False)
        == "the environment reads only the form of calls that its prompt asks for"
    )


@pytest.mark.parametrize(
    "piece", ["[", "<", "[python(", "{", '{"name": "a"', "<python>", " ", "\n```", "<function="]
)
def test_long_texts_are_looked_at_in_linear_time(piece):
    for style in FORMATS:
        find_foreign_call(piece * (200_000 // len(piece)), style, TOOLS)
