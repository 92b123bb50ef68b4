import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.tools.http.failures import ShapeError
from turngym.tools.http.json_values import Node, parse, serialize

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(VALUES)
def test_what_is_written_is_read_again(value):
    assert parse(serialize(value)) == value == json.loads(serialize(value))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN is no number"),
        (b"-Infinity", "-Infinity is no number"),
        (b"1 2", "not JSON"),
        ('"é"'.encode("latin-1"), "not UTF-8 at byte 1"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" * 101 + b"]" * 101, "nested too deeply"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested too deeply"),
        (b'[1, {"a": [0], "b":' + b"[" * 99 + b"]" * 99 + b"}, 2]", "nested too deeply"),
        (b"9" * 5000, "not JSON"),
    ],
)
def test_what_is_no_json_is_a_shape_error(data, said):
    with pytest.raises(ShapeError, match=said):
        parse(data)


@pytest.mark.parametrize(("opening", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_hundred_levels_are_read(opening, end):
    data = opening * 100 + b"1" + end * 100
    assert json.dumps(parse(data)).encode() == data.replace(b":", b": ")


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf]])
def test_no_number_is_written_that_json_has_not(value):
    with pytest.raises(ValueError):
        serialize(value)


def test_half_a_character_is_carried_as_a_question_mark():
    assert serialize("a\ud800b") == b'"a?b"'
    assert Node("a\ud800b").string() == "a?b"


def test_a_node_reads_what_is_there():
    node = Node({"a": [1, {"b": "c", "d": 2.5, "e": True, "f": 7}]})
    inner = node["a"].array()[1]
    assert inner.path == "a[1]"
    assert (inner["b"].string(), inner["d"].number(), inner["e"].boolean()) == ("c", 2.5, True)
    assert (
        inner["f"].integer(7, 7),
        inner["f"].identifier(),
        inner["b"].identifier(),
        inner["f"].number(),
    ) == (
        7,
        "7",
        "c",
        7.0,
    )
    assert "a" in node and "b" not in node


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda node: node["x"], "x is missing"),
        (lambda node: node["a"]["b"], "a is a list; expected an object"),
        (lambda node: node["a"].array()[0].string(), r"a\[0\] is 1; expected a string"),
        (lambda node: node["o"]["i"].number(), "o.i is inf; expected a finite number"),
        (lambda node: node["o"]["big"].number(), "o.big is 1000.*; expected a finite number"),
        (lambda node: node["o"].number(), "o is an object; expected a number"),
        (lambda node: node["t"].number(), "t is True; expected a number"),
        (lambda node: node["t"].integer(0, 5), "t is True; expected a whole number from 0 to 5"),
        (lambda node: node["a"].array()[0].integer(2, 5), "expected a whole number from 2 to 5"),
        (lambda node: node["a"].array()[0].boolean(), "expected true or false"),
        (lambda node: node["o"].array(), "o is an object; expected a list"),
        (lambda node: node["e"].identifier(), "e is ''; expected a string or a whole number"),
        (lambda node: node["t"].identifier(), "t is True; expected a string"),
        (lambda node: node["long"].array(), r"long is 'xx.*\.\.\.; expected a list"),
        (lambda node: Node(3).object(), "the JSON is 3; expected an object"),
    ],
)
def test_a_shape_error_names_the_path_and_the_value(read, said):
    node = Node(
        {"a": [1], "o": {"i": math.inf, "big": 10**400}, "t": True, "e": "", "long": "x" * 99}
    )
    with pytest.raises(ShapeError, match=said):
        read(node)


def test_items_of_a_list_become_nodes_when_they_are_read(monkeypatch):
    made = []
    build = Node.__init__
    monkeypatch.setattr(
        Node,
        "__init__",
        lambda self, value, path="": (made.append(path), build(self, value, path))[1],
    )
    items = Node({"result": [{"a": i} for i in range(1000)]})["result"].array()
    assert len(items) == 1000 and made == ["", "result"]
    assert [item["a"].value for item in items[:3]] == [0, 1, 2] and items[-1].path == "result[999]"
    assert len(made) == 2 + 3 + 3 + 1
    assert [item.path for item in items[998:]] == ["result[998]", "result[999]"] and len(
        list(items)
    ) == 1000
    with pytest.raises(IndexError):
        items[1000]
