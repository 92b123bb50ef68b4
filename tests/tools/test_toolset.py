"""Tools by name, on the environments of turngym; what a file may not choose."""

import sys

import pytest

from turngym.envs.registry import make
from turngym.envs.reserved_choices import reserved_choices
from turngym.tests.support.packages import install, working_in
from turngym.tools import get_format
from turngym.tools.base import Tool
from turngym.tools.formats import ToolCall
from turngym.tools.plugins import TOOLS_GROUP, load_tools

OWN = '''
class Notes:
    def __init__(self):
        self.lines = []

    def write(self, line: str) -> str:
        """Write a line."""
        self.lines.append(line)
        return " ".join(self.lines)


def shout(text: str) -> str:
    """Give back a text in capitals."""
    return text.upper()


def silent(text: str) -> str:
    return text


from turngym.tools import Toolset
notes, number = Toolset(Notes), 3
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "own_tools.py").write_text(OWN)
    with working_in(tmp_path):
        yield tmp_path


def call(name, **arguments):
    return get_format("hermes").render(ToolCall(name, arguments))


@pytest.mark.parametrize(
    "env_id", ["turngym/Math-v0", "turngym/MathPython-v0", "turngym/Search-v0"]
)
def test_every_question_environment_takes_further_tools_by_name(folder, env_id):
    options = {"size": "tiny"} if "Search" in env_id else {}
    env = make(
        env_id,
        tools="own_tools:shout, own_tools:Notes",
        **{"format": "hermes"} | options if "Math-" not in env_id else {},
    )
    assert list(env.toolbox.tools)[-2:] == ["shout", "write"] and env.max_turns > 1
    env.reset(seed=0)
    assert [env.step(call("shout", text="a"))[0], env.step(call("write", line="b"))[0]] == [
        "A",
        "b",
    ]
    assert env.spec.kwargs["tools"] == "own_tools:shout, own_tools:Notes"
    env.close()


def test_what_is_loaded_is_another_tool_in_every_environment(folder):
    (one,), (other,) = (load_tools(["own_tools:notes"]) for _ in range(2))
    assert isinstance(one, Tool)
    assert [one.call({"line": "a"}).text, other.call({"line": "b"}).text] == ["a", "b"]


def test_tools_themselves_are_taken_too(folder):
    def double(x: int) -> int:
        """Double."""
        return 2 * x

    assert list(make("turngym/MathPython-v0", tools=[double, "own_tools:shout"]).toolbox.tools)[
        1:
    ] == [
        "double",
        "shout",
    ]


def test_a_package_declares_tools_by_name(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    install(
        folder,
        "good-tools",
        TOOLS_GROUP,
        shout="own_tools:shout",
        gone="own_tool:shout",
        twice="own_tools:shout",
    )
    install(folder, "more-tools", TOOLS_GROUP, twice="own_tools:shout")
    assert reserved_choices({"tools": "shout, other"}) == [
        "tools=shout"
    ]  # that there is no other, `make` says
    assert [tool.name for tool in load_tools("shout")] == ["shout"]
    for name, message in (
        (
            "gone",
            "the tool gone of the package good-tools 'own_tool:shout': there is no module own_tool",
        ),
        (
            "twice",
            "twice is declared by the packages good-tools and more-tools; uninstall all but one",
        ),
        (
            "shot",
            "no tool is called 'shot'; did you mean 'shout'\\? installed packages declare gone, shout, twice; or",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            load_tools(name)


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("own_tools:silent", "the tool 'own_tools:silent': tool silent has no docstring"),
        (
            "own_tools:number",
            "the tool 'own_tools:number': 3 is no tool: it has no name, schema, call, reset",
        ),
        ("own_tools:shot", "has no shot; did you mean 'shout'?"),
        ("own_tools:shout,own_tools:shout", "two tools share a name: python, shout, shout"),
        ("", "no tool is called ''; installed packages declare none"),
        (3, "tools is 3; write a list, such as tools=[3]"),
    ],
)
def test_what_is_wrong_with_a_name_is_one_line(folder, tools, message):
    with pytest.raises(ValueError) as caught:
        make("turngym/MathPython-v0", tools=tools)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tools", "more"),
    [
        ("own_tools:shout,os:system", []),
        (["own_tools:shout", "os:system"], []),
        ([["own_tools:shout,os:system"]], ['tools=[["own_tools:shout,os:system"]]']),
        (
            {"own_tools:shout": 1, "os:system": 1},
            ['tools={"own_tools:shout" = 1, "os:system" = 1}'],
        ),
        (
            {"a": ["own_tools:shout", {"b": "os:system"}]},
            ['tools={"a" = ["own_tools:shout", {"b" = "os:system"}]}'],
        ),
    ],
)
def test_a_file_cannot_choose_tools_that_are_named_by_a_module(folder, tools, more):
    assert sorted(reserved_choices({"tools": tools})) == sorted(
        [*more, "tools=os:system", "tools=own_tools:shout"]
    )
    assert "own_tools" not in sys.modules and reserved_choices({"tools": 3}) == ["tools=3"]


@pytest.mark.parametrize("tools", [{"own_tools:shout": 1}, {}])
def test_a_table_names_no_tools(folder, tools):
    with pytest.raises(TypeError, match=r"tools is \{.*write a list"):
        load_tools(tools)
    assert "own_tools" not in sys.modules
