import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tools import Parsed, ToolCall, get_format
from turngym.tools.formats.tags import ANSWER_TAGS, TAGS
from turngym.tools.json_schema import make_schema

TAG = get_format("tags")
TOOLS = ("python", "search", "visit")


def python(code):
    return ToolCall("python", {"code": code})


def test_code_is_read_and_what_follows_is_dropped():
    parsed = TAG.parse("So: <python>\nx = 1\n\n</python> <result>1</result>", ["python"])
    assert parsed == Parsed(python("x = 1\n"), None, "So: <python>\nx = 1\n\n</python>")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (" 1 + 1", "1 + 1"),  # code cannot begin with blanks, and models put them there
        (" print(26) ", "print(26)"),
        ("\tx\ny = '\t'\t", "x\ny = '\t'"),
        ("\n  x\n", "  x"),  # what begins on a line of its own is kept
        ("x\n", "x"),
        ("\n\n", ""),
        ("\n", ""),
        ("", ""),
        ("\r\nx\r\n", "\r\nx\r"),
        ("<python>1", "<python>1"),
    ],
)
def test_a_newline_or_blanks_next_to_the_tags_are_frame(body, code):
    assert TAG.parse(f"<python>{body}</python>", TOOLS).call == python(code)


@pytest.mark.parametrize("tag", TAGS, ids=lambda tag: tag.name)
def test_every_tag_calls_its_tool(tag):
    text = f"a <{tag.name}> x </{tag.name}>"
    assert TAG.parse(f"{text} <python>2</python>", TOOLS) == Parsed(
        ToolCall(tag.tool, {tag.argument: "x"}), None, text
    )
    assert TAG.parse(f"<{tag.name}>x</python >", TOOLS).error.endswith(
        f"<{tag.name}> is never closed by </{tag.name}>"
    )
    assert TAG.parse(text, ["echo"]).error.endswith(
        f"there is no tool '{tag.tool}'; the tools are echo"
    )


@pytest.mark.parametrize("tag", ANSWER_TAGS)
def test_a_final_answer_is_no_call_and_nothing_behind_it_counts(tag):
    answer = f"So <{tag}> 4 <python>1</python></{tag}>"
    assert TAG.parse(f"{answer} <python>1</python>", TOOLS) == Parsed(None, None, answer)
    assert TAG.complete(answer) and not TAG.complete(answer[:-1])
    assert TAG.parse(answer[:-1], TOOLS) == Parsed(None, None, answer[:-1])
    call = f"<python>print('<{tag}>4</{tag}>')</python>"
    assert TAG.parse(call, TOOLS).call == python(f"print('<{tag}>4</{tag}>')")


def test_what_looks_like_a_tag_is_none():
    for text in (
        "<Python>1</Python>",
        "<python >1</python >",
        "< python>1</python>",
        "<result>1</result>",
        "</python>",
    ):
        assert TAG.parse(text, TOOLS) == Parsed(None, None, text)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.sampled_from(["\n", " ", "\t", "x = 1", "<python>", "<think>", "</result>", "é"])
    ).map("".join)
)
def test_what_is_rendered_is_read_back(code: str):
    for call in (python(code), ToolCall("search", {"query": code})):
        assert TAG.parse(TAG.render(call), TOOLS) == Parsed(call, None, TAG.render(call))


def test_calls_are_rendered_as_experts_write_them():
    assert TAG.render(python("print(1)")) == "<python>print(1)</python>"
    assert TAG.render(python("x = 1\nprint(x)")) == "<python>\nx = 1\nprint(x)\n</python>"
    assert TAG.render(ToolCall("search", {"query": "cars"})) == "<search>cars</search>"
    assert (
        TAG.render(ToolCall("visit", {"url": "http://a.org/?b"}))
        == "<visit>http://a.org/?b</visit>"
    )


def test_what_cannot_be_spelled_is_refused():
    with pytest.raises(ValueError, match=r"the format tags cannot spell .*; use another format"):
        TAG.render(python("'</python>'"))
    with pytest.raises(
        ValueError, match="the format tags has no tag for the tool 'echo'; use hermes"
    ):
        TAG.render(ToolCall("echo", {"text": "x"}))
    with pytest.raises(ValueError, match="cannot spell"):
        TAG.render(ToolCall("python", {"code": "1", "timeout": 1}))
    for arguments in ({"query": "1"}, {"code": 1}, {}):
        with pytest.raises(
            ValueError, match="the format tags can only write the argument 'code' of python"
        ):
            TAG.render(ToolCall("python", arguments))


def test_results_come_back_in_the_tags_of_the_tool():
    assert (
        TAG.observe("4", "python") == TAG.observe("4", None) == ("user", "<result>\n4\n</result>")
    )
    for tool in ("search", "visit"):
        assert TAG.observe("4", tool) == ("user", "<information>\n4\n</information>")


def test_instructions_teach_every_tool_or_refuse_it():
    schemas = [make_schema(name, f"Do {name}.", {}, []) for name in ("search", "visit", "python")]
    search, visit, python = TAG.instructions(schemas).split("\n")
    assert (
        "<search>query</search>" in search
        and "</information>" in search
        and search.endswith(" Do search.")
    )
    assert (
        "<visit>url</visit>" in visit and "</information>" in visit and visit.endswith(" Do visit.")
    )
    assert (
        "<python>code</python>" in python
        and "</result>" in python
        and python.endswith(" Do python.")
    )
    assert not TAG.native
    with pytest.raises(ValueError, match="no tag for the tool 'echo'"):
        TAG.instructions([make_schema("echo", "d", {}, [])])
