import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turngym
from turngym.tools import FORMATS, Parsed, ToolCall, get_format
from turngym.tools.core import make_schema

HERMES, TAG = get_format("hermes"), get_format("python-tag")
PRINT = '<tool_call>\n{"name": "python", "arguments": {"code": "print(1)"}}\n</tool_call>'
CALL = ToolCall("python", {"code": "print(1)"})


def test_hermes_reads_a_call_and_drops_what_follows():
    text = f"Let me see. {PRINT}"
    assert HERMES.parse(f"{text}\n{PRINT} and more", ["python"]) == Parsed(CALL, None, text)


def test_hermes_accepts_arguments_written_as_a_string():
    body = json.dumps({"name": "python", "arguments": json.dumps({"code": "print(1)"})})
    assert HERMES.parse(f"<tool_call>{body}</tool_call>", ["python"]).call == CALL


def test_python_tag_reads_code_and_drops_what_follows():
    parsed = TAG.parse("So: <python>\nx = 1\n\n</python> <result>1</result>", ["python"])
    assert parsed == Parsed(ToolCall("python", {"code": "x = 1\n"}), None, "So: <python>\nx = 1\n\n</python>")
    assert TAG.parse("<python> 1 + 1</python>", ["python"]).call == ToolCall("python", {"code": " 1 + 1"})


@pytest.mark.parametrize("style", FORMATS.values(), ids=FORMATS)
def test_plain_text_is_no_call_and_no_error(style):
    text = "The answer is \\boxed{4}. </tool_call> </python>"
    assert style.parse(text, ["python"]) == Parsed(None, None, text)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("{'name': 'python'}", "the text between the tags is not valid JSON (Expecting property name"),
        ("[" * 100_000, "the text between the tags is not valid JSON (it is nested too deeply)"),
        ('{"name": "python", "arguments": {"code": NaN}}', "is not valid JSON (NaN is not JSON)"),
        ('["python"]', 'expected {"name": ..., "arguments": {...}}, got a list'),
        ('{"arguments": {}}', '"name" must be a string'),
        ('{"name": "python"}', '"arguments" must be an object, it is missing'),
        ('{"name": "python", "arguments": 3}', '"arguments" must be an object, it is a number'),
        ('{"name": "python", "arguments": "print(1)"}', '"arguments" is not valid JSON'),
        ('{"name": "python", "arguments": "[1]"}', '"arguments" must be an object, it is a list'),
        ('{"name": "shell", "arguments": {}}', "there is no tool 'shell'; the tools are python, search"),
    ],
)
def test_malformed_hermes_calls_are_explained(body: str, error: str):
    text = f"<tool_call>{body}</tool_call>"
    parsed = HERMES.parse(text + " tail", ["python", "search"])
    assert parsed.call is None
    assert parsed.text == text
    assert parsed.error is not None
    assert parsed.error.startswith("malformed tool call: ")
    assert error in parsed.error
    assert len(parsed.error) < 300


def test_unclosed_and_unknown_calls_are_explained():
    assert TAG.parse("<python>1", ["python"]).error == "malformed tool call: <python> is never closed by </python>"
    assert "<tool_call> is never closed" in (HERMES.parse(PRINT[:-1], ["python"]).error or "")
    assert "there is no tool 'python'; there are no tools" in (TAG.parse("<python>1</python>", []).error or "")


@pytest.mark.parametrize(("style", "call"), [(HERMES, PRINT), (TAG, "<python>print(1)</python>")])
def test_calls_inside_thoughts_do_not_count(style, call: str):
    for text in (f"<think>{call}", f"<think>{call}</think> done", f"{call}</think>", f"<think>a</think><think>{call}"):
        assert style.parse(text, ["python"]) == Parsed(None, None, text)
    for before in ("<think>hm</think>", f"{call} no </think>", f"<think>{call}</think> b <think>{call}</think>"):
        assert style.parse(f"{before}{call}<think>", ["python"]) == Parsed(CALL, None, f"{before}{call}")


def test_a_call_does_not_change_by_what_is_written_behind_it():
    text = f"<think>a</think>{PRINT}"
    for tail in ("</think>", f"<think>b</think>{PRINT.replace('1', '2')}", "</tool_call>", "<tool_call>"):
        assert HERMES.parse(text + tail, ["python"]) == HERMES.parse(text, ["python"])


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.booleans())), st.text())
def test_hermes_reads_back_what_it_renders(arguments, name: str):
    for call in (ToolCall(name, arguments), ToolCall(name, {"code": "'</tool_call></think><think><tool_call>'"})):
        assert HERMES.parse(HERMES.render(call), [name]) == Parsed(call, None, HERMES.render(call))


