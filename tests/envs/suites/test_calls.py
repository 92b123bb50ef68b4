"""Calls of replies: what is read as one, and that nothing but public methods with plain data is ever run."""

import math
import sys

import pytest

from turngym.envs.suites import calls
from turngym.envs.suites.calls import (
    Conversation,
    describe_calls,
    evaluate_arithmetic,
    judge_reply,
    parse_calls,
    run_calls,
)


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
    return run_calls(parse_calls(reply), {"Box": box or Box()})


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        ("[put(item=1), count()]", [{"put": {"item": 1}}, {"count": {}}]),
        ("put(item='a')", [{"put": {"item": "a"}}]),
        ("```[a.b.c(x=[1, {'k': (2, None)}])]```", [{"a.b.c": {"x": [1, {"k": (2, None)}]}}]),
        (
            "[f(x=g(y=2), z=h(), n=name, m=1 + 2)]",
            [{"f": {"x": {"g": {"y": 2}}, "z": "h()", "n": "name", "m": 3}}],
        ),
        ("[f(x=-2.5, y=a[0])]", [{"f": {"x": -2.5, "y": "a[0]"}}]),
        ("[]", []),
    ],
)
def test_replies_are_read_as_the_official_reader_does(reply, calls):
    assert describe_calls(parse_calls(reply)) == calls


@pytest.mark.parametrize(
    "reply",
    [
        "None",
        "Use put(item=1).",
        "[put(item=1)",
        "[1, put()]",
        "put(",
        "[put(item=1)] done",
        "x" * 200_000,
    ],
)
def test_what_is_no_list_of_calls_is_none(reply):
    assert parse_calls(reply) is None or reply == "[put(item=1)"


@pytest.mark.parametrize(
    "value", ["{1}", "lambda: 1", "[x for x in y]", "f'{a}'", "-x", "not x", "1 if a else 2"]
)
def test_arguments_that_are_no_data_are_refused(value):
    with pytest.raises(ValueError, match=r"."):
        describe_calls(parse_calls(f"[f(x={value})]"))


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
        (
            f"[put(item={'9' * 4000} * {'9' * 4000} * {'9' * 4000} * 2)]",
            "is no number to compute with, or too large",
        ),
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


class Hostile:
    """Objects that an agent brings into states which Python cannot show, compare or copy."""

    def __init__(self):
        self.folder = {}
        self.here = self.folder

    def big(self, digits):
        return 10**digits

    def boxed(self, digits):
        return {"result": 10**digits}

    def key(self, digits):
        return {}[10**digits]

    def nested(self, depth):
        value = []
        for _ in range(depth):
            value = [value]
        return value

    def enter(self, name):
        self.here[name] = {}
        self.here = self.here[name]

    def loop(self):
        self.here["up"] = self.here

    def double(self, times):
        value = ["x"]
        for _ in range(times):
            value = [value, value]
        return self.count(value)

    def count(self, value):
        return sum(self.count(one) if isinstance(one, list) else 1 for one in value)

    def swallow(self):
        try:
            return self.count([[1]] * 10**6)
        except Exception:
            return "swallowed"

    def long(self, size):
        return "a" * size

    def round_number(self, number, decimal_places):
        return round(number, decimal_places)

    def logarithm(self, value, precision):
        raise AssertionError(precision)

    def silent(self):
        raise Unspeakable

    def say(self, text):
        return {"said": text}


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("it cannot be told")


HOSTILE = [
    ("[big(4301)]", "the result is a number with too many digits to be shown"),
    ("[boxed(digits=4301)]", "the result is a number with too many digits to be shown"),
    ("[key(digits=9000)]", "KeyError"),
    ("[nested(depth=100000)]", "recursion depth"),
    ("[say(text=nested(depth=100000))]", "recursion depth"),
    ("[double(times=40)]", "takes too long"),
    ("[swallow()]", "takes too long"),
    ("[long(size=100001)]", "the result has 100001 characters; there is room for 100000"),
    ("[round_number(number=1, decimal_places=-1000000000)]", "the precision is too high"),
    ("[logarithm(value=2, precision=1e9)]", "the precision is too high"),
    ("[silent()]", "Unspeakable"),
    (f"[say(text=0x{'f' * 5000})]", "the result is a number with too many digits to be shown"),
    (f"[a{'.b' * 2000}()]", "Error during execution: "),
    ("[say(text={[1]: 2})]", "unhashable"),
    ("[say(text={{1}})]", "unhashable"),
    ("[say(text=1, **{'text': 2})]", "unexpected keyword argument"),
]


