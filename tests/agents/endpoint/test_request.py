"""Fields of requests as a user names them."""

import json

import pytest

from turngym.agents.endpoint.request import LEFT_OUT, request_fields


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ('chat_template_kwargs={"enable_thinking": false}', {"enable_thinking": False}),
        ('thinking={"type":"enabled"}', {"type": "enabled"}),
        ('thinking= {"type": "enabled", "budget": 1e3} ', {"type": "enabled", "budget": 1000.0}),
        ('stop=["a","b"]', ["a", "b"]),
        ("stop=[]", []),
        ("logit_bias={}", {}),
        ('extra={"a": "x=y"}', {"a": "x=y"}),
        ("top_p=0.9", 0.9),
        ("top_k=1_000", 1000),
        ("n=1", 1),
        ("flag=true", True),
        ("extra=null", None),
        ("reasoning_effort=low", "low"),
        ('reasoning_effort="none"', "none"),
        ("stop='x'", "x"),
        ("day=2026-11-28", "2026-11-28"),
        ("text=", ""),
        ("text=a {b", "a {b"),
        ("seed=none", LEFT_OUT),
    ],
)
def test_a_value_is_what_it_says(item, value):
    (found,) = request_fields([item]).values()
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("a", "--request 'a' is not of the form name=value"),
        ("=1", "is not of the form name=value"),
        ("thinking={type: enabled}", "begins with '{' and is not JSON: Expecting property name"),
        ("thinking={'type': 'enabled'}", "begins with '{' and is not JSON"),
        ("thinking={enable = true}", "begins with '{' and is not JSON"),
        ('thinking={"a": 1} x', "begins with '{' and is not JSON: Extra data"),
        ("stop=[a]", r"begins with '\[' and is not JSON"),
        ("stop=['a']", r"begins with '\[' and is not JSON"),
        ('stop=["a"', r"begins with '\[' and is not JSON"),
        ('x={"a": NaN}', "begins with '{' and is not JSON: NaN is not JSON"),
        ("x=" + "[" * 100_000, r"begins with '\[' and is not JSON: it is nested too deeply"),
        ("top_p=nan", "holds a number that JSON cannot carry"),
        ("top_p=NaN", "holds a number that JSON cannot carry"),
        ("top_p=-inf", "holds a number that JSON cannot carry"),
        ("top_p=1e999", "holds a number that JSON cannot carry"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_sent_as_a_text(item, message):
    with pytest.raises(ValueError, match=message) as wrong:
        request_fields([item])
    assert "\n" not in str(wrong.value) and len(str(wrong.value)) < 500


def test_all_fields_can_be_sent():
    fields = request_fields(['a={"b": [1]}', "c=1.5", "d=word", "c=2"])
    assert json.loads(json.dumps(fields)) == {"a": {"b": [1]}, "c": 2, "d": "word"}