@given(st.lists(st.sampled_from(["\n", " ", "x = 1", "<python>", "<think>", "</result>", "é"])).map("".join))
def test_python_tag_reads_back_what_it_renders(code: str):
    call = ToolCall("python", {"code": code})
    assert TAG.parse(TAG.render(call), ["python"]).call == call


def test_python_tag_refuses_to_render_what_it_cannot_spell():
    with pytest.raises(ValueError, match="the code contains </python>"):
        TAG.render(ToolCall("python", {"code": "'</python>'"}))
    with pytest.raises(ValueError, match="only spells python"):
        TAG.render(ToolCall("search", {"query": "x"}))
    with pytest.raises(ValueError, match="only spells python"):
        TAG.render(ToolCall("python", {"code": "1", "timeout": 1}))


PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<python>", "</python>", "{", "}", '"', "\\", "\0"]
WORDS = ['{"name": "python", "arguments": ', "\ud800", "1" * 5000, "\n", "null", "π"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES + WORDS) | st.text(max_size=5)).map("".join))
def test_no_string_makes_a_parser_raise(text: str):
    for style in FORMATS.values():
        parsed = style.parse(text, ["python"])
        assert text.startswith(parsed.text)
        assert parsed.call is None or (parsed.error is None and parsed.text.endswith(style.closers[0]))


@pytest.mark.parametrize(
    "piece", ["<think></think>", "<think>", "</think>", "<tool_call>", "<python>", '{"a":', "[", "<"]
)
def test_long_hostile_text_is_read_in_linear_time(piece: str):
    text = piece * (2_000_000 // len(piece))  # quadratic work on two megabytes would run into the test timeout
    for style in FORMATS.values():
        for variant in (text, style.name + text + style.closers[0], f"<tool_call>{text}</tool_call>"):
            style.parse(variant, ["python"])


def test_results_come_back_in_the_role_of_the_format():
    assert HERMES.observe("4") == ("tool", "4")
    assert TAG.observe("4") == ("user", "<result>\n4\n</result>")


def test_only_formats_that_templates_do_not_know_bring_instructions():
    schema = make_schema("python", "Run Python code.", {"code": {"type": "string"}}, ["code"])
    assert (HERMES.native, HERMES.instructions([schema])) == (True, "")
    assert not TAG.native
    assert "<python>code</python>" in TAG.instructions([schema])
    assert TAG.instructions([schema]).endswith("Run Python code.")


def test_unknown_formats_are_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="unknown tool-call format 'herms'; did you mean 'hermes'"):
        get_format("herms")


def _rows(name: str) -> list[dict]:
    path = Path(turngym.__file__).parent.parent / "shared" / "data" / "tool_calls" / name
    if not path.exists():
        pytest.skip("../shared/data is absent")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_recorded_hermes_completions():
    rows = [row for row in _rows("completions.jsonl") if row["format"] == "hermes_tool_call"]
    tools = ["generate_password", "do_thing", "final_answer", "get_weather", "get_weather_forecast"]
    parsed = [HERMES.parse(row["text"], tools) for row in rows]
    # Four of eight are calls; the others lack the closing tag (2), pass a bare word, or close an object too early.
    assert (len(rows), sum(p.call is not None for p in parsed), sum(p.error is not None for p in parsed)) == (8, 4, 4)
    well_formed = [(row, p) for row, p in zip(rows, parsed) if row.get("well_formed")]
    assert len(well_formed) == 2
    for row, p in well_formed:
        assert p.call is not None
        assert {"name": p.call.name, "arguments": p.call.arguments} == row["expected_calls"][0]


def test_recorded_completions_of_other_formats_hold_no_call():
    rows = [row for row in _rows("completions.jsonl") if row["format"] != "hermes_tool_call"]
    assert len(rows) == 135
    for row in rows:
        assert all(
            style.parse(row["text"], ["python"]) == Parsed(None, None, row["text"]) for style in FORMATS.values()
        )


def test_recorded_python_tag_transcripts():
    rows = [row for row in _rows("arpo_python_result.jsonl") if row["kind"].startswith("real")]
    completions = [row["text"].rpartition("<|im_start|>assistant")[2] for row in rows]
    parsed = [TAG.parse(text, ["python"]) for text in completions]
    assert len(parsed) == 3
    for p in parsed:
        assert p.call is not None
        assert p.call.arguments["code"].rstrip().endswith(")")  # each ends by printing
        assert p.text.count("</python>") == 1