@pytest.mark.parametrize(("reply", "error"), HOSTILE, ids=[reply[:40] for reply, _ in HOSTILE])
def test_whatever_a_call_does_is_an_error_that_the_agent_is_told_of(reply, error):
    (result,) = (
        run_calls(parse_calls(reply) or [], {"Hostile": Hostile()})
        if parse_calls(reply)
        else [f"Error during execution: {error}"]
    )
    assert result.startswith("Error during execution: ") and error in result


@pytest.mark.parametrize(
    "text", ["'\\ud800'", "'\\x00'", "1e999", "{1, 2}", "b'a'", "...", "1j", "()", "'😀'"]
)
def test_odd_values_are_shown(text):
    assert "Error" not in run_calls(parse_calls(f"[say(text={text})]"), {"Hostile": Hostile()})[0]


def test_calls_after_one_that_took_too_long_are_not_run_in_the_same_reply():
    hostile = Hostile()
    first, second = run_calls(
        parse_calls("[double(times=40), enter(name='a')]"), {"Hostile": hostile}
    )
    assert "takes too long" in first and "have taken too long" in second and hostile.folder == {}
    assert run_calls(parse_calls("[enter(name='a')]"), {"Hostile": hostile}) == [
        "None"
    ] and hostile.folder == {"a": {}}
    assert sys.getprofile() is None


def test_what_a_reply_says_in_all_is_bounded():
    results = run_calls(
        parse_calls(f"[{', '.join(['long(size=90000)'] * 5)}]"), {"Hostile": Hostile()}
    )
    assert [len(result) == 90000 for result in results] == [True, True, False, False, False]
    assert sum(map(len, results)) < calls.MAX_REPLY_CHARACTERS + 1000


@pytest.fixture
def conversation(monkeypatch):
    monkeypatch.setattr(calls, "_create_objects", lambda row: {"Hostile": Hostile()})
    return Conversation({"id": "0"}, [["enter(name='a')"], ["say(text=1)"]])


@pytest.mark.parametrize(
    "replies", [["[loop()]"], [f"[{', '.join(['enter(name=0)'] * 900)}]"] * 3], ids=["loop", "deep"]
)
def test_a_state_that_cannot_be_compared_or_copied_is_another_state(conversation, replies):
    for reply in replies:
        conversation.call(parse_calls(reply))
    twin = conversation.fork()
    assert (
        twin.objects["Hostile"] is not conversation.objects["Hostile"]
        and twin.results == conversation.results
    )
    for one in (conversation, twin):
        one.end_turn()
        assert one.error == "multi_turn:instance_state_mismatch"
        one.call(parse_calls("[say(text=1)]"))
        one.fork().end_turn()


def test_a_copy_goes_its_own_way(conversation):
    conversation.call(parse_calls("[enter(name='a')]"))
    twin = conversation.fork()
    twin.call(parse_calls("[enter(name='b')]"))
    for one, error in ((conversation, ""), (twin, "multi_turn:instance_state_mismatch")):
        one.end_turn()
        assert one.error == error


@pytest.mark.parametrize(
    "value", [f"{'-' * 90}1", f"0x{'f' * 5000}", "[" * 90 + "]" * 90, "{[1]}", "{{}: 1}", "1 % 0"]
)
def test_a_single_reply_that_cannot_be_judged_is_wrong(value, monkeypatch):
    def check(*_):
        raise RecursionError

    checker = type(
        "Checker",
        (),
        {"ast_checker": check, "Language": type("Language", (), {"PYTHON": "python"})},
    )
    monkeypatch.setattr(calls, "_import_checker", lambda: checker)
    assert judge_reply("simple_python", [], [], f"[f(a={value})]").startswith("ast_")


@pytest.mark.parametrize(
    "text",
    ["2 + 2", " (1.5*3 - .25)/7", "-3**2 + 2**-1", "7//2", "10**300 * 1.5", "1.1*1.15", "--+-5"],
)
def test_an_expression_is_what_python_computes(text):
    assert evaluate_arithmetic(text) == eval(text.strip())  # noqa: S307 - the numbers above


@pytest.mark.parametrize(
    "text",
    [
        *(
            "9**9**9**9",
            "((9**999)**999)**999",
            "2**-9**9**9",
            "1/0",
            "0**-1",
            "",
            "(",
            "1 2",
            "(1)(2)",
            "...",
            "1.0**9**9**9",
        ),
        *(
            "open('x')",
            "x",
            "'a'",
            "[1]",
            "().__class__",
            "f'{1}'",
            "9" * 5000,
            "(" * 500,
            "-" * 90_000 + "1",
            "\0",
        ),
    ],
    ids=range(21),
)
def test_anything_else_is_refused_at_once(text):
    with pytest.raises(
        (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError, MemoryError)
    ):
        evaluate_arithmetic(text)
