import pytest

from turngym.envs.rows import SHAPES, Fields, as_text, as_texts, expected, final_answer, read_row


@pytest.mark.parametrize(
    ("value", "text"),
    [("1 + 1?", "1 + 1?"), (" x\n", " x\n"), (7, "7"), (27.0, "27"), (2.5, "2.5"), (-3.0, "-3")],
)
def test_texts_and_numbers_are_taken_as_written(value, text):
    assert as_text(value) == text


@pytest.mark.parametrize("value", ["", " \n", None, True, ["1"], {"a": 1}])
def test_anything_else_is_no_text(value):
    for make in (as_text, final_answer):
        with pytest.raises(ValueError, match=r"^it needs text$"):
            make(value)


def test_the_answer_of_a_rationale_stands_behind_its_last_hashes():
    assert final_answer("3 * 4 = 12 #### 12\n#### 1,234 ") == "1234"
    assert final_answer(" 1,234 ") == "1,234"
    assert final_answer(12) == "12"


def test_the_first_shape_that_fits_is_used():
    row = {"problem": "p", "question": "q", "answer": "1"}
    assert read_row(row, SHAPES) == ("p", ("1",))
    assert read_row(row, SHAPES[::-1]) == ("q", ("1",))


def test_a_dot_reaches_into_a_nested_row():
    fields = Fields("task.text", "reward.truth.value", prompt=lambda text: text.upper())
    row = {"task": {"text": "why?"}, "reward": {"truth": {"value": 4.0}}}
    assert read_row(row, [fields]) == ("WHY?", ("4",))
    for missing in ({"task": "why?", "reward": {}}, {"task": {"text": "why?"}}):
        with pytest.raises(ValueError, match=r"has the fields .*; a row needs `task.text, reward.truth.value`; name"):
            read_row(missing, [fields])


def test_what_cannot_be_used_is_named_with_its_field_and_value():
    with pytest.raises(ValueError, match=r"^: field 'problem' is None; it needs text$"):
        read_row({"problem": None, "answer": "1"}, SHAPES)
    with pytest.raises(ValueError, match=r"^: field 'answer' is \[\]; it needs text$"):
        read_row({"problem": "p", "answer": []}, SHAPES)
    with pytest.raises(ValueError, match=r"^ has a list; a row needs `problem, answer` or `question, answer`"):
        read_row([1], SHAPES)
    assert expected(SHAPES) == "`problem, answer` or `question, answer`"


def test_the_gold_and_not_the_answer_is_checked():
    golds = []
    read_row({"problem": "p", "answer": "so #### 5"}, SHAPES, golds.append)
    assert golds == ["5"]


def test_several_right_answers_are_taken_each_once():
    assert as_texts(["a", 2, "a", "b"]) == ("a", "2", "b") and as_texts("a") == ("a",) and as_texts(3.0) == ("3",)
    for value in ([], [""], ["a", None], None, {"a": 1}, [["a"]]):
        with pytest.raises(ValueError, match=r"^it needs (text|a text, or a list of texts)$"):
            as_texts(value)


def test_a_field_of_aliases_may_be_there():
    fields, golds = Fields("q", "a", gold=as_texts, aliases="more"), []
    assert read_row({"q": "?", "a": "x", "more": ["y", "x", "z"]}, [fields], golds.append) == ("?", ("x", "y", "z"))
    assert golds == ["x", "y", "z"]
    for row in ({"q": "?", "a": "x"}, {"q": "?", "a": "x", "more": []}, {"q": "?", "a": "x", "more": None}):
        assert read_row(row, [fields]) == ("?", ("x",))
    with pytest.raises(ValueError, match=r"^: field 'more' is \[''\]; it needs text$"):
        read_row({"q": "?", "a": "x", "more": [""]}, [fields])
