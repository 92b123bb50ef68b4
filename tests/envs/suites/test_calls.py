"""Calls of replies: what is read as one, and that nothing but public methods with plain data is ever run."""

import math

import pytest

from turngym.envs.suites.calls import described, read, run


class Box:
    def __init__(self):
        self.items = []

    def put(self, item, times=1):
        self.items += [item] * times
        return {"items": list(self.items)}

    def count(self):
        return len(self.items)

    def power(self, base, exponent):
        return base**exponent

    def odd(self):
        return {"it": object}

    def _hidden(self):
        raise AssertionError("a private method was called")


def said(reply, box=None):
    return run(read(reply), {"Box": box or Box()})


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        ("[put(item=1), count()]", [{"put": {"item": 1}}, {"count": {}}]),
        ("put(item='a')", [{"put": {"item": "a"}}]),
        ("```[a.b.c(x=[1, {'k': (2, None)}])]```", [{"a.b.c": {"x": [1, {"k": (2, None)}]}}]),
        ("[f(x=g(y=2), z=h(), n=name, m=1 + 2)]", [{"f": {"x": {"g": {"y": 2}}, "z": "h()", "n": "name", "m": 3}}]),
        ("[f(x=-2.5, y=a[0])]", [{"f": {"x": -2.5, "y": "a[0]"}}]),
        ("[]", []),
    ],
)
def test_replies_are_read_as_the_official_reader_does(reply, calls):
    assert described(read(reply)) == calls


@pytest.mark.parametrize(
    "reply", ["None", "Use put(item=1).", "[put(item=1)", "[1, put()]", "put(", "[put(item=1)] done", "x" * 200_000]
)
def test_what_is_no_list_of_calls_is_none(reply):
    assert read(reply) is None or reply == "[put(item=1)"


@pytest.mark.parametrize("value", ["{1}", "lambda: 1", "[x for x in y]", "f'{a}'", "-x", "not x", "1 if a else 2"])
def test_arguments_that_are_no_data_are_refused(value):
    with pytest.raises(ValueError, match=r"."):
        described(read(f"[f(x={value})]"))


def test_calls_act_on_objects_in_their_order_and_may_be_nested():
    box = Box()
    assert said("[put(item='a'), put('b', times=2), put(item=count())]", box) == [
        '{"items": ["a"]}',
        '{"items": ["a", "b", "b"]}',
        '{"items": ["a", "b", "b", 3]}',
    ]
    assert box.items == ["a", "b", "b", 3]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("[_hidden()]", "name '_hidden' is not defined"),
        ("[__init__()]", "name '__init__' is not defined"),
        ("[open(file='x')]", "name 'open' is not defined"),
        ("[exit()]", "Function call exit is not allowed."),
        ("[put.__globals__(item=1)]", "name 'put.__globals__' is not defined"),
        ("[put(item=secret)]", "name 'secret' is not defined"),
        ("[put(item=[x for x in (1,)])]", "is neither data nor a call"),
        ("[put()]", "missing 1 required positional argument: 'item'"),
        ("[put(item=1, **{'times': 2})]", "unexpected keyword argument"),
        ("[put(*[1])]", "is neither data nor a call"),
        (f"[power(base=10, exponent={10**9})]", "is too large"),
        (f"[put(item={'9' * 4000} * {'9' * 4000} * {'9' * 4000} * 2)]", "is no number to compute with, or too large"),
    ],
)
def test_nothing_else_is_run(reply, error):
    assert error in said(reply)[0]


def test_results_are_written_as_officially():
    assert said("[count(), odd(), power(base=2, exponent=0.5)]") == [
        "0",
        "{'it': <class 'object'>}",
        str(math.sqrt(2)),
    ]
