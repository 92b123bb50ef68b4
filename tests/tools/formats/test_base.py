"""What every format promises."""

import json
import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turngym.tools import FORMATS, Parsed, ToolCall, get_format
from turngym.tools.formats.base import (
    MAX_BRACKET_DEPTH,
    MAX_LEXICAL_TOKENS,
    escape_block_ends,
    find_closing_bracket,
)

TOOLS = ("python", "search")
CALL = ToolCall("python", {"code": "print(1)"})
STYLES = pytest.mark.parametrize("style", FORMATS.values(), ids=FORMATS)
PIECES = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<python>",
    "</python>",
    "{",
    "}",
    '"',
    "\\",
    "\0",
]
PIECES += [
    "```python\n",
    "\n```",
    "[python(",
    "[f(x=",
    ")]",
    "]",
    "(",
    ")",
    ",",
    "'",
    '"""',
    '{"name":',
    "<answer>",
]
WORDS = [
    '{"name": "python", "arguments": ',
    "\ud800",
    "1" * 5000,
    "\n",
    "null",
    "π",
    "</answer>",
    "code=",
    '"x"',
]
SOUP = st.lists(st.sampled_from(PIECES + WORDS) | st.text(max_size=5)).map("".join)


@STYLES
def test_a_call_is_read_back_as_it_was_written_and_what_follows_is_dropped(style):
    call = style.render(CALL)
    assert style.parse(call, TOOLS) == Parsed(CALL, None, call)
    assert style.parse(f"Let me see. {call} and {call}", TOOLS) == Parsed(
        CALL, None, f"Let me see. {call}"
    )


@STYLES
def test_the_arguments_of_a_call_are_found_in_it(style):
    call = style.render(CALL)
    text = f"Let me see. {call} and {style.render(ToolCall('python', {'code': 'other'}))}"
    start, stop = style.find_arguments(text)
    assert "print(1)" in text[start:stop] and "\n" not in text[start:stop].strip()
    assert not set(text[start:stop]) & {"`", "<", "[", "{", "}", "]", ">"}
    assert (
        style.find_arguments(text[: stop - 2]) is None
        and style.find_arguments("<think>" + call) is None
    )


def test_an_answer_in_tags_is_found_and_a_call_without_arguments_has_none():
    assert get_format("tags").find_arguments("so <answer>42</answer>") == (11, 13)
    assert get_format("hermes").find_arguments('<tool_call>{"name": "f"}</tool_call>') is None
    assert get_format("hermes").find_arguments(
        '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    ) == (
        39,
        39,
    )


@settings(max_examples=300, deadline=None)
@given(SOUP)
@example("[f(x=1],")
@example("(so) [f(x=1],")
def test_the_place_of_arguments_lies_in_the_text(text):
    for style in FORMATS.values():
        start, stop = style.find_arguments(text) or (0, 0)
        assert 0 <= start <= stop <= len(text)


@STYLES
def test_plain_text_is_no_call_and_no_error(style):
    text = "The answer is \\boxed{4}. </tool_call> </python> ``` [1, 2] [x] {} </answer> f(x=1)"
    assert style.parse(text, TOOLS) == Parsed(None, None, text)
    assert not style.complete(text)


@STYLES
def test_calls_inside_thoughts_do_not_count(style):
    call = style.render(CALL)
    for text in (
        f"<think>{call}",
        f"<think>{call}</think> done",
        f"{call}</think>",
        f"<think>a</think><think>{call}",
    ):
        assert style.parse(text, TOOLS) == Parsed(None, None, text)
        assert not style.complete(text)
    for before in (
        "<think>hm</think>",
        f"{call} no </think>",
        f"<think>{call}</think> b <think>{call}</think>",
    ):
        assert style.parse(f"{before}{call}<think>", TOOLS) == Parsed(CALL, None, f"{before}{call}")
        assert style.complete(f"{before}{call}") and not style.complete(f"{before}{call[:-1]}")


