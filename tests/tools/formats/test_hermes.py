import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tools import Parsed, ToolCall, get_format

HERMES = get_format("hermes")
PRINT = '<tool_call>\n{"name": "python", "arguments": {"code": "print(1)"}}\n</tool_call>'
CALL = ToolCall("python", {"code": "print(1)"})


def test_a_call_is_read_and_what_follows_is_dropped():
    text = f"Let me see. {PRINT}"
    assert HERMES.parse(f"{text}\n{PRINT} and more", ["python"]) == Parsed(CALL, None, text)
    assert HERMES.render(CALL) == PRINT


def test_arguments_may_be_written_as_a_string():
    body = json.dumps({"name": "python", "arguments": json.dumps({"code": "print(1)"})})
    assert HERMES.parse(f"<tool_call>{body}</tool_call>", ["python"]).call == CALL


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            "{'name': 'python'}",
            "the text between the tags is not valid JSON (Expecting property name",
        ),
        ("[" * 100_000, "the text between the tags is not valid JSON (it is nested too deeply)"),
        ('{"name": "python", "arguments": {"code": NaN}}', "is not valid JSON (NaN is not JSON)"),
        (
            '{"name": "python", "arguments": {"code": -1e999}}',
            "is not valid JSON (a number is too large)",
        ),
        ('["python"]', 'expected {"name": ..., "arguments": {...}}, got a list'),
        ('{"arguments": {}}', '"name" must be a string'),
        ('{"name": "python"}', '"arguments" must be an object, it is missing'),
        ('{"name": "python", "parameters": {}}', '"arguments" must be an object, it is missing'),
        ('{"name": "python", "arguments": 3}', '"arguments" must be an object, it is a number'),
        ('{"name": "python", "arguments": "print(1)"}', '"arguments" is not valid JSON'),
        ('{"name": "python", "arguments": "[1]"}', '"arguments" must be an object, it is a list'),
        (
            '{"name": "shell", "arguments": {}}',
            "there is no tool 'shell'; the tools are python, search",
        ),
        (
            '{"name": "%s", "arguments": {}}' % ("x" * 99),
            f"there is no tool '{'x' * 57}...'; the tools are",
        ),
    ],
)
def test_malformed_calls_are_explained(body: str, error: str):
    text = f"<tool_call>{body}</tool_call>"
    parsed = HERMES.parse(text + " tail", ["python", "search"])
    assert parsed.call is None
    assert parsed.text == text
    assert parsed.error is not None
    assert parsed.error.startswith("malformed tool call: ")
    assert error in parsed.error
    assert len(parsed.error) < 300
    assert HERMES.complete(text)


TAGS_IN_CODE = [
    "print('</tool_call>')",
    "'</tool_call></tool_call>'",
    r"# \"</tool_call>\"",
    "</think>",
]


@pytest.mark.parametrize("code", TAGS_IN_CODE)
def test_a_closing_tag_in_a_string_ends_no_call(code):
    text = f'<tool_call>{{"name": "python", "arguments": {{"code": "{code}"}}}}</tool_call>'
    call = ToolCall("python", {"code": json.loads(f'"{code}"')})
    assert HERMES.parse(f"{text}</tool_call> {PRINT}", ["python"]) == Parsed(call, None, text)
    assert [HERMES.complete(text[:size]) for size in range(len(text) + 1)] == [False] * len(
        text
    ) + [True]
    assert text[slice(*HERMES.find_arguments(text))] == f'"code": "{code}"'


def test_a_quote_that_is_not_closed_hides_no_closing_tag_behind_its_line():
    text = '<tool_call>\n{"name": "python", "arguments": {"code": "print(1)}}\n</tool_call>'
    assert HERMES.complete(text) and HERMES.parse(f'{text} "x"', ["python"]).text == text
    assert "is not valid JSON (Invalid control character" in HERMES.parse(text, ["python"]).error
    text = text.replace("}}\n", "}}")  # on one line it is open up to the end of the text
    assert not HERMES.complete(text)
    assert "is not valid JSON (Unterminated string" in HERMES.parse(text, ["python"]).error


@pytest.mark.parametrize(
    "thought",
    [
        f"I could write {PRINT} but",
        "The tag <tool_call> opens a call,",
        'It is <tool_call>{"name": "python", "arguments": {"code": "1',
        "<tool_call> and </tool_call> stand around it,",
    ],
)
def test_a_call_that_a_thought_opened_by_the_template_mentions_is_none(thought):
    said = f"{thought} so </think>\nLet me see. {PRINT}"
    assert HERMES.parse(said, ["python"]) == Parsed(CALL, None, said)
    assert HERMES.parse(f"{thought} so </think>\n\\boxed{{1}}", ["python"]).call is None
    assert HERMES.parse(f"{thought} so </think>\n\\boxed{{1}}", ["python"]).error is None


def test_a_call_without_its_end_is_explained():
    assert (
        HERMES.parse(PRINT[:-1], ["python"]).error
        == "malformed tool call: <tool_call> is never closed by </tool_call>"
    )


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.booleans())), st.text())
def test_what_is_rendered_is_read_back(arguments, name: str):
    for call in (
        ToolCall(name, arguments),
        ToolCall(name, {"code": "'</tool_call></think><think><tool_call>'"}),
    ):
        assert HERMES.parse(HERMES.render(call), [name]) == Parsed(call, None, HERMES.render(call))


def test_the_template_frames_results_and_shows_tools():
    assert HERMES.observe("4", "python") == HERMES.observe("4", None) == ("tool", "4")
    assert (HERMES.native, HERMES.instructions([{}])) == (True, "")
