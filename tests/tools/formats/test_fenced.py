import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turngym.tools import Parsed, ToolCall, get_format
from turngym.tools.formats.fenced import remove_fence
from turngym.tools.json_schema import make_schema

FENCED = get_format("fenced")
TOOLS = ("python",)


def python(code):
    return ToolCall("python", {"code": code})


@pytest.mark.parametrize("language", ["python", "py", "python \t", "Python", "PY"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_first_fence_of_python_is_a_call(language, newline):
    text = f"So:\n```{language}{newline}x = 1\n\nprint(x)\n```"
    assert FENCED.parse(f"{text}\n```output\n1\n```\n```py\n2\n```", TOOLS) == Parsed(
        python("x = 1\n\nprint(x)"), None, text
    )


@pytest.mark.parametrize(
    "language", ["", "text", "output", "pythonic", "python3", "json", "python x"]
)
def test_a_fence_of_another_language_is_none(language):
    text = f"```{language}\nprint(1)\n```"
    assert FENCED.parse(text, TOOLS) == Parsed(None, None, text)
    call = "```python\n2\n```"
    assert FENCED.parse(f"{text}\n{call}", TOOLS) == Parsed(python("2"), None, f"{text}\n{call}")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("```", ""),
        ("\n```", ""),
        ("x```\n```", "x```"),  # only at the beginning of a line
        ("x\n  ```", "x"),
        ("  x\n\t```", "  x"),
        ("x  \n```", "x  "),
        ("x\n````", "x"),
        ("x\n```output\n```", "x"),
        ("x\r\n```", "x\r"),
        ("'``\n``'\n```", "'``\n``'"),
    ],
)
def test_a_line_that_begins_with_a_fence_closes_it(body, code):
    assert FENCED.parse(f"```python\n{body}", TOOLS).call == python(code)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("  ```python\n  x = 1\n  if x:\n      print(x)\n  ```", "x = 1\nif x:\n    print(x)"),
        ("1. Compute:\n   ```python\n   x = 6\n\n   print(x)\n   ```", "x = 6\n\nprint(x)"),
        ("- ```python\n  x = 6\n  print(x)\n  ```", "x = 6\nprint(x)"),
        ("10. ```Python\n    x = 6\n    print(x)\n    ```", "x = 6\nprint(x)"),
        ("\t```py\n\tif x:\n\t\tprint(x)\n\t```", "if x:\n    print(x)"),
        (
            "  ```python\nx = 1\n y = 2\n  ```",
            "x = 1\ny = 2",
        ),  # lines with fewer blanks lose those they have
        ("So: ```python\n  x = 1\n```", "  x = 1"),  # behind words nothing is indented
        ("```python\n  x = 1\n```", "  x = 1"),
    ],
)
def test_code_in_an_indented_fence_loses_the_indent_of_the_fence(text, code):
    assert FENCED.parse(text, TOOLS) == Parsed(python(code), None, text)
    assert FENCED.complete(text) and not FENCED.complete(text[:-1])
    assert FENCED.parse(
        FENCED.without_thoughts(f"<think>hm</think>\n{text}"), TOOLS
    ).call == python(code)


@pytest.mark.parametrize(
    "code",
    [
        "```python\nx\n```",
        "\n```\nx\n```\n",
        "```Python\r\nx\n```",
        "  ```py\n  x\n  ```",
        "```python3\nx",
    ],
)
def test_a_fence_around_code_is_taken_off(code):
    assert remove_fence(code) == "x"


@pytest.mark.parametrize(
    "code", ["", "x", "`x`", "s = '\n```python\nx\n```\n'", "```json\n1\n```", "```python x```"]
)
def test_code_without_a_fence_around_it_stays(code):
    assert remove_fence(code) == code


def test_a_fence_is_whole_with_its_third_backtick():
    text = "```python\nx\n  ```"
    assert [FENCED.complete(text[:size]) for size in range(len(text) + 1)] == [False] * len(
        text
    ) + [True]
    assert FENCED.parse(text[:-1], TOOLS).error == (
        "malformed tool call: ```python is never closed by a line that begins with ```"
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(["\n", " ", "\t", "x = 1", "`", "```py", "é", "\r"])).map("".join))
def test_what_is_rendered_is_read_back_or_refused(code: str):
    if any(line.lstrip(" \t").startswith("```") for line in code.split("\n")):
        with pytest.raises(ValueError, match="the format fenced cannot spell"):
            FENCED.render(python(code))
    else:
        assert FENCED.parse(FENCED.render(python(code)), TOOLS) == Parsed(
            python(code), None, FENCED.render(python(code))
        )


def test_what_cannot_be_spelled_is_refused():
    for call in (ToolCall("search", {"code": "x"}), ToolCall("python", {"code": "1", "x": 1})):
        with pytest.raises(ValueError, match="the format fenced cannot spell"):
            FENCED.render(call)
    with pytest.raises(ValueError, match="can only write the argument 'code' of python"):
        FENCED.render(ToolCall("python", {"code": 1}))


def test_results_come_back_in_a_fence():
    assert FENCED.observe("4", "python") == ("user", "```output\n4\n```")


def test_instructions_teach_python_and_refuse_others():
    text = FENCED.instructions([make_schema("python", "Run Python code.", {}, [])])
    assert (
        "```python" in text
        and "```output" in text
        and text.endswith("Run Python code.")
        and not FENCED.native
    )
    with pytest.raises(ValueError, match="calls python alone, not 'search'; use hermes"):
        FENCED.instructions([make_schema("search", "d", {}, [])])