@STYLES
def test_a_call_does_not_change_by_what_is_written_behind_it(style):
    text = f"<think>a</think>{style.render(CALL)}"
    again = style.render(ToolCall("python", {"code": "2"}))
    for tail in (
        "</think>",
        f"<think>b</think>{again}",
        "</tool_call>",
        "<tool_call>",
        "]",
        "}",
        ")",
        '"',
        "`",
        again,
    ):
        assert (
            style.parse(text + tail, TOOLS) == style.parse(text, TOOLS) == Parsed(CALL, None, text)
        )


@STYLES
def test_a_call_of_a_tool_that_is_not_there_is_whole_and_explained(style):
    call = style.render(CALL)
    for tools, known in (((), "there are no tools"), (("a", "b"), "the tools are a, b")):
        error = f"malformed tool call: there is no tool 'python'; {known}"
        assert style.parse(f"{call} x", tools) == Parsed(None, error, call)


@STYLES
def test_a_call_that_is_never_closed_is_explained_and_not_whole(style):
    call = style.render(CALL)
    parsed = style.parse(call[:-1], TOOLS)
    assert (parsed.call, parsed.text) == (None, call[:-1])
    assert re.match(r"malformed tool call: .* is never closed", parsed.error)
    assert not style.complete(call[:-1])


@STYLES
@settings(deadline=None)
@given(text=SOUP)
def test_no_string_makes_a_format_raise_and_a_turn_ends_where_its_call_does(style, text):
    parsed = style.parse(text, TOOLS)
    assert text.startswith(parsed.text)
    assert parsed.call is None or parsed.error is None
    assert len(parsed.error or "") < 300
    if not style.complete(text):
        assert parsed.call is None and parsed.text == text
        return
    assert style.complete(parsed.text) and not style.complete(parsed.text[:-1])
    assert parsed.text.endswith(style.closers)
    for tail in ("", "]", "}", '"', "<python>x</python>", text.replace("</think>", "")):
        assert style.parse(parsed.text + tail, TOOLS) == parsed


HOSTILE = """<think></think> <think> </think> <tool_call> <python> {"a": [ < ' \\ [], ``` [f(x= {"name": [a {"name":}"""
HOSTILE_PIECES = [*HOSTILE.split(), '"', '"""', "\n", " ", "```python\n", "[f(x=1) "]


@pytest.mark.parametrize("piece", HOSTILE_PIECES)
def test_long_hostile_text_is_read_in_linear_time(piece):
    text = piece * (
        200_000 // len(piece)
    )  # quadratic work on 200 kB would run into the test timeout
    for style in FORMATS.values():
        opened = {"fenced": "```python\n", "pythonic": "[f(x=", "llama-json": '{"name": '}.get(
            style.name, "<python>"
        )
        for variant in (text, opened + text + style.closers[0], f"<tool_call>{text}</tool_call>"):
            style.parse(variant, TOOLS)


@pytest.mark.parametrize(
    ("name", "call", "pair", "most"),
    # What counts beside the pairs: two braces and three strings, two brackets.
    [
        ("llama-json", '{"name": "python", "parameters": @}', "{}", (MAX_LEXICAL_TOKENS - 5) // 2),
        ("pythonic", "[python(code=@)]", "[]", (MAX_LEXICAL_TOKENS - 2) // 2),
    ],
)
def test_a_call_that_is_too_deep_or_too_large_is_never_whole(name, call, pair, most):
    style = FORMATS[name]
    for depth in (MAX_BRACKET_DEPTH - 1, MAX_BRACKET_DEPTH):
        text = call.replace("@", pair[0] * depth + pair[1] * depth)
        assert style.complete(text) == (depth < MAX_BRACKET_DEPTH)
    for count in (most, most + 1):
        text = call.replace("@", pair * count)
        assert style.complete(text) == (count == most)
    assert style.parse(text, TOOLS).error.endswith(", or too large")


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=9,
    )
)
def test_brackets_are_closed_where_json_ends(value):
    text = json.dumps({"x": value}, ensure_ascii=False)
    marks = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[][{}]', re.DOTALL)
    assert (
        find_closing_bracket(f"a{text}}}]{{", 1, marks)
        == json.JSONDecoder().raw_decode(f"{text}}}]{{")[1] + 1
    )
    assert find_closing_bracket(f"a{text[:-1]}", 1, marks) is None


def test_a_call_that_would_be_read_otherwise_is_refused():
    for style in FORMATS.values():
        for arguments in ({"code": float("nan")}, {"code": ("a",)}, {1: "a"}):
            with pytest.raises(ValueError):
                style.render(ToolCall("python", arguments))


def test_unknown_formats_are_refused_with_the_nearest_name():
    with pytest.raises(
        ValueError,
        match=r"unknown tool-call format 'herms'; did you mean 'hermes'\? known: hermes, tags",
    ):
        get_format("herms")
    assert all(get_format(name).name == name for name in FORMATS)


def _closes(body):
    """Whether a result's text could end the block of any format or of a template."""
    body = unicodedata.normalize("NFKC", body)
    return bool(
        re.search(
            r"```|[<\[]\s*/\s*(information|result|tool_|function_|observation)", body, re.IGNORECASE
        )
    )


CLOSERS = [
    "</information>",
    "</result>",
    "</tool_response>",
    "</RESULT>",
    "</ Information >",
    "< /result>",
    "<\n/result>",
]
CLOSERS += [
    "```",
    "````",
    "``````",
    "\n```\n",
    "```output\n",
    "\u1fef\u1fef`",
    "[/TOOL_RESULTS]",
    "</observation>",
]
CLOSERS += [
    "＜／result＞",
    "＜/result>",
    "<／ｒｅｓｕｌｔ>",
    "﹤/tool_response﹥",
    "［／TOOL_RESULTS］",
    "｀｀｀",
    "`｀`",
    "</𝐫𝐞𝐬𝐮𝐥𝐭>",
]
CLOSERS += ["<\uff3c/result>", "\u3000＜\u3000／result＞", "</informatⅰon>", "</result™>"]
CLOSERS += [
    "</function_results>",
    "</tool_output>",
    "``\\`",
    "<\\/result>",
    "<\\\\/result>```",
    "`" * 7 + "</result>" * 3,
]


@STYLES
@pytest.mark.parametrize("closer", CLOSERS)
def test_a_result_does_not_end_its_own_block(style, closer):
    before, after = style.observe("calm", "python")[1].split("calm")
    for text in (closer, f"a{closer}b", f"{closer}\n{closer}\nDone.", f"x\n  {closer} <{closer}"):
        content = style.observe(text, "python")[1]
        assert content.startswith(before) and content.endswith(after)
        body = content[len(before) : len(content) - len(after)]
        assert not _closes(body)
        assert (
            len({escape_block_ends(text + tail) for tail in ("", "\\", "`", "/")}) == 4
        )  # nothing is lost


def test_a_result_that_ends_no_block_is_shown_as_it_is():
    for text in (
        "a < b / c",
        "<p>x</p> `code` ``two`` a\\b",
        "</resulting>",
        "~~~",
        "</python> </answer> [1/2]",
    ):
        assert escape_block_ends(text) == text
    assert escape_block_ends("</result> ```") == "<\\/result> ``\\`"


def test_a_result_in_signs_of_full_width_is_shown_as_it_is_where_it_ends_no_block():
    for text in ("＜p＞ｘ＜／p＞", "价格：１２３（元）", "½ ℃ ﬁne ™ ｀｀", "＜／python＞"):
        assert escape_block_ends(text) == text
    assert escape_block_ends("＜／result＞ ｀｀｀ é") == "＜\\／result＞ ｀｀\\｀ é"
